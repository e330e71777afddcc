# Everything from a fresh clone: `make demo`, `make test`. Each sets up .venv by itself;
# `source .venv/bin/activate` then gives a shell its `svea` and `python`.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The torch to install, before everything else. It is not in requirements.txt, because the right
# build depends on the machine: `make setup TORCH=` keeps the torch that is already in .venv.
TORCH ?= torch==2.13.0

VENV := .venv
PY := $(VENV)/bin/python
# -qq: errors only, no progress bars and no notes about package indexes.
PIP := $(PY) -m pip install -qq --disable-pip-version-check
READY := $(VENV)/.ready

# What a shell needs before it finds `svea`.
ACTIVATE := printf '\nin each new shell, before any svea command:\n\n    source $(VENV)/bin/activate\n\n'

.PHONY: help setup ready system demo results docs docs-serve test test-all wings faults lint format lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

setup: ready ## make .venv with svea in it, GL libraries for headless rendering, and a C compiler
	@$(ACTIVATE)

ready: $(READY) system

demo: ready ## train SVEA on a DMControl task from pixels and write runs/demo/report.html
	@$(VENV)/bin/svea demo
	@$(ACTIVATE)

results: $(READY) ## write tables, method pages, figures and model cards from results/
	@$(PY) scripts/results.py

# The variable silences an advertisement.
docs: $(READY) ## build the site into build/site; a dead link or missing picture is an error
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict -q
	@echo "build/site/index.html"

docs-serve: $(READY) ## show the site on 127.0.0.1:8000 while you write
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs serve -a 127.0.0.1:8000

# Two processes with one thread each: more threads than cores makes small tensors slower.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(PY) -m pytest -q -n 2 --dist loadfile

test: ready lint ## lint, then the tests (some minutes on 2 cores)
	@$(PYTEST)

test-all: ready lint ## the tests including the slow ones
	@$(PYTEST) -m ""

wings: ready ## the core's tests without each wing in turn (a test run for each)
	@$(PY) tools/wings.py $(WINGS)

faults: ready ## the fault kit at full size: up to 2 hours on 2 cores; FAULTS="--scale 0.1" for less
	@$(PY) tools/faults/run.py $(FAULTS)

lint: $(READY) ## ruff, mypy, the order of imports, and pages' links and line widths
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m pytest -q tests/test_rooms.py tests/test_docs.py -k 'test_rooms or wrapped'

format: $(READY) ## let ruff rewrite the code in the project's style
	@$(PY) -m ruff check --fix-only -q .
	@$(PY) -m ruff format .

system: $(READY)
	@scripts/system-packages $(PY)

# --no-deps: the file is complete, and kornia must not make pip look for torch again.
# hatchling and editables are in the file, so the last line builds without another download.
$(READY): pyproject.toml requirements.txt
	@scripts/create-venv $(VENV)
	@if [ -n "$(TORCH)" ]; then echo "installing $(TORCH) (a large download the first time)"; $(PIP) $(TORCH); fi
	@echo "installing the packages of requirements.txt"
	@$(PIP) --require-hashes --no-deps -r requirements.txt
	@$(PY) -m pip uninstall -qqy svea  # the name under which earlier clones were installed
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

lock: ## pin requirements.txt again from the ranges in pyproject.toml (needs uv)
	@uv=$$(command -v uv || echo $(VENV)/bin/uv); echo torch | "$$uv" pip compile pyproject.toml \
		--extra train --extra tensorboard --extra play --extra docs --extra dev \
		--universal --python-version 3.11 \
		--fork-strategy fewest --excludes /dev/stdin --upgrade --generate-hashes --no-annotate \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" -q \
		-o requirements.txt

clean: ## remove .venv, builds and caches; runs/ is kept
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
