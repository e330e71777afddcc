"""Where and how fast: device, precision, compilation and CUDA graphs, all from outside the update.

`Learner` is what the training loop calls: one batch, one update, in the way that --speed says. The
update itself is written once, in agents/, and does not know.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import torch

from svea import compilation
from svea.errors import DeviceError, UserError, unknown_name
from svea.machine import usable_cores
from svea.networks.vit import Attention
from svea.replay import Batch, Replay

if TYPE_CHECKING:
    from svea.agents.agent import Agent, Losses, Phase

SPEEDS = ("eager", "compiled", "captured")
PRECISIONS = ("auto", "float32", "bfloat16")
WARM_UP = 3  # updates of a kind before it is captured: they compile, choose kernels and allocate


class Learner:
    """Samples and updates.

    Captured updates are replayed from CUDA graphs, one for each kind of update (with or without
    policy, target and auxiliary task). The first few of a kind run as written: they are updates
    like all others, so nothing is lost or done twice. Capturing itself computes nothing. The
    replay's size and all generators are read at replay, so every update draws afresh from a
    buffer that grows.
    """

    def __init__(
        self,
        agent: Agent,
        replay: Replay,
        batch_size: int,
        *,
        precision: torch.dtype = torch.float32,
        speed: str = "eager",
        deterministic: bool = False,
        say: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Prepare the agent for a way of updating.

        Args:
            agent: what learns.
            replay: what it learns from.
            batch_size: transitions per update.
            precision: of the networks' arithmetic.
            speed: ``eager``, ``compiled`` or ``captured``, as `choose_speed` resolved it.
            deterministic: the same bits every time, also on a GPU.
            say: called with a line when something takes long.
        """
        self.agent, self.replay, self.batch_size = agent, replay, batch_size
        self.precision, self.speed, self._say = precision, speed, say
        self._counts: dict[Phase, int] = {}
        self._graphs: dict[Phase, CapturedUpdate] = {}
        prepare(agent)
        if deterministic and agent.device.type != "cpu":  # there they repeat in any case
            repeat_exactly(agent.device)
        if speed != "eager" and agent.device.type == "cpu":
            convolve_in_c(agent)
        elif speed != "eager":
            compile_networks(agent)
        if speed == "captured":
            agent.beside = SideStream()  # type: ignore[method-assign]

    def update(self, decision: int) -> Losses:
        """One update; the losses are overwritten by a later update of the same kind."""
        agent = self.agent
        agent.schedule(decision)
        self.replay.flush()
        phase = agent.phase(decision)
        seen = self._counts[phase] = self._counts.get(phase, 0) + 1
        if seen == 1 and self.speed != "eager" and agent.device.type != "cpu":
            self._say("compiling an update (kept in a cache for later runs)")
        if self.speed != "captured" or seen <= WARM_UP:
            return self.learn(self.sample(), phase, self.sample_auxiliary(phase))
        if phase not in self._graphs:
            self._graphs[phase] = CapturedUpdate(self, phase)
        return self._graphs[phase].replay()

    def learn(self, batch: Batch, phase: Phase, auxiliary_batch: Batch | None) -> Losses:
        """The agent's update in the chosen precision."""
        with self.region():
            return self.agent.learn(batch, phase, auxiliary_batch)

    def sample(self) -> Batch:
        """A batch on the agent's device."""
        return self.replay.sample(self.batch_size).to(self.agent.device)

    def sample_auxiliary(self, phase: Phase) -> Batch | None:
        """A batch for the auxiliary task, if it is due and wants its own."""
        auxiliary = self.agent.auxiliary
        if auxiliary is None or not phase.auxiliary or not auxiliary.batch_size:
            return None
        return self.replay.sample(auxiliary.batch_size).to(self.agent.device)

    @contextlib.contextmanager
    def region(self) -> Iterator[None]:
        """The region in which updates are computed."""
        device = self.agent.device
        compiled: compilation.How = "in C" if device.type == "cpu" else "by torch"
        with (
            precision_context(device, self.precision),
            compilation.region("as written" if self.speed == "eager" else compiled),
        ):
            yield


