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

from svea.kernels import attention, class_token, tokens
from svea.kernels.heads import product
from svea.networks.vit import Block, ViT

EMBED_ROWS, EMBED_WARPS = 64, 4  # tokens to a program
# Where a program takes one tile after the other: tokens to a tile, warps, stages of loads. Two
# programs of 4 warps share a multiprocessor, unless weights fill its memory.
NEXT_TILES, LAST_TILES, BACK_TILES, QKV_TILES = (128, 8, 1), (64, 4, 1), (64, 4, 1), (64, 4, 1)
SHARES, SHARE_ROWS, SHARE_WARPS, SHARE_STAGES = 44, 64, 4, 3  # of a weight's gradient
PATCH_SHARES, PATCH_ROWS, PATCH_WARPS = 88, 64, 8
TILE = 16  # columns of a finished gradient
CLASS_ROWS, CLASS_WARPS, CLASS_TILE, CLASS_BACK_WARPS = 32, 8, 32, 4  # images, and tokens
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
        self.programs = programs_on(network.positions.device)
        patches = network.patches
        assert patches.bias is not None
        self.parameters: list[Tensor] = [
            patches.weight, patches.bias, network.class_token, network.positions,
        ]  # fmt: skip
        for block in self.blocks:
            one, two, output = block.mlp[0], block.mlp[2], block.attention.output
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

    def block_sizes(self) -> list[int]:
        """Numbers of a block's gradients: two, one, output, qkv; biases; scales and shifts."""
        area = self.wide**2
        return [area, area, area, 3 * area, *7 * [self.wide]]

    def forward(self, images: list[Tensor], keep: bool, kept: dict[str, Any]) -> Tensor:
        """The class tokens after the last block; what a backward pass needs is kept."""
        wide, count = self.wide, sum(map(len, images))
        rows, last = count * self.tokens, len(self.blocks) - 1

        def room(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=self.dtype, device=images[0].device)

        x, qkv, saved = room(rows, wide), room(rows, 3 * wide), []
        self.embed(images, x, qkv)
        for number in range(last):
            mixed, norm = attention.of_packed(qkv, self.tokens, self.heads)
            out, middle = room(rows, wide), room(rows, wide) if keep else None
            after = room(rows, 3 * wide) if number + 1 < last else None
            self.rest_of_block(number, mixed, x, wide, middle, out, after)
            if keep:
                saved.append((x, qkv, mixed, norm, middle))
            x, qkv = out, qkv if after is None else after
        mixed, kept_last = self.mix_first(x, keep)
        out, middle = room(count, wide), room(count, wide) if keep else None
        self.rest_of_block(last, mixed, x, self.tokens * wide, middle, out, None)
        if keep:
            kept |= {"images": images, "blocks": saved, "last": (x, mixed, middle, *kept_last)}
        return out

    def mix_first(self, x: Tensor, keep: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Attention's output for class tokens, and what the way back needs."""
        block, wide, heads = self.blocks[-1], self.wide, self.heads
        count, dim = len(x) // self.tokens, wide // heads
        looks, means = x.new_empty(count, heads, wide), x.new_empty(count, heads, wide)
        queries, mixed = x.new_empty(count, wide), x.new_empty(count, wide)
        norms = torch.empty((count, class_token.MOST_HEADS), device=x.device)
        norm, weight = (block.norm1.weight, block.norm1.bias), block.attention.qkv.weight
        grid = (triton.cdiv(count, CLASS_ROWS), heads)
        class_token.look[grid](
            x, *norm, weight, looks, queries, count, keep, self.epsilon, self.tokens, wide, dim,
            CLASS_ROWS,
        )  # fmt: skip
        class_token.mix[(count,)](
            x, *norm, looks, means, norms, keep, self.epsilon, self.tokens, wide, dim,
            *attention.split(self.tokens), num_warps=CLASS_WARPS,
        )  # fmt: skip
        class_token.value[grid](means, weight, mixed, count, wide, dim, CLASS_ROWS)
        return mixed, (looks, queries, means, norms)

    def embed(self, images: list[Tensor], x: Tensor, qkv: Tensor) -> None:
        """The first block's input, and its queries, keys and values."""
        network, block, before = self.network, self.blocks[0], 0
        weight, of_qkv = (
            each.detach().to(self.dtype)  # every program reads them
            for each in (network.patches.weight, block.attention.qkv.weight)
        )
        for part in images:
            rows = len(part) * self.tokens
            tokens.embed[(triton.cdiv(rows, EMBED_ROWS),)](
                part, weight, network.patches.bias, network.class_token, network.positions, x,
                block.norm1.weight, block.norm1.bias, of_qkv, qkv, before, rows, self.epsilon,
                self.tokens, self.channels, self.side, self.patch, self.wide, EMBED_ROWS,
                num_warps=EMBED_WARPS,
            )  # fmt: skip
            before += rows

    def rest_of_block(
        self, number: int, mixed: Tensor, x: Tensor, stride: int, middle: Tensor | None,
        out: Tensor, qkv: Tensor | None,
    ) -> None:  # fmt: skip
        """A block behind its attention, and the next one's queries, keys and values if wanted."""
        block = self.blocks[number]
        after = block if qkv is None else self.blocks[number + 1]
        one, two, output = block.mlp[0], block.mlp[2], block.attention.output
        rows, warps, stages = LAST_TILES if qkv is None else NEXT_TILES
        tokens.block[self.tiles(mixed, rows, warps)](
            mixed, x, output.weight, output.bias, block.norm2.weight, block.norm2.bias,
            one.weight, one.bias, two.weight, two.bias, out if middle is None else middle, out,
            after.norm1.weight, after.norm1.bias, after.attention.qkv.weight,
            out if qkv is None else qkv, len(mixed), stride, self.epsilon,
            middle is not None, qkv is not None, self.wide, rows, num_warps=warps,
            num_stages=stages,
        )  # fmt: skip

    def tiles(self, given: Tensor, rows: int, warps: int) -> tuple[int]:
        """Programs for tiles of rows: no more than the GPU runs at once, for each reads weights."""
        return (min(triton.cdiv(len(given), rows), self.programs * 8 // warps),)

    def backward(self, g: Tensor, kept: dict[str, Any]) -> list[Tensor]:
        """The gradients of all parameters, in their order."""
        found = []
        g, of_last = self.last_back(g.to(self.dtype).contiguous(), *kept["last"])
        for number, saved in reversed([*enumerate(kept["blocks"])]):
            g, of_block = self.block_back(number, g, *saved)
            found.append(of_block)
        result = self.embed_back(g, kept["images"])
        for of_block in (*reversed(found), of_last):
            result += of_block
        return result

    def rest_back(self, number: int, g: Tensor, middle: Tensor) -> list[Tensor]:
        """The hidden layer, its gradient, normalised rows; gradients of residual and attention."""
        block = self.blocks[number]
        one, two, output = block.mlp[0], block.mlp[2], block.attention.output
        found = [torch.empty_like(g) for _ in range(5)]
        rows, warps, stages = BACK_TILES
        tokens.block_back[self.tiles(g, rows, warps)](
            g, middle, output.weight, block.norm2.weight, block.norm2.bias, one.weight, one.bias,
            two.weight, *found, len(g), self.epsilon, self.wide, rows, num_warps=warps,
            num_stages=stages,
        )  # fmt: skip
        return found

    def block_back(
        self, number: int, g: Tensor, x: Tensor, qkv: Tensor, mixed: Tensor, norm: Tensor,
        middle: Tensor,
    ) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
        """The gradients of a block's input and parameters from that of its output."""
        block = self.blocks[number]
        hidden, of_u, normals, of_middle, of_mixed = self.rest_back(number, g, middle)
        of_qkv = attention.of_packed_back(of_mixed, qkv, mixed, norm, self.tokens, self.heads)
        first_normals, of_x = torch.empty_like(x), torch.empty_like(x)
        rows, warps, stages = QKV_TILES
        tokens.qkv_back[self.tiles(x, rows, warps)](
            of_qkv, x, of_middle, block.norm1.weight, block.attention.qkv.weight, first_normals,
            of_x, len(x), self.epsilon, self.wide, rows, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        factors = (g, hidden, of_u, normals, of_middle, mixed, of_qkv, first_normals)
        return of_x, self.weight_gradients(block, *factors)

    def weight_gradients(self, block: Block, *factors: Tensor) -> list[Tensor]:
        """A block's, from the factors of `tokens.outers`; without the last two, of the first."""
        wide, rows, whole = self.wide, len(factors[0]), len(factors) == 8
        shares = min(SHARES, triton.cdiv(rows, SHARE_ROWS))
        each = triton.cdiv(triton.cdiv(rows, shares), SHARE_ROWS) * SHARE_ROWS
        partial = torch.empty((shares, 6 * wide * (wide + 1)), device=factors[0].device)
        out = partial.new_empty(sum(self.block_sizes()))
        given = factors if whole else (*factors, *factors[:2])
        tokens.outers[(shares, 6 if whole else 3)](
            *given, partial, rows, each, wide, SHARE_ROWS, num_warps=SHARE_WARPS,
            num_stages=SHARE_STAGES,
        )  # fmt: skip
        tokens.finish[(4 if whole else 3, wide // TILE)](
            partial.sum(0), block.norm2.weight, block.norm2.bias, block.mlp[0].weight,
            block.norm1.weight, block.norm1.bias, block.attention.qkv.weight, out, wide, TILE,
        )  # fmt: skip
        return [*out.split(self.block_sizes())]

    def last_back(
        self, g: Tensor, x: Tensor, mixed: Tensor, middle: Tensor, *kept: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The gradients of the last block's input and parameters from that of class tokens."""
        block = self.blocks[-1]
        hidden, of_u, normals, of_middle, of_mixed = self.rest_back(len(self.blocks) - 1, g, middle)
        found = self.weight_gradients(block, g, hidden, of_u, normals, of_middle, mixed)
        of_x, found[3], found[9], found[10] = self.mix_first_back(of_mixed, of_middle, x, *kept)
        return of_x, found

    def mix_first_back(
        self, g: Tensor, residual: Tensor, x: Tensor, looks: Tensor, queries: Tensor,
        means: Tensor, norms: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """The gradients of x, of the weights of queries, keys and values, of scale and shift."""
        block, wide, count = self.blocks[-1], self.wide, len(g)
        dim, norm = wide // self.heads, (block.norm1.weight, block.norm1.bias)
        weight, of_x = block.attention.qkv.weight, torch.empty_like(x)
        of_means, of_looks, of_queries = (torch.empty_like(t) for t in (means, looks, queries))
        vectors, class_tokens = norms.new_empty(count, 2, wide), torch.empty_like(queries)
        blocks = triton.cdiv(count, CLASS_ROWS)
        class_token.value_back[(blocks, self.heads)](
            g, weight, of_means, count, wide, dim, CLASS_ROWS
        )
        class_token.mix_back[(count,)](
            x, *norm, looks, means, norms, of_means, residual, of_x, of_looks, vectors,
            self.epsilon, self.tokens, wide, dim, CLASS_TILE, num_warps=CLASS_BACK_WARPS,
        )  # fmt: skip
        class_token.look_back[(blocks,)](
            x, *norm, weight, of_looks, of_queries, class_tokens, of_x, vectors, count,
            self.epsilon, self.tokens, wide, dim, CLASS_ROWS,
        )  # fmt: skip
        of_q, of_k = product(of_queries.t(), class_tokens), by_head(queries, of_looks)
        of_scale, of_shift = vectors.sum(0)
        return of_x, torch.cat([of_q, of_k, by_head(g, means)]), of_scale, of_shift

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
            each = triton.cdiv(triton.cdiv(rows, shares), PATCH_ROWS) * PATCH_ROWS
            tokens.patch_shares[(shares, self.channels // 3)](
                g, part, mine, before, rows, each, self.tokens, self.channels, self.side,
                self.patch, wide, PATCH_ROWS, num_warps=PATCH_WARPS,
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


def programs_on(device: torch.device) -> int:
    """As many as a GPU has multiprocessors; two in Triton's interpreter."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


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
