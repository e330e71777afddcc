"""The vision transformer of the paper: another trunk, in place of the CNN."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from svea.config.options import check_patches
from svea.networks.encoders import Trunk


class ViT(Trunk):
    """Pre-norm transformer on space-time patches: a patch holds all frames of the stack.

    ``ViT()`` is the paper's: 96 pixels, 144 patches of 8x8, 4 blocks of 128 dimensions with 8 heads
    and a hidden layer of the same width, 489,600 parameters, and the class token as 128 features.
    """

    def __init__(
        self,
        channels: int = 9,
        image_size: int = 96,
        patch: int = 8,
        width: int = 128,
        depth: int = 4,
        heads: int = 8,
        mlp_ratio: float = 1.0,
    ) -> None:
        """Build the trunk; `NetworkOptions` says what the sizes are."""
        super().__init__()
        check_patches(image_size, patch, width, heads)
        self.input_shape = (channels, image_size, image_size)
        self.features = width
        tokens = (image_size // patch) ** 2 + 1
        # PyTorch's default initialisation, as in the reference; everything else is normal(0.02).
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, tokens, width))
        self.blocks = nn.ModuleList(Block(width, heads, mlp_ratio) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        for parameter in (self.class_token, self.positions):
            nn.init.trunc_normal_(parameter, std=0.02)

    # A seam: `kernels` may assign a faster one over it.
    def forward(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, width)."""
        tokens = self._embed(images)
        for block in self.blocks[:-1]:
            tokens = block(tokens)
        # Only the class token leaves the last block, so only it is computed there.
        return self.norm(self.blocks[-1](tokens, first_only=True)[:, 0])

    @torch.no_grad()
    def attention(self, images: Tensor) -> Tensor:
        """The attention weights, (B, depth, heads, tokens, tokens)."""
        tokens, maps = self._embed(images), []
        for block in self.blocks:
            assert isinstance(block, Block)
            q, k, _ = block.attention.heads_of(block.norm1(tokens))
            maps.append((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1))
            tokens = block(tokens)
        return torch.stack(maps, dim=1)

    def _embed(self, images: Tensor) -> Tensor:
        """Class token and patches with their positions, (B, tokens, width).

        A convolution whose stride is its size is one matrix product of cut-out patches; as such it
        needs no padding of the 9 channels, which took 6 % of an update on a GPU.
        """
        size = self.patches.kernel_size[0]
        cut = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # (B, 9, rows, 8, ., 8)
        cut = cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)  # (B, patches, 9 * 8 * 8)
        patches = F.linear(cut, self.patches.weight.flatten(1), self.patches.bias)
        first = self.class_token.to(patches.dtype).expand(len(patches), -1, -1)
        return torch.cat([first, patches], dim=1) + self.positions


class Block(nn.Module):
    """Attention, then a two-layer network, each after a LayerNorm, with residual connections."""

    def __init__(self, width: int, heads: int, mlp_ratio: float) -> None:
        super().__init__()
        hidden = int(width * mlp_ratio)
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.apply(initialise)

    def forward(self, x: Tensor, first_only: bool = False) -> Tensor:
        """(B, tokens, width) -> the same, or the first token alone."""
        x = (x[:, :1] if first_only else x) + self.attention(self.norm1(x), first_only)
        return x + self.mlp(self.norm2(x))


class Attention(nn.Module):
    """Multi-head self-attention without a bias in queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width)
        # A seam: `speed` may assign a faster one over it.
        self.mix: Callable[[Tensor, Tensor, Tensor], Tensor] = F.scaled_dot_product_attention

    def forward(self, x: Tensor, first_only: bool = False) -> Tensor:
        """(B, tokens, width) -> attention's output for each token, or for the first alone."""
        q, k, v = self.heads_of(x, first_only)
        mixed = mix_of_one(q, k, v) if first_only else self.mix(q, k, v)  # (B, heads, ., .)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def heads_of(self, x: Tensor, first_only: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (B, heads, tokens, width/heads) each."""
        if first_only:
            width = x.shape[-1]
            queries = F.linear(x[:, :1], self.qkv.weight[:width])
            others = F.linear(x, self.qkv.weight[width:])
            parts = (queries, *others.chunk(2, dim=-1))
        else:
            parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        return q, k, v


def mix_of_one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of a single query, written out: kernels for many queries would idle."""
    scores = (q.float() * k.float()).sum(-1, keepdim=True) * q.shape[-1] ** -0.5
    return (scores.softmax(2) * v.float()).sum(2, keepdim=True).to(v.dtype)


def initialise(module: nn.Module) -> None:
    """Linear layers: normal(0.02) and zero bias."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