class SideStream:
    """Computes something on the GPU beside the main stream: small layers leave half of it idle.

    What the function reads was made before it started, and what it returns is used after it was
    waited for. The main stream waits before it goes on, so memory is never reused too early.
    """

    def __call__(self, function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """Start, and return how to wait for the result."""
        main = torch.cuda.current_stream()
        side = side_stream(main.cuda_stream)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            value = function()

        def wait() -> torch.Tensor:
            torch.cuda.current_stream().wait_stream(side)
            return value

        return wait


class CapturedUpdate:
    """One kind of update as a CUDA graph, its sampling included where the replay is on the GPU."""

    def __init__(self, learner: Learner, phase: Phase) -> None:
        """Record an update; the networks stay as they are."""
        self._learner, self._phase = learner, phase
        agent, replay = learner.agent, learner.replay
        self._inside = replay.device == agent.device
        self._batches = None if self._inside else self._sample()
        self._graph = torch.cuda.CUDAGraph()
        for generator in {agent.generator, replay.generator} if self._inside else {agent.generator}:
            self._graph.register_generator_state(generator)
        pool = next((other._graph.pool() for other in learner._graphs.values()), None)
        with torch.cuda.graph(self._graph, pool=pool, stream=capture_stream()):
            batch, auxiliary_batch = self._batches or self._sample()
            self._losses = learner.learn(batch, phase, auxiliary_batch)

    def replay(self) -> Losses:
        """Do the update."""
        if self._batches is not None:
            for static, fresh in zip(self._batches, self._sample(), strict=True):
                if static is not None and fresh is not None:
                    for name, tensor in vars(static).items():
                        tensor.copy_(getattr(fresh, name), non_blocking=True)
        self._graph.replay()
        return self._losses

    def _sample(self) -> tuple[Batch, Batch | None]:
        return self._learner.sample(), self._learner.sample_auxiliary(self._phase)


def synchronise(device: torch.device) -> None:
    """Wait until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize()


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """A region in which a GPU that fails or is full says so in one message."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"the GPU's memory is full: {str(error).splitlines()[0]} Use a smaller --batch-size or "
            "--replay, fewer --seeds, or end other programs on it; the same command continues from "
            "the last checkpoint"
        ) from error
    except torch.AcceleratorError as error:
        raise DeviceError(
            f"the GPU failed: {str(error).splitlines()[0]} The last checkpoint is whole and the "
            "same command continues from it; if it fails again, try --speed eager"
        ) from error


LANES = 8  # runs that compute at once; torch has 32 streams to give, and a lane takes two


def lane(device: torch.device, number: int) -> contextlib.AbstractContextManager[object]:
    """A context, to be entered many times, in which a GPU works beside other runs' work.

    Runs of one lane wait for each other. A lane knows nothing of what was started outside it:
    `synchronise` first.
    """
    if device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(lane_stream(number % LANES))


@cache
def lane_stream(number: int) -> torch.cuda.Stream:
    """The lane's stream."""
    return torch.cuda.Stream()


@cache
def side_stream(main: int) -> torch.cuda.Stream:
    """The stream beside a stream."""
    return torch.cuda.Stream()


def capture_stream() -> torch.cuda.Stream | None:
    """Where to capture a graph: in a lane on its own stream, else on torch's, which all share.

    A library's scratch memory belongs to the stream that a graph was captured on, and kernels wait
    for one another in it: of two such graphs at work at once, one waited for ever.
    """
    current = torch.cuda.current_stream()
    return None if current == torch.cuda.default_stream() else current


def choose_speed(name: str, device: torch.device) -> str:
    """``auto`` is captured on CUDA, compiled on a CPU, and eager elsewhere."""
    if name not in ("auto", *SPEEDS):
        raise unknown_name("speed", name, ("auto", *SPEEDS))
    if name == "captured" and device.type != "cuda":
        raise UserError(
            f"speed is captured, but device {device.type} has no CUDA graphs; allowed here: auto, "
            "eager, compiled"
        )
    if name == "eager" or (name == "auto" and device.type not in ("cuda", "cpu")):
        return "eager"
    missing = missing_for_compiling(device)
    if missing and name == "auto":
        warnings.warn(f"updates run uncompiled and take much longer: {missing}", stacklevel=2)
        return "eager"
    if missing:
        raise UserError(
            f"speed is {name}, but compiling does not work here: {missing}. Install what is "
            "missing or use --speed eager"
        )
    if name == "auto":
        return "captured" if device.type == "cuda" else "compiled"
    return name


def missing_for_compiling(device: torch.device) -> str:
    """What is missing to compile updates for a device, as half a sentence; empty if nothing is."""
    if device.type == "cpu":
        from svea.speed.kernels import cpu

        try:
            cpu.library()  # a trial: an unusable compiler shows here, not in the first update
        except cpu.BuildError as error:
            return f"kernels in C cannot be compiled, {error}"
        return ""
    if device.type == "cuda":
        from torch.utils._triton import has_triton

        return "" if has_triton() else "torch.compile needs Triton, which is not installed"
    found = any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++"))
    return "" if found else "torch.compile needs a C++ compiler (g++), which is not installed"


def convolve_in_c(agent: Agent) -> None:
    """Let kernels in C compute convolutions, where they fit; on a CPU these are most of an update.

    They are compiled in a second. torch.compile is left alone here: it takes most of a minute and
    gains next to nothing, because it calls the same library (benchmarks/NOTES.md).
    """
    from svea.speed.kernels import cpu

    for network in agent.networks.values():
        for part in (network, *network.children()):  # SODA's slow trunk is a child
            if cpu.Convolutions.fits(part):
                part.forward = cpu.Convolutions(part)  # type: ignore[arg-type, assignment]


def compile_networks(agent: Agent) -> None:
    """Let torch compile every network's forward pass, and so its backward pass, when first used.

    Draws stay outside: torch.compile does not take explicit generators.
    """
    torch._dynamo.config.cache_size_limit = 64  # a network sees several batch sizes
    for network in agent.networks.values():
        if network is agent.auxiliary:
            for part in network.children() if agent.device.type == "cuda" else ():
                fuse_convolutions(part)  # SODA's slow trunk
            continue
        if agent.device.type == "cuda":
            if fuse_convolutions(network):
                continue
            fuse_attention(network)
        network.compile(dynamic=False)


