"""The paper's ViT on a GPU: forward and backward pass by our own kernels (Triton).

Two launches to a block forward, attention and all the rest (tokens.py), five backward.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import triton
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from svea.networks.vit import Block, ViT
from svea.speed.kernels import attention, class_token, tokens
from svea.speed.kernels.heads import product

ROWS, WARPS = 64, 4  # tokens to a program
SHARES, SHARE_ROWS, SHARE_WARPS = 44, 64, 8  # that a weight's gradient is added up from
PATCH_SHARES, PATCH_ROWS = 88, 64
TILE = 16  # columns of a finished gradient
CLASS_WARPS = 8
TOLERANCE = 0.1  # of a gradient's norm; rounding makes a tenth of that
MOST = 2**31  # numbers that 32 bits count


class FusedViT:
    """The forward pass of a ViT: set as its ``forward``."""

    def __init__(self, network: ViT, dtype: torch.dtype = torch.bfloat16) -> None:
        """Take a network that `fits`, and the kind of numbers that tokens are kept in."""
        self.network, self.dtype = network, dtype
        self.channels, self.side, _ = network.input_shape
        self.patch, self.wide = network.patches.kernel_size[0], network.features
        self.tokens, self.epsilon = network.positions.shape[1], network.norm.eps
        self.blocks = blocks_of(network)
        self.heads = self.blocks[0].attention.heads
        patches = network.patches
        assert patches.bias is not None
        self.matrices: list[Tensor] = [patches.weight]
        self.parameters: list[Tensor] = [
            patches.weight, patches.bias, network.class_token, network.positions,
        ]  # fmt: skip
        for block in self.blocks:
            one, two, output = block.mlp[0], block.mlp[2], block.attention.output
            self.matrices += [block.attention.qkv.weight, output.weight, one.weight, two.weight]
            self.parameters += [
                two.weight, one.weight, output.weight, block.attention.qkv.weight,
                two.bias, one.bias, output.bias, block.norm2.weight, block.norm2.bias,
                block.norm1.weight, block.norm1.bias,
            ]  # fmt: skip

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """Whether the kernels are made for this network and tried on such a GPU."""
        if not (isinstance(network, ViT) and has_right_shape(network)):
            return False
        device = network.positions.device
        return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)

    def __call__(self, images: Tensor | tuple[Tensor, ...]) -> Tensor:
        """(B, C, H, W) in [0, 1], or several of them, one after the other -> (B, width)."""
        parts = images if isinstance(images, tuple) else (images,)
        asked = any(part.requires_grad for part in parts) and torch.is_grad_enabled()
        many = sum(map(len, parts)) * self.tokens * 3 * self.wide >= MOST
        if asked or many or not torch.is_autocast_enabled(parts[0].device.type):
            return ViT.forward(self.network, torch.cat(parts))
        given = [part.to(self.dtype).contiguous() for part in parts]
        keep = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters)
        return self.network.norm(_Body.apply(self, keep, given, *self.parameters))

    def check(self, images: int = 4) -> None:
        """Compare features and gradients with plain PyTorch's in float32, on fixed noise."""
        device = self.network.positions.device
        generator = torch.Generator(device).manual_seed(0)

        def noise(*shape: int) -> Tensor:
            return torch.randn(shape, device=device, generator=generator)

        exact = copy.deepcopy(self.network).requires_grad_(True)
        with torch.no_grad():
            for name, parameter in exact.named_parameters():
                offset = 1 if "norm" in name and name.endswith("weight") else 0
                parameter.copy_(0.1 * noise(*parameter.shape) + offset)
        given, slope = noise(images, *exact.input_shape).to(self.dtype), noise(images, self.wide)
        with torch.enable_grad():
            with torch.autocast(device.type, dtype=torch.bfloat16):
                found = [FusedViT(exact, self.dtype)(given)]
            with torch.autocast(device.type, enabled=False):
                wanted = [ViT.forward(exact, given.float())]
            for each in (found, wanted):
                each += torch.autograd.grad(each[0], [*exact.parameters()], slope)
        worst = max(relative(*pair) for pair in zip(found, wanted, strict=True))
        if not worst <= TOLERANCE:  # nor if it is not a number
            raise ArithmeticError(f"our kernels are off by {worst:.1%} on this GPU")

    def packed(self) -> list[Tensor]:
        """All matrices in the kind of numbers that products take, by one launch."""
        sizes = [weight.numel() for weight in self.matrices]
        flat = torch.empty(sum(sizes), dtype=self.dtype, device=self.matrices[0].device)
        copies = [c.view_as(w) for c, w in zip(flat.split(sizes), self.matrices, strict=True)]
        torch._foreach_copy_(copies, [weight.detach() for weight in self.matrices])
        return copies

    def block_sizes(self) -> list[int]:
        """Numbers of a block's gradients: two, one, output, qkv; biases; scales and shifts."""
        area = self.wide**2
        return [area, area, area, 3 * area, *7 * [self.wide]]

    def forward(self, images: list[Tensor], keep: bool, kept: dict[str, Any]) -> Tensor:
        """The class tokens after the last block; what a backward pass needs is kept."""
        packed, wide = self.packed(), self.wide
        images_in_all = sum(map(len, images))
        rows = images_in_all * self.tokens

        def room(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=self.dtype, device=images[0].device)

        x, qkv = room(rows, wide), room(rows, 3 * wide)
        self.embed(images, packed, x, qkv)
        saved = []
        for number in range(len(self.blocks) - 1):
            mixed, norm = self.attend(qkv)
            following = number + 2 < len(self.blocks)
            out, middle = room(rows, wide), room(rows, wide) if keep else x
            after = room(rows, 3 * wide) if following else qkv
            self.rest_of_block(number, packed, mixed, x, wide, middle, out, keep, following, after)
            if keep:
                saved.append((x, qkv, mixed, norm, middle))
            x, qkv = out, after
        mixed, out = room(images_in_all, wide), room(images_in_all, wide)
        middle = room(images_in_all, wide) if keep else out
        last = self.blocks[-1]
        class_token.mix_first[(images_in_all,)](
            x, last.norm1.weight, last.norm1.bias, packed[-4], mixed,
            self.epsilon, self.tokens, wide, wide // self.heads, *attention.split(self.tokens),
            num_warps=CLASS_WARPS,
        )  # fmt: skip
        number = len(self.blocks) - 1
        self.rest_of_block(
            number, packed, mixed, x, self.tokens * wide, middle, out, keep, False, mixed
        )
        if keep:
            kept |= {
                "images": images, "packed": packed, "blocks": saved, "x": x, "mixed": mixed,
                "middle": middle,
            }  # fmt: skip
        return out

    def embed(self, images: list[Tensor], packed: list[Tensor], x: Tensor, qkv: Tensor) -> None:
        """The first block's input, and its queries, keys and values."""
        network, before = self.network, 0
        for part in images:
            rows = len(part) * self.tokens
            tokens.embed[(triton.cdiv(rows, ROWS),)](
                part, packed[0], network.patches.bias, network.class_token, network.positions, x,
                self.blocks[0].norm1.weight, self.blocks[0].norm1.bias, packed[1], qkv,
                before, rows, self.epsilon, self.tokens, self.channels, self.side, self.patch,
                self.wide, ROWS, num_warps=WARPS,
            )  # fmt: skip
            before += rows

    def attend(self, qkv: Tensor) -> tuple[Tensor, Tensor]:
        """Attention's output of all tokens, and the softmax's norms."""
        return attention.of_packed(qkv, self.tokens, self.heads)

    def rest_of_block(
        self, number: int, packed: list[Tensor], mixed: Tensor, x: Tensor, stride: int,
        middle: Tensor, out: Tensor, keep: bool, following: bool, qkv: Tensor,
    ) -> None:  # fmt: skip
        """A block behind its attention, and the next one's queries, keys and values."""
        block = self.blocks[number]
        after = self.blocks[number + 1] if following else block
        at = 1 + 4 * number
        one, two = block.mlp[0], block.mlp[2]
        tokens.block[(triton.cdiv(len(mixed), ROWS),)](
            mixed, x, packed[at + 1], block.attention.output.bias, block.norm2.weight,
            block.norm2.bias, packed[at + 2], one.bias, packed[at + 3], two.bias, middle, out,
            after.norm1.weight, after.norm1.bias, packed[at + 4 if following else at], qkv,
            len(mixed), stride, self.epsilon, keep, following, self.wide, ROWS, num_warps=WARPS,
        )  # fmt: skip

    def backward(self, g: Tensor, kept: dict[str, Any]) -> list[Tensor]:
        """The gradients of all parameters, in their order."""
        found = []
        g, of_last = self.last_back(g.to(self.dtype).contiguous(), kept)
        for number, saved in reversed([*enumerate(kept["blocks"])]):
            g, of_block = self.block_back(number, g, kept["packed"], saved)
            found.append(of_block)
        result = self.embed_back(g, kept["images"])
        for of_block in (*reversed(found), of_last):
            result += of_block
        return result

    def rest_back(
        self, number: int, g: Tensor, packed: list[Tensor], middle: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The hidden layer, and gradients of: its input, the residual, attention's output."""
        block, at = self.blocks[number], 1 + 4 * number
        hidden, of_u, of_middle, of_mixed = (torch.empty_like(g) for _ in range(4))
        tokens.block_back[(triton.cdiv(len(g), ROWS),)](
            g, middle, packed[at + 1], block.norm2.weight, block.norm2.bias, packed[at + 2],
            block.mlp[0].bias, packed[at + 3], hidden, of_u, of_middle, of_mixed, len(g),
            self.epsilon, self.wide, ROWS, num_warps=WARPS,
        )  # fmt: skip
        return hidden, of_u, of_middle, of_mixed

    def block_back(
        self, number: int, g: Tensor, packed: list[Tensor], saved: tuple[Tensor, ...]
    ) -> tuple[Tensor, list[Tensor]]:
        """The gradients of a block's input and parameters from that of its output."""
        x, qkv, mixed, norm, middle = saved
        block, wide = self.blocks[number], self.wide
        hidden, of_u, of_middle, of_mixed = self.rest_back(number, g, packed, middle)
        of_qkv = attention.of_packed_back(of_mixed, qkv, mixed, norm, self.tokens, self.heads)
        of_x = torch.empty_like(x)
        tokens.qkv_back[(triton.cdiv(len(x), ROWS),)](
            of_qkv, x, of_middle, block.norm1.weight, packed[1 + 4 * number], of_x, len(x),
            self.epsilon, wide, ROWS, num_warps=WARPS,
        )  # fmt: skip
        factors = (g, hidden, of_u, middle, of_middle, mixed, of_qkv, x)
        return of_x, self.weight_gradients(block, factors)

    def weight_gradients(self, block: Block, factors: tuple[Tensor, ...]) -> list[Tensor]:
        """A block's, from the factors of `tokens.outers`; without the last two, of the first."""
        wide, rows, layers = self.wide, len(factors[0]), 4 if len(factors) == 8 else 3
        shares = min(SHARES, triton.cdiv(rows, SHARE_ROWS))
        tiles = triton.cdiv(triton.cdiv(rows, shares), SHARE_ROWS)
        partial, sums, out = (
            torch.empty(size, device=factors[0].device)
            for size in (shares * 6 * wide * wide, shares * 6 * wide, sum(self.block_sizes()))
        )
        tokens.outers[(shares, 6 if layers == 4 else 3)](
            *factors, *(factors[:2] if layers == 3 else ()), partial, sums, rows,
            self.epsilon, wide, tiles, SHARE_ROWS, num_warps=SHARE_WARPS,
        )  # fmt: skip
        tokens.finish[(layers, wide // TILE)](
            partial, sums, block.norm2.weight, block.norm2.bias, block.mlp[0].weight,
            block.norm1.weight, block.norm1.bias, block.attention.qkv.weight, out, shares,
            wide, TILE,
        )  # fmt: skip
        return [*out.split(self.block_sizes())]

    def last_back(self, g: Tensor, kept: dict[str, Any]) -> tuple[Tensor, list[Tensor]]:
        """The gradients of the last block's input and parameters from that of class tokens."""
        number, packed, x, mixed = len(self.blocks) - 1, kept["packed"], kept["x"], kept["mixed"]
        block, wide, heads, images = self.blocks[-1], self.wide, self.heads, len(g)
        hidden, of_u, of_middle, of_mixed = self.rest_back(number, g, packed, kept["middle"])
        of_x, means = torch.empty_like(x), g.new_empty(images, heads, wide)
        looks, vectors = torch.empty_like(means), torch.empty((images, 4, wide), device=g.device)
        class_token.mix_first_back[(images,)](
            x, block.norm1.weight, block.norm1.bias, packed[-4], of_mixed, of_middle, of_x,
            vectors, means, looks, self.epsilon, self.tokens, wide, wide // heads,
            *attention.split(self.tokens), num_warps=CLASS_WARPS,
        )  # fmt: skip
        found = self.weight_gradients(block, (g, hidden, of_u, kept["middle"], of_middle, mixed))
        query, of_query = (vectors[:, n].to(self.dtype) for n in range(2))
        scale, shift = vectors[:, 2:].sum(0)
        first = x.view(images, self.tokens, wide)[:, 0]
        norm = block.norm1
        with torch.autocast(g.device.type, enabled=False):
            h = nn.functional.layer_norm(first.float(), (wide,), norm.weight, norm.bias, norm.eps)
        found[3] = torch.cat(
            [
                product(of_query.t(), h.to(self.dtype)),
                by_head(query, looks),
                by_head(of_mixed, means),
            ]
        )
        found[9], found[10] = scale, shift
        return of_x, found

    def embed_back(self, g: Tensor, images: list[Tensor]) -> list[Tensor]:
        """The gradients of patches, class token and positions from that of the first input."""
        wide, area = self.wide, self.patch**2
        smallest = min(map(len, images)) * self.tokens
        shares, before = min(PATCH_SHARES, triton.cdiv(smallest, PATCH_ROWS)), 0
        partial = g.new_empty(
            (len(images) * shares, wide, self.channels * area), dtype=torch.float32
        )
        for part, mine in zip(images, partial.split(shares), strict=True):
            rows = len(part) * self.tokens
            tiles = triton.cdiv(triton.cdiv(rows, shares), PATCH_ROWS)
            tokens.patch_shares[(shares, self.channels // 3)](
                g, part, mine, before, rows, self.tokens, self.channels, self.side,
                self.patch, wide, tiles, PATCH_ROWS, num_warps=SHARE_WARPS,
            )  # fmt: skip
            before += rows
        positions = g.view(-1, self.tokens * wide).sum(0, dtype=torch.float32)
        positions = positions.view(self.tokens, wide)
        return [partial.sum(0), positions[1:].sum(0), positions[0].clone(), positions]


class _Body(torch.autograd.Function):
    """All blocks."""

    @staticmethod
    def forward(
        ctx: Any, vit: FusedViT, keep: bool, images: list[Tensor], *parameters: Tensor
    ) -> Tensor:
        ctx.vit, ctx.kept = vit, {}
        return vit.forward(images, keep, ctx.kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:  # type: ignore[override]
        found = ctx.vit.backward(g, ctx.kept)
        shaped = [f.view_as(p) for f, p in zip(found, ctx.vit.parameters, strict=True)]
        return None, None, None, *shaped


def relative(found: Tensor, wanted: Tensor) -> float:
    """How far something is from what was wanted, in units of that."""
    with torch.no_grad():
        return float((found - wanted).norm() / wanted.norm())


def by_head(narrow: Tensor, wide: Tensor) -> Tensor:
    """(B, width) and (B, heads, width): sums of products within each head, (width, width)."""
    heads = wide.shape[1]
    return product(narrow.unflatten(1, (heads, -1)).permute(1, 2, 0), wide.transpose(0, 1)).flatten(
        0, 1
    )


def blocks_of(network: ViT) -> list[Any]:
    """Its blocks."""
    return [*network.blocks]


def has_right_shape(network: ViT) -> bool:
    """Sizes that the kernels can be compiled for, in float32 as weights are kept."""
    wide, blocks = network.features, blocks_of(network)
    patch, heads = network.patches.kernel_size[0], blocks[0].attention.heads
    tokens = network.positions.shape[1]
    square = all(block.mlp[0].out_features == wide for block in blocks)
    right = wide in (32, 64, 128) and wide // heads in attention.DIMENSIONS and patch in (4, 8)
    few = attention.SMALLEST <= tokens <= 256 and network.input_shape[0] % 3 == 0
    plain = all(p.dtype == torch.float32 and p.is_contiguous() for p in network.parameters())
    return square and right and few and plain and heads <= class_token.MOST_HEADS
