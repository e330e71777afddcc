"""Attention of few tokens with narrow heads, as GPU kernels of our own (Triton).

The ViT has 145 tokens and heads of 16 dimensions. Library kernels are made for long sequences and
wide heads: they pad both, and took more than half of an update. Here one program holds all keys and
values of a head, so the softmax needs no second pass, and the backward pass no atomic additions.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

SMALLEST, DIMENSIONS = 16, (16, 32, 64, 128)  # what a matrix product of tiles can be made of
ROWS, BACKWARD_ROWS = 32, 32  # by trial on an H200, as
FORWARD: dict[str, int] = {"num_warps": 2}
BACKWARD: dict[str, int] = {"num_warps": 2}
LOG2_E = 1.4426950408889634


@triton.jit
def _rows(source, batch, head, token, image, which, at, DIM: tl.constexpr, TOKENS: tl.constexpr):
    """Some tokens' rows of one head, (tokens, DIM); zero beyond the last token."""
    d = tl.arange(0, DIM)
    start = source + image * batch + which * head
    return tl.load(start + at[:, None] * token + d[None, :], mask=(at < TOKENS)[:, None], other=0.0)


@triton.jit
def _two_blocks(
    source, batch, head, token, image, which, a, b, DIM: tl.constexpr, TOKENS: tl.constexpr
):
    """All tokens' rows of one head, in the two blocks of `split`."""
    first = _rows(source, batch, head, token, image, which, a, DIM, TOKENS)
    rest = _rows(source, batch, head, token, image, which, b, DIM, TOKENS)
    return first, rest