def fuse_convolutions(network: torch.nn.Module) -> bool:
    """Let our own kernels compute a CNN's forward and backward pass, where they fit."""
    from svea.speed.kernels import nvrtc
    from svea.speed.kernels.convolutions import FusedConvolutions
    from svea.speed.kernels.trunk import FusedTrunk

    if not FusedConvolutions.fits(network):
        return False
    for weight in network.parameters():  # the layout in which its gradients come
        weight.data = weight.data.contiguous()
    if FusedTrunk.fits(network):
        try:
            network.forward = FusedTrunk(network)  # type: ignore[arg-type, assignment]
            return True
        except nvrtc.BuildError as error:
            slow = f"convolutions run a layer at a time and take longer: {error}"
            warnings.warn(slow, stacklevel=2)
    network.forward = FusedConvolutions(network)  # type: ignore[arg-type, assignment]
    return True


def fuse_attention(network: torch.nn.Module) -> None:
    """Let our own kernels mix the tokens of a ViT."""
    from svea.speed.kernels.attention import attention

    for module in network.modules():
        if isinstance(module, Attention):
            module.mix = attention


def uncompiled(speed: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Nothing compiled by torch: acting sees other batch sizes, and each would compile anew."""
    if speed == "eager" or device.type == "cpu":
        return contextlib.nullcontext()  # importing the compiler takes seconds
    return torch.compiler.set_stance("force_eager")


def choose_device(name: str) -> torch.device:
    """The device for ``auto``, ``cuda``, ``mps`` or ``cpu``; an absent one is an error."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(device for device, there in available.items() if there)
    if not available.get(name, False):
        there = ", ".join(device for device, found in available.items() if found)
        raise UserError(f"device {name} is not available; allowed here: auto, {there}")
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """bfloat16 on GPUs that multiply it natively (``auto``), float32 elsewhere, or as asked for.

    On CPUs float32 is as fast at the sizes one trains there, and some virtual machines announce
    bfloat16 tiles (AMX) that they do not have: so it must be asked for, and is tried first.
    """
    if name not in PRECISIONS:
        raise unknown_name("precision", name, PRECISIONS)
    if name == "float32":
        return torch.float32
    if device.type == "cpu" and name == "bfloat16" and not cpu_computes_bfloat16():
        raise UserError(
            "precision is bfloat16, but this CPU fails to multiply in it. Use --precision float32, "
            "or set the variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 if it announces AMX without "
            "having it"
        )
    if name == "bfloat16":
        return torch.bfloat16
    native = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if native else torch.float32


def cpu_computes_bfloat16() -> bool:
    """Try a bfloat16 product in a child process: a bad one ends in an illegal instruction."""
    trial = (
        "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); "
        "assert bool(((x @ x) == 64).all())"
    )
    done = subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False)
    return done.returncode == 0


def precision_context(
    device: torch.device, precision: torch.dtype
) -> contextlib.AbstractContextManager[object]:
    """The region in which updates and actions are computed."""
    if precision == torch.float32:
        return contextlib.nullcontext()
    # No cache of converted weights: an update changes the weights half way.
    return torch.autocast(device.type, dtype=precision, cache_enabled=False)


def prepare(agent: Agent) -> None:
    """Make ready what speeds up every update without changing it."""
    if agent.device.type == "cuda":
        torch.backends.cudnn.benchmark = True  # shapes never change: try all kernels once
        torch.set_float32_matmul_precision("high")
    if agent.device.type == "cpu":
        keep_freed_memory()
        leave_a_core()


def repeat_exactly(device: torch.device) -> None:
    """Let every CUDA library add up in the same order each time, for the whole process.

    Our own kernels always do.
    """
    if device.type != "cuda":
        raise UserError(
            f"deterministic is on, but device {device.type} cannot promise it; allowed with "
            "--device cuda, and with --device cpu, where updates always repeat"
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read before its first product
    torch.backends.cudnn.benchmark = False  # the fastest kernel of a trial may be another next time
    # nothing reads it before it is written
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True)


def keep_freed_memory() -> None:
    """Let the C library keep the memory of freed tensors for the next ones.

    By default glibc gives large blocks back at once, and every update pays for fresh pages: about
    a sixth of its time at 40 pixels and batch 128, in noisy runs.
    """
    if sys.platform != "linux":
        return
    trim_threshold, map_threshold = -1, -3  # <malloc.h>
    with contextlib.suppress(AttributeError):  # not glibc
        library = ctypes.CDLL(None)
        library.mallopt(map_threshold, 1 << 29)
        library.mallopt(trim_threshold, (1 << 31) - 1)


def leave_a_core() -> None:
    """Leave one core to the environments, unless OMP_NUM_THREADS says how many threads to take.

    All threads wait for the slowest one many times in every update. On 2 cores, with anything else
    at work, two threads took 1.2 to 2.0 times as long as one (docs/demo.md).
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, usable_cores() - 1))
