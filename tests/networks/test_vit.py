"""The ViT against a slow second derivation, token by token and head by head."""

import math

import pytest
import torch
from torch import Tensor, nn

from svea.networks import ViT

SMALL = {"image_size": 16, "patch": 4, "width": 12, "depth": 2, "heads": 3, "mlp_ratio": 2.0}


def small() -> ViT:
    torch.manual_seed(0)
    network = ViT(**SMALL)  # type: ignore[arg-type]
    with torch.no_grad():  # larger numbers than a fresh network's: mistakes shall show
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.4)
    return network


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Of one token; the reference's small constant is 1e-6."""
    return (x - x.mean()) / (x.var(unbiased=False) + 1e-6).sqrt() * norm.weight + norm.bias


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def tokens_of(network: ViT, image: Tensor) -> list[Tensor]:
    """The class token and one token per patch, row by row, with their positions."""
    weight, bias = network.patches.weight, network.patches.bias
    assert bias is not None
    patch = network.patches.kernel_size[0]
    tokens = [network.class_token[0, 0]]
    for top in range(0, image.shape[1], patch):
        for left in range(0, image.shape[2], patch):
            piece = image[:, top : top + patch, left : left + patch]
            tokens.append((weight * piece).sum((1, 2, 3)) + bias)
    return [token + network.positions[0, place] for place, token in enumerate(tokens)]


def plain(network: ViT, image: Tensor) -> tuple[Tensor, Tensor]:
    """The features of one image, and the attention of every block and head."""
    tokens, maps = tokens_of(network, image), []
    for block in network.blocks:
        width, heads = len(tokens[0]), block.attention.heads
        size = width // heads
        normed = [layer_norm(token, block.norm1) for token in tokens]
        q, k, v = (
            [block.attention.qkv.weight[part * width : (part + 1) * width] @ x for x in normed]
            for part in range(3)
        )
        mixed = [torch.zeros(width) for _ in tokens]
        block_maps = []
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            rows = []
            for place, query in enumerate(q):
                scores = torch.stack([(query[own] * key[own]).sum() for key in k]) / size**0.5
                shares = scores.exp() / scores.exp().sum()
                rows.append(shares)
                mixed[place] = mixed[place].clone()
                mixed[place][own] = sum(
                    share * value[own] for share, value in zip(shares, v, strict=True)
                )
            block_maps.append(torch.stack(rows))
        maps.append(torch.stack(block_maps))
        output = block.attention.output
        tokens = [x + output.weight @ m + output.bias for x, m in zip(tokens, mixed, strict=True)]
        first, last = block.mlp[0], block.mlp[2]
        tokens = [
            x
            + last.weight @ gelu(first.weight @ layer_norm(x, block.norm2) + first.bias)
            + last.bias
            for x in tokens
        ]
    return layer_norm(tokens[0], network.norm), torch.stack(maps)


def test_the_papers_vit_has_exactly_its_parameters() -> None:
    network = ViT()
    assert sum(p.numel() for p in network.parameters()) == 489_600
    sizes = {
        name: sum(p.numel() for p in part.parameters()) for name, part in network.named_children()
    }
    assert sizes == {"patches": 73_856, "blocks": 4 * 99_200, "norm": 256}
    assert network.class_token.numel() == 128 and network.positions.shape == (1, 145, 128)
    assert network.features == 128 and network.input_shape == (9, 96, 96)
    assert network.blocks[0].attention.heads == 8
    assert network.blocks[0].attention.qkv.bias is None
    assert network.blocks[0].mlp[0].out_features == 128
    with torch.no_grad():
        assert network(torch.rand(2, 9, 96, 96)).shape == (2, 128)


@torch.no_grad()
def test_features_and_attention_equal_a_slow_rederivation() -> None:
    network, images = small(), torch.rand(2, 9, 16, 16)
    features, maps = network(images), network.attention(images)
    assert maps.shape == (2, 2, 3, 17, 17)
    for row, image in enumerate(images):
        expected, expected_maps = plain(network, image)
        torch.testing.assert_close(features[row], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(maps[row], expected_maps, rtol=1e-4, atol=1e-6)


def test_initialisation() -> None:
    torch.manual_seed(0)
    network = ViT()
    for name, parameter in network.named_parameters():
        values = parameter.detach()
        if name.startswith("patches."):
            bound = (9 * 8 * 8) ** -0.5  # PyTorch's own
            assert values.abs().max() <= bound and values.std() > 0.4 * bound, name
        elif "norm" in name:
            assert (values == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith("bias"):
            assert not values.any(), name
        else:
            assert float(values.std()) == pytest.approx(0.02, rel=0.2), name
            assert abs(float(values.mean())) < 0.006, name


def test_every_parameter_learns() -> None:
    network = small()
    network(torch.rand(2, 9, 16, 16)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in network.parameters())