@triton.jit
def _forward(
    q, k, v, out, norm, scale, qb, qh, qt, kb, kh, kt, vb, vh, vt,
    HEADS: tl.constexpr, TOKENS: tl.constexpr, DIM: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """All rows of one head of one image; ``scale`` is meant for powers of two, as ``norm`` is."""
    pair = tl.program_id(0)
    image, which = pair // HEADS, pair % HEADS
    d, a, b = tl.arange(0, DIM), tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    k1, k2 = _two_blocks(k, kb, kh, kt, image, which, a, b, DIM, TOKENS)
    v1, v2 = _two_blocks(v, vb, vh, vt, image, which, a, b, DIM, TOKENS)
    for start in range(0, TOKENS, ROWS):
        t = start + tl.arange(0, ROWS)
        rows = _rows(q, qb, qh, qt, image, which, t, DIM, TOKENS)
        s1, s2 = tl.dot(rows, tl.trans(k1)), tl.dot(rows, tl.trans(k2))
        s2 = tl.where((b < TOKENS)[None, :], s2, float("-inf"))
        most = tl.maximum(tl.max(s1, 1), tl.max(s2, 1)) * scale
        p1, p2 = tl.exp2(s1 * scale - most[:, None]), tl.exp2(s2 * scale - most[:, None])
        total = tl.sum(p1, 1) + tl.sum(p2, 1)
        mixed = tl.dot(p1.to(v1.dtype), v1) + tl.dot(p2.to(v2.dtype), v2)
        here = (image * TOKENS + t) * HEADS * DIM + which * DIM
        inside = t < TOKENS
        mixed = (mixed / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + here[:, None] + d[None, :], mixed, mask=inside[:, None])
        tl.store(norm + pair * TOKENS + t, most + tl.log2(total), mask=inside)


@triton.jit
def _backward(
    q, k, v, out, norm, g, dq, dk, dv, scale, plain_scale,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, gb, gh, gt, db, dt,
    HEADS: tl.constexpr, TOKENS: tl.constexpr, DIM: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The same head again, backwards; the probabilities are computed again.

    Scores stand as (keys, queries): so they leave one product in the layout in which the next two
    take them, and only the product for the queries needs them turned. ``db``, ``dt``: between
    images and tokens of all three gradients.
    """
    pair = tl.program_id(0)
    image, which = pair // HEADS, pair % HEADS
    d, a, b = tl.arange(0, DIM), tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    k1, k2 = _two_blocks(k, kb, kh, kt, image, which, a, b, DIM, TOKENS)
    v1, v2 = _two_blocks(v, vb, vh, vt, image, which, a, b, DIM, TOKENS)
    dk1, dk2 = tl.zeros((FIRST, DIM), tl.float32), tl.zeros((REST, DIM), tl.float32)
    dv1, dv2 = tl.zeros((FIRST, DIM), tl.float32), tl.zeros((REST, DIM), tl.float32)
    wide: tl.constexpr = HEADS * DIM
    kind = q.dtype.element_ty
    mine = image * db + which * DIM
    for start in range(0, TOKENS, ROWS):
        t = start + tl.arange(0, ROWS)
        inside = t < TOKENS
        rows = _rows(q, qb, qh, qt, image, which, t, DIM, TOKENS)
        gradient = _rows(g, gb, gh, gt, image, which, t, DIM, TOKENS)
        mixed = _rows(out, TOKENS * wide, DIM, wide, image, which, t, DIM, TOKENS)
        delta = tl.sum(gradient.to(tl.float32) * mixed.to(tl.float32), 1)
        total = tl.load(norm + pair * TOKENS + t, mask=inside, other=float("inf"))
        p1 = tl.exp2(tl.dot(k1, tl.trans(rows)) * scale - total[None, :])
        p2 = tl.exp2(tl.dot(k2, tl.trans(rows)) * scale - total[None, :])
        p2 = tl.where((b < TOKENS)[:, None], p2, 0.0)
        dv1 = tl.dot(p1.to(kind), gradient, dv1)
        dv2 = tl.dot(p2.to(kind), gradient, dv2)
        s1 = (p1 * (tl.dot(v1, tl.trans(gradient)) - delta[None, :])).to(kind)
        s2 = (p2 * (tl.dot(v2, tl.trans(gradient)) - delta[None, :])).to(kind)
        dk1, dk2 = tl.dot(s1, rows, dk1), tl.dot(s2, rows, dk2)
        of_rows = (tl.dot(tl.trans(s1), k1) + tl.dot(tl.trans(s2), k2)) * plain_scale
        there = dq + mine + t[:, None] * dt + d[None, :]
        tl.store(there, of_rows.to(kind), mask=inside[:, None])
    near, far = mine + a[:, None] * dt + d[None, :], mine + b[:, None] * dt + d[None, :]
    rest = (b < TOKENS)[:, None]
    tl.store(dk + near, (dk1 * plain_scale).to(kind))
    tl.store(dv + near, dv1.to(kind))
    tl.store(dk + far, (dk2 * plain_scale).to(kind), mask=rest)
    tl.store(dv + far, dv2.to(kind), mask=rest)


def launch_forward(q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor) -> None:
    """(B, heads, tokens, dim) three times -> (B, tokens, heads, dim) and the softmax's norms."""
    batch, heads, tokens, dim = q.shape
    _forward[(batch * heads,)](
        q, k, v, out, norm, dim**-0.5 * LOG2_E, *_strides(q), *_strides(k), *_strides(v),
        heads, tokens, dim, *split(tokens), ROWS, **FORWARD,
    )  # fmt: skip


def launch_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor, *gradients: Tensor
) -> None:
    """The gradients of q, k and v; these three, as g, are (B, tokens, heads, dim)."""
    batch, heads, tokens, dim = q.shape
    _backward[(batch * heads,)](
        q, k, v, out, norm, g, *gradients, dim**-0.5 * LOG2_E, dim**-0.5,
        *_strides(q), *_strides(k), *_strides(v), *_strides(g.transpose(1, 2)),
        *gradients[0].stride()[:2], heads, tokens, dim, *split(tokens), BACKWARD_ROWS, **BACKWARD,
    )  # fmt: skip


def of_packed(qkv: Tensor, tokens: int, heads: int) -> tuple[Tensor, Tensor]:
    """(B * tokens, 3 * width) -> attention's output (B * tokens, width) and the softmax's norms."""
    q, k, v = (part.transpose(1, 2) for part in _unpacked(qkv, tokens, heads))
    out = qkv.new_empty(len(qkv), qkv.shape[1] // 3)
    norm = torch.empty(q.shape[:3], dtype=torch.float32, device=qkv.device)
    launch_forward(q, k, v, out, norm)
    return out, norm


def of_packed_back(
    g: Tensor, qkv: Tensor, out: Tensor, norm: Tensor, tokens: int, heads: int
) -> Tensor:
    """The gradient of `of_packed`'s input, (B * tokens, 3 * width)."""
    back = torch.empty_like(qkv)
    q, k, v = (part.transpose(1, 2) for part in _unpacked(qkv, tokens, heads))
    of_out = g.view(-1, tokens, heads, q.shape[3])
    launch_backward(of_out, q, k, v, out, norm, *_unpacked(back, tokens, heads))
    return back


def _unpacked(qkv: Tensor, tokens: int, heads: int) -> tuple[Tensor, ...]:
    """Queries, keys and values, (B, tokens, heads, dim) each."""
    return qkv.view(-1, tokens, 3, heads, qkv.shape[1] // 3 // heads).unbind(2)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Like `scaled_dot_product_attention` on (B, heads, tokens, dim), in low precision.

    Full precision, fewer than 16 tokens and heads of odd sizes are left to the library.
    """
    tokens, dim = q.shape[2:]
    if q.dtype == torch.float32 or tokens < SMALLEST or dim not in DIMENSIONS:
        return F.scaled_dot_product_attention(q, k, v)
    return attend(q, k, v)[0].transpose(1, 2)


@torch.library.custom_op("svea::attend", mutates_args=())
def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """(B, heads, tokens, dim) three times -> (B, tokens, heads, dim) and the softmax's norms."""
    batch, heads, tokens, dim = q.shape
    out = q.new_empty((batch, tokens, heads, dim))
    norm = torch.empty((batch, heads, tokens), dtype=torch.float32, device=q.device)
    launch_forward(q, k, v, out, norm)
    return out, norm


@attend.register_fake
def _(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    batch, heads, tokens, dim = q.shape
    return q.new_empty((batch, tokens, heads, dim)), q.new_empty(
        (batch, heads, tokens), dtype=torch.float32
    )


@torch.library.custom_op("svea::attend_backward", mutates_args=())
def attend_backward(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, (B, tokens, heads, dim) each."""
    dq, dk, dv = (torch.empty_like(out) for _ in range(3))
    launch_backward(g, q, k, v, out, norm, dq, dk, dv)
    return dq, dk, dv


@attend_backward.register_fake
def _(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(out), torch.empty_like(out), torch.empty_like(out)


def _remember(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _gradient(ctx: Any, g: Tensor, _: Tensor | None) -> tuple[Tensor, ...]:
    if g.stride(-1) != 1:
        g = g.contiguous()
    gradients = attend_backward(g, *ctx.saved_tensors)
    return tuple(each.transpose(1, 2) for each in gradients)


attend.register_autograd(_gradient, setup_context=_remember)


def _strides(x: Tensor) -> tuple[int, int, int]:
    """Between images, heads and tokens; a head's numbers lie behind one another."""
    assert x.stride(3) == 1
    return x.stride(0), x.stride(1), x.stride(2)


def split(tokens: int) -> tuple[int, int]:
    """Tokens as a large block and a small one, each a power of two: 145 = 128 + 17 -> 128, 32."""
    first = triton.next_power_of_2(tokens + 1) // 2
    return first, max(SMALLEST, triton.next_power_of_2(max(1, tokens - first)))
