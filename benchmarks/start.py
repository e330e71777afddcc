"""How long a training command takes to learn: seconds to its first and fifth update, twice.

    python benchmarks/start.py walker_walk --envs 8 --no-eval-first

What follows are the arguments of `svea train`. The first run begins with empty caches of compiled
kernels, the second with those that it left. On a GPU the fifth update is the second that a CUDA
graph replays. Both runs end there; their folder is a temporary one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

CACHES = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
BEGUN = "SVEA_START_BEGUN"  # on the clock that all processes share


def main() -> None:
    """Run the command with empty caches and again, or be one of these runs."""
    if BEGUN in os.environ:
        threading.Thread(target=watch, daemon=True).start()
        from svea.cli import main as command

        sys.exit(command())
    with tempfile.TemporaryDirectory() as folder:
        caches = {name: str(Path(folder, name)) for name in CACHES}
        for name in ("cold", "warm"):
            print(f"{name}: svea train {' '.join(sys.argv[1:])}", flush=True)
            command_line = [sys.executable, __file__, "train", *sys.argv[1:]]
            begun = {BEGUN: str(time.monotonic())}
            run = Path(folder, name)
            run.mkdir()
            subprocess.run(command_line, cwd=run, env={**os.environ, **caches, **begun}, check=True)


def watch() -> None:
    """Wait until the command imports the learner by itself, and count its updates."""
    while not hasattr(sys.modules.get("svea.speed.learner"), "Learner"):
        time.sleep(0.005)
    learner, done = sys.modules["svea.speed.learner"].Learner, []  # type: ignore[attr-defined]
    plain = learner.step

    def step(self: Any, *given: Any) -> Any:
        losses = plain(self, *given)
        done.append(float(losses["critic_loss"]))  # waits for the device
        if len(done) in (1, 5):
            seconds = time.monotonic() - float(os.environ[BEGUN])
            print(f"update {len(done)} was done after {seconds:.1f} s", flush=True)
        if len(done) == 5:
            os._exit(0)
        return losses

    learner.step = step


if __name__ == "__main__":
    main()
