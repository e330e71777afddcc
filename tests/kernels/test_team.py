"""Threads that share the work of kernels in C."""

import ctypes
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from c_kernels import builds

from svea.augment import conv
from svea.kernels import cpu


@builds
def test_helpers_that_are_busy_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be at work for another thread of this process for as long as they like."""
    monkeypatch.setattr(cpu, "threads", lambda: 2)
    begun, finish = threading.Event(), threading.Event()

    @ctypes.CFUNCTYPE(None)
    def endless() -> None:
        begun.set()
        finish.wait()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(cpu.call, endless, 99)
        begun.wait()
        x, weight = torch.rand(40, 3, 16, 16), torch.randn(40, 3, 3, 3, 3)
        found = cpu.random_convolution(x, weight)
        finish.set()
    torch.testing.assert_close(found, conv.function(x, weight=weight), rtol=0, atol=1e-6)


@builds
def test_many_threads_may_call_kernels_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "threads", lambda: 2)
    x, weight = torch.rand(64, 3, 16, 16), torch.randn(64, 3, 3, 3, 3)
    wanted = cpu.random_convolution(x, weight)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: cpu.random_convolution(x, weight), range(200)))
    assert all(torch.equal(each, wanted) for each in found)


@builds
def test_a_forked_process_has_helpers_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "threads", lambda: 2)
    x, weight = torch.rand(64, 3, 16, 16), torch.randn(64, 3, 3, 3, 3)
    wanted = cpu.random_convolution(x, weight)
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(cpu.random_convolution(x, weight), wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_are_all_cores_unless_the_user_says_how_many(monkeypatch):
    monkeypatch.setattr(cpu, "usable_cores", lambda: 7)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cpu.threads() == 7
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert cpu.threads() == torch.get_num_threads()
