"""Which kernels are put on an agent, and where; `tests/speed` has what is torch's."""

import contextlib
import os
import pkgutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from c_kernels import builds
from replaced import made_of, parts
from tiny_runs import tiny
from torch import Tensor

from svea import kernels, speed, views
from svea.agents import make_agent
from svea.augment import (
    AUGMENTATIONS,
    conv,
    crop,
    shift,
)
from svea.augment.images import ImageBank
from svea.core.errors import UserError
from svea.kernels import gpu, nvrtc, random_convolution, trunk
from svea.kernels.gpu import fuse
from svea.networks import FrameCNN
from svea.speed.accelerate import (
    fast_augmentation,
    with_kernels,
)

CPU = torch.device("cpu")
KERNELS = [f"{kernels.__name__}.{module.name}" for module in pkgutil.iter_modules(kernels.__path__)]


EAGER_UPDATES = """
import sys
import numpy as np
import torch
import torch._dynamo
sys.path.insert(0, {triton!r})  # for us alone: torch has looked for Triton already
from svea.agents import make_agent
from svea.config import configure
from svea.replay import Replay
from svea.speed import Learner

for name in {blocked}:
    sys.modules[name] = None  # importing it raises
torch.Tensor.is_cuda = True  # what a kernel's dispatch would ask
for method in ("svea", "svea-rad"):
    config = configure("walker_walk", method=method, image_size=24, shift=1, batch_size=4,
                       network={{"layers": 2, "filters": 16, "projection": 8, "hidden": 16}})
    frame = np.zeros((3, config.rendered_size, config.rendered_size), np.uint8)
    replay = Replay(10, config.rendered_size, 6)
    replay.begin(0, frame)
    for _ in range(5):
        replay.append(0, np.zeros(6, np.float32), 0.0, False, frame)
    learner = Learner(make_agent(config, 6), replay, 4, speed="eager")
    for decision in range(2):
        learner.step(decision)
print("no kernel")
"""


