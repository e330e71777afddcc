"""The frame-wise encoder against its layers one by one."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from svea.networks import FrameCNN


def small(**changes: int) -> FrameCNN:
    sizes = {"image_size": 24, "layers": 4, "filters": 6, "frame_layers": 2} | changes
    return FrameCNN(**sizes).double().requires_grad_(False)


def images(batch: int = 2, side: int = 24) -> Tensor:
    return torch.rand(batch, 9, side, side, dtype=torch.float64)


def test_simgrls_encoder() -> None:
    trunk = FrameCNN()
    assert sum(p.numel() for p in trunk.parameters()) == 83_680
    assert trunk.features == 32 * 21 * 21 == 14_112
    assert trunk(torch.rand(1, 9, 84, 84)).shape == (1, 14_112)
    shapes = [tuple(p.shape) for p in trunk.parameters() if p.ndim == 4]
    single, joint = [(16, 3), (16, 16), (16, 16)], [(32, 48), *[(32, 32)] * 7]
    assert shapes == [(*shape, 3, 3) for shape in single + joint]


def test_it_is_the_same_layers_one_frame_at_a_time() -> None:
    """A loop over samples and frames, written out."""
    trunk, x = FrameCNN(image_size=48, filters=8).double(), images(side=48)
    weights = dict(trunk.named_parameters())
    single = [("single.layers.0", 2), ("single.layers.2", 1), ("single.layers.4", 1)]
    for sample, features in zip(x, trunk(x), strict=True):
        maps = []
        for frame in sample.split(3):
            y = frame[None]
            for name, stride in single:
                y = F.conv2d(y, weights[f"{name}.weight"], weights[f"{name}.bias"], stride).relu()
            maps.append(y)
        y = torch.cat(maps, dim=1)
        for number in range(8):
            name = f"joint.layers.{2 * number}"
            y = F.conv2d(y if number == 0 else y.relu(), weights[f"{name}.weight"],
                         weights[f"{name}.bias"])  # fmt: skip
        torch.testing.assert_close(features, y.flatten())
        assert (y < 0).any(), "no ReLU after the last layer"


@pytest.mark.parametrize(("strided", "frame_layers", "side"), [(1, 2, 5), (2, 1, 1), (2, 2, 1)])
def test_strides_run_over_both_parts(strided: int, frame_layers: int, side: int) -> None:
    """24 pixels: 11, 9, 7, 5 with one stride; 11, 5, 3, 1 with two."""
    trunk = small(strided_layers=strided, frame_layers=frame_layers)
    assert trunk.maps == (6, side, side) and trunk(images()).shape == (2, trunk.features)