def test_eager_updates_enter_no_kernel_where_tensors_lie_on_a_gpu(tmp_path: Path) -> None:
    """A child with Triton on its path and tensors that say they are on a GPU."""
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton/__init__.py").write_text("")
    code = EAGER_UPDATES.format(blocked=KERNELS, triton=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "no kernel\n", done.stderr


def leave_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a GPU that is not there: nothing but views is accelerated."""
    for name in ("fuse", "take_over"):
        monkeypatch.setattr(gpu, name, lambda *_: False)
    monkeypatch.setitem(speed.accelerate.__globals__, "compile_networks", lambda *_: None)


@builds
def test_one_agents_fast_versions_are_no_other_agents(tmp_path: Path) -> None:
    fast, plain = (make_agent(tiny(tmp_path, augment="conv|blur"), 1) for _ in range(2))
    speed.accelerate(fast, "compiled")
    conv_of = {part.name: part for part in parts(fast.view_maker.strong)}["conv"]
    assert conv_of.function is not conv.function
    assert made_of(plain)[:3] == [AUGMENTATIONS[n].function for n in ("shift", "conv", "blur")]


def test_on_a_gpu_views_have_kernels_or_are_compiled(tmp_path, monkeypatch):
    """Which function stands where, without a GPU to run it."""
    agent = make_agent(tiny(tmp_path, augment="conv+cutout"), 1)
    plain = agent.view_maker.strong
    monkeypatch.setattr(agent, "device", torch.device("cuda"))
    leave_networks(monkeypatch)
    speed.accelerate(agent, "captured")
    maker = agent.view_maker
    for part in (*parts(maker.weak), *parts(maker.strong)):
        original = AUGMENTATIONS[part.name].function
        inner = getattr(part.function, "_torchdynamo_orig_callable", None)
        assert (inner is original) == (part.name == "cutout"), "conv and shift have kernels"
        assert part.function is not original
        assert part.parameters == ({"pad": 1} if part.name == "shift" else {})
    assert [part.name for part in parts(plain)] == [part.name for part in parts(maker.strong)]
    assert maker.pixels is not views.pixels


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """A module of kernels, where there is no Triton."""
    module = types.ModuleType(f"{kernels.__name__}.{name}")
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(kernels, name, module, raising=False)


@pytest.mark.parametrize(
    ("augment", "size"), [(shift.bind(pad=4), 20), (crop.bind(size=16), 16)], ids=["shift", "crop"]
)
def test_windows_have_the_precision_of_the_update(augment, size, monkeypatch):
    """As `views.pixels` makes them of an eager update's windows: no pass converts them again."""
    asked: list[torch.dtype] = []

    def cut(x: Tensor, corner: Tensor, height: int, width: int, pad: int, dtype: Any) -> Tensor:
        asked.append(dtype)
        return torch.zeros(*x.shape[:2], height, width, dtype=dtype)

    stand_in(monkeypatch, "windows", windows=cut)
    fast = fast_augmentation(augment, torch.device("cuda"))
    stored = torch.zeros(2, 9, 20, 20, dtype=torch.uint8)
    for region, wanted in (
        (torch.autocast("cpu", torch.bfloat16), torch.bfloat16),
        (contextlib.nullcontext(), torch.float32),
    ):
        with region:
            plain, ours = views.pixels(augment(stored)), fast(stored)
        assert ours.dtype == plain.dtype == wanted and ours.shape == (2, 9, size, size)
    fast(stored.half())
    assert asked == [torch.bfloat16, torch.float32, torch.float16], "pixels stay what they are"


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
def test_strong_views_of_bfloat16_come_from_the_kernel_in_cuda(precision, tmp_path, monkeypatch):
    """Through an agent's views, with kernels that only note what they are given."""
    agent = make_agent(tiny(tmp_path, augment="conv"), 1)
    monkeypatch.setattr(agent, "device", torch.device("cuda"))
    leave_networks(monkeypatch)
    speed.accelerate(agent, "captured")
    stand_in(
        monkeypatch,
        "windows",
        windows=lambda x, corner, height, width, pad, dtype: views.scaled(x, dtype),
        scaled=views.scaled,
        convolved=lambda x, weight: torch.full_like(x, 0.25),
    )

    def launch(kernel: str, blocks: Any, threads: int, memory: int, *given: Any) -> None:
        x, weight, y, *sizes = given
        assert kernel == "convolve" and weight.shape == (2, 3, 3, 3, 3) and sizes[2:] == [16, 16]
        assert x.dtype == y.dtype == torch.bfloat16
        y.fill_(0.75)

    monkeypatch.setattr(random_convolution, "kernels", lambda device: launch)
    stored = torch.randint(0, 256, (2, 9, 16, 16), dtype=torch.uint8)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        found = agent.views(stored)["strong", 0]
    assert found.dtype == precision
    assert found.unique().tolist() == [0.75 if precision == torch.bfloat16 else 0.25]


def test_pictures_are_resized_by_a_kernel_or_it_is_said_that_they_are_not(monkeypatch):
    bank = ImageBank(torch.zeros(2, 3, 40, 40, dtype=torch.uint8))
    drifting = AUGMENTATIONS["overlay_drift"].bind(images=bank, drift=2)
    faults: list[str] = []

    def resize() -> None: ...

    def check(bank: ImageBank) -> None:
        if faults:
            raise RuntimeError(faults[0])

    stand_in(monkeypatch, "pictures", resize=resize, check=check)
    fast = with_kernels(drifting, torch.device("cuda"))
    resized = fast.parameters["images"]
    assert resized.pictures is bank.pictures and resized.resize is resize
    assert fast.parameters["drift"] == 2
    faults.append("no such GPU")
    with pytest.warns(UserWarning, match="no such GPU"):
        plain = with_kernels(drifting, torch.device("cuda"))
    assert plain.parameters["images"] is bank


def test_a_drifting_overlay_is_mixed_in_by_our_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a kernel that computes what its own test compares it with."""
    drifting = AUGMENTATIONS["overlay_drift"]
    called = []

    def mixed_drifting(
        x: Tensor, picture: Tensor, speed: Tensor, margin: int, weight: float
    ) -> Tensor:
        called.append((margin, weight))
        return drifting.function(x, picture=picture, speed=speed, margin=margin, weight=weight)

    stand_in(monkeypatch, "windows", mixed_drifting=mixed_drifting)
    x = torch.rand(3, 9, 16, 16)
    draw = drifting.draw(x, torch.Generator().manual_seed(0), drift=2, weight=0.3)
    fast = fast_augmentation(drifting, torch.device("cuda"))
    assert torch.equal(fast.function(x, **draw), drifting.function(x, **draw))
    assert called == [(6, 0.3)]


def test_it_is_said_where_encoder_frames_has_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="compiled by torch and takes longer: our kernels are"):
        assert not fuse(FrameCNN(filters=16))
    monkeypatch.setattr(trunk.FusedFrames, "obstacle", lambda network: "too little of it")
    with pytest.warns(UserWarning, match="takes longer: this GPU has too little of it"):
        assert not fuse(FrameCNN())

    def missing(self: trunk.FusedFrames, network: FrameCNN) -> None:
        raise nvrtc.BuildError("libnvrtc is not installed")

    monkeypatch.setattr(trunk.FusedFrames, "fits", lambda network: True)
    monkeypatch.setattr(trunk.FusedFrames, "__init__", missing)
    with pytest.warns(UserWarning, match="takes longer: libnvrtc is not installed"):
        assert not fuse(FrameCNN())


@builds
def test_only_pixels_of_bytes_are_taken_unseen(tmp_path: Path) -> None:
    """One augmentation gets the weak view; in a chain, one gets what another made."""
    too_bright = torch.full((2, 9, 24, 24), 255.0)
    for augment, refuses in (("conv", False), ("conv+blur", True), ("conv|blur", True)):
        agent = make_agent(tiny(tmp_path, augment=augment), 1)
        with pytest.raises(UserError, match="got 255 to 255"):
            agent.view_maker.strong(too_bright)
        speed.accelerate(agent, "compiled")
        with pytest.raises(UserError) if refuses else contextlib.nullcontext():
            agent.view_maker.strong(too_bright)
        with pytest.raises(UserError, match="Divide by 255"):
            agent.view_maker.strong(too_bright.byte())


@builds
@pytest.mark.parametrize("name", ["conv", "shift", "blur", "overlay_drift"])
def test_a_fast_augmentation_draws_and_computes_the_same(name: str) -> None:
    x = torch.rand(3, 9, 24, 24)
    plain = AUGMENTATIONS[name]
    fast = fast_augmentation(plain, CPU)
    seeds = [torch.Generator().manual_seed(0) for _ in range(2)]
    torch.testing.assert_close(fast(x, seeds[0]), plain(x, seeds[1]), rtol=0, atol=1e-6)
