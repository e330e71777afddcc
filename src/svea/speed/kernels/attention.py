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
ROWS, WARPS, BACKWARD_ROWS, BACKWARD_WARPS = 32, 2, 32, 2  # by trial on an H200


@triton.jit
def _rows(source, batch, head, token, image, which, at, DIM: tl.constexpr, TOKENS: tl.constexpr):
    """Some tokens' rows of one head, (tokens, DIM); zero beyond the last token."""
    d = tl.arange(0, DIM)
    start = source + image * batch + which * head
    return tl.load(start + at[:, None] * token + d[None, :], mask=(at < TOKENS)[:, None], other=0.0)


@triton.jit
def _forward(
    q, k, v, out, norm, scale, qb, qh, qt, kb, kh, kt, vb, vh, vt,
    HEADS: tl.constexpr, TOKENS: tl.constexpr, DIM: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """All rows of one head of one image."""
    pair = tl.program_id(0)
    image, which = pair // HEADS, pair % HEADS
    d, a, b = tl.arange(0, DIM), tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    k1, k2 = (
        _rows(k, kb, kh, kt, image, which, a, DIM, TOKENS),
        _rows(k, kb, kh, kt, image, which, b, DIM, TOKENS),
    )
    v1, v2 = (
        _rows(v, vb, vh, vt, image, which, a, DIM, TOKENS),
        _rows(v, vb, vh, vt, image, which, b, DIM, TOKENS),
    )
    for start in range(0, TOKENS, ROWS):
        t = start + tl.arange(0, ROWS)
        rows = _rows(q, qb, qh, qt, image, which, t, DIM, TOKENS)
        s1 = tl.dot(rows, tl.trans(k1)) * scale
        s2 = tl.where((b < TOKENS)[None, :], tl.dot(rows, tl.trans(k2)) * scale, float("-inf"))
        most = tl.maximum(tl.max(s1, 1), tl.max(s2, 1))
        p1, p2 = tl.exp(s1 - most[:, None]), tl.exp(s2 - most[:, None])
        total = tl.sum(p1, 1) + tl.sum(p2, 1)
        mixed = tl.dot(p1.to(v1.dtype), v1) + tl.dot(p2.to(v2.dtype), v2)
        here = (image * TOKENS + t) * HEADS * DIM + which * DIM
        inside = t < TOKENS
        mixed = (mixed / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + here[:, None] + d[None, :], mixed, mask=inside[:, None])
        tl.store(norm + pair * TOKENS + t, most + tl.log(total), mask=inside)


@triton.jit
def _backward(
    q, k, v, out, norm, g, dq, dk, dv, scale,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, gb, gh, gt,
    HEADS: tl.constexpr, TOKENS: tl.constexpr, DIM: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The same head again, backwards; the probabilities are computed again."""
    pair = tl.program_id(0)
    image, which = pair // HEADS, pair % HEADS
    d, a, b = tl.arange(0, DIM), tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    k1, k2 = (
        _rows(k, kb, kh, kt, image, which, a, DIM, TOKENS),
        _rows(k, kb, kh, kt, image, which, b, DIM, TOKENS),
    )
    v1, v2 = (
        _rows(v, vb, vh, vt, image, which, a, DIM, TOKENS),
        _rows(v, vb, vh, vt, image, which, b, DIM, TOKENS),
    )
    dk1, dk2 = tl.zeros((FIRST, DIM), tl.float32), tl.zeros((REST, DIM), tl.float32)
    dv1, dv2 = tl.zeros((FIRST, DIM), tl.float32), tl.zeros((REST, DIM), tl.float32)
    mine = image * TOKENS * HEADS * DIM + which * DIM  # where this head begins in out, dq, dk, dv
    wide: tl.constexpr = HEADS * DIM
    for start in range(0, TOKENS, ROWS):
        t = start + tl.arange(0, ROWS)
        inside = t < TOKENS
        rows = _rows(q, qb, qh, qt, image, which, t, DIM, TOKENS)
        gradient = _rows(g, gb, gh, gt, image, which, t, DIM, TOKENS)
        here = mine + t[:, None] * wide + d[None, :]
        mixed = tl.load(out + here, mask=inside[:, None], other=0.0)
        delta = tl.sum(gradient.to(tl.float32) * mixed.to(tl.float32), 1)
        total = tl.load(norm + pair * TOKENS + t, mask=inside, other=float("inf"))
        p1 = tl.exp(tl.dot(rows, tl.trans(k1)) * scale - total[:, None])
        p2 = tl.exp(tl.dot(rows, tl.trans(k2)) * scale - total[:, None])
        p2 = tl.where((b < TOKENS)[None, :], p2, 0.0)
        dv1 += tl.dot(tl.trans(p1.to(rows.dtype)), gradient)
        dv2 += tl.dot(tl.trans(p2.to(rows.dtype)), gradient)
        s1 = p1 * (tl.dot(gradient, tl.trans(v1)) - delta[:, None]) * scale
        s2 = p2 * (tl.dot(gradient, tl.trans(v2)) - delta[:, None]) * scale
        s1, s2 = s1.to(rows.dtype), s2.to(rows.dtype)
        tl.store(
            dq + here,
            (tl.dot(s1, k1) + tl.dot(s2, k2)).to(dq.dtype.element_ty),
            mask=inside[:, None],
        )
        dk1 += tl.dot(tl.trans(s1), rows)
        dk2 += tl.dot(tl.trans(s2), rows)
    near, far = mine + a[:, None] * wide + d[None, :], mine + b[:, None] * wide + d[None, :]
    rest = (b < TOKENS)[:, None]
    tl.store(dk + near, dk1.to(dk.dtype.element_ty))
    tl.store(dv + near, dv1.to(dv.dtype.element_ty))
    tl.store(dk + far, dk2.to(dk.dtype.element_ty), mask=rest)
    tl.store(dv + far, dv2.to(dv.dtype.element_ty), mask=rest)


@triton.jit
def forward_packed(
    qkv, out, norm, scale, HEADS: tl.constexpr, TOKENS: tl.constexpr, DIM: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """All rows of one head of one image; ``scale`` in units of log2(e), as ``norm`` is."""
    pair = tl.program_id(0)
    image, which = pair // HEADS, pair % HEADS
    wide: tl.constexpr = HEADS * DIM
    d, a, b = tl.arange(0, DIM), tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    q, step = qkv + which * DIM, TOKENS * 3 * wide
    k1 = _rows(q + wide, step, 0, 3 * wide, image, 0, a, DIM, TOKENS)
    k2 = _rows(q + wide, step, 0, 3 * wide, image, 0, b, DIM, TOKENS)
    v1 = _rows(q + 2 * wide, step, 0, 3 * wide, image, 0, a, DIM, TOKENS)
    v2 = _rows(q + 2 * wide, step, 0, 3 * wide, image, 0, b, DIM, TOKENS)
    for start in range(0, TOKENS, ROWS):
        t = start + tl.arange(0, ROWS)
        rows = _rows(q, step, 0, 3 * wide, image, 0, t, DIM, TOKENS)
        s1, s2 = tl.dot(rows, tl.trans(k1)), tl.dot(rows, tl.trans(k2))
        s2 = tl.where((b < TOKENS)[None, :], s2, float("-inf"))
        most = tl.maximum(tl.max(s1, 1), tl.max(s2, 1)) * scale
        p1, p2 = tl.exp2(s1 * scale - most[:, None]), tl.exp2(s2 * scale - most[:, None])
        total = tl.sum(p1, 1) + tl.sum(p2, 1)
        mixed = tl.dot(p1.to(v1.dtype), v1) + tl.dot(p2.to(v2.dtype), v2)
        here = (image * TOKENS + t) * wide + which * DIM
        inside = t < TOKENS
        mixed = (mixed / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + here[:, None] + d[None, :], mixed, mask=inside[:, None])
        tl.store(norm + pair * TOKENS + t, most + tl.log2(total), mask=inside)


@triton.jit
def backward_packed(
    qkv, out, norm, g, back, scale, dot_scale,
    HEADS: tl.constexpr, TOKENS: tl.constexpr, DIM: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The same head again, backwards; the probabilities are computed again.

    Scores stand as (keys, queries): so they leave one product in the layout in which the next two
    take them, and only the product for the queries needs them turned.
    """
    pair = tl.program_id(0)
    image, which = pair // HEADS, pair % HEADS
    wide: tl.constexpr = HEADS * DIM
    d, a, b = tl.arange(0, DIM), tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    q, step = qkv + which * DIM, TOKENS * 3 * wide
    k1 = _rows(q + wide, step, 0, 3 * wide, image, 0, a, DIM, TOKENS)
    k2 = _rows(q + wide, step, 0, 3 * wide, image, 0, b, DIM, TOKENS)
    v1 = _rows(q + 2 * wide, step, 0, 3 * wide, image, 0, a, DIM, TOKENS)
    v2 = _rows(q + 2 * wide, step, 0, 3 * wide, image, 0, b, DIM, TOKENS)
    dk1, dk2 = tl.zeros((FIRST, DIM), tl.float32), tl.zeros((REST, DIM), tl.float32)
    dv1, dv2 = tl.zeros((FIRST, DIM), tl.float32), tl.zeros((REST, DIM), tl.float32)
    back += image * step + which * DIM
    kind = qkv.dtype.element_ty
    for start in range(0, TOKENS, ROWS):
        t = start + tl.arange(0, ROWS)
        inside = t < TOKENS
        rows = _rows(q, step, 0, 3 * wide, image, 0, t, DIM, TOKENS)
        gradient = _rows(g + which * DIM, TOKENS * wide, 0, wide, image, 0, t, DIM, TOKENS)
        mixed = _rows(out + which * DIM, TOKENS * wide, 0, wide, image, 0, t, DIM, TOKENS)
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
        dq = (tl.dot(tl.trans(s1), k1) + tl.dot(tl.trans(s2), k2)) * dot_scale
        there = back + t[:, None] * (3 * wide) + d[None, :]
        tl.store(there, dq.to(kind), mask=inside[:, None])
    near = back + wide + a[:, None] * (3 * wide) + d[None, :]
    far = back + wide + b[:, None] * (3 * wide) + d[None, :]
    rest = (b < TOKENS)[:, None]
    tl.store(near, (dk1 * dot_scale).to(kind))
    tl.store(near + wide, dv1.to(kind))
    tl.store(far, (dk2 * dot_scale).to(kind), mask=rest)
    tl.store(far + wide, dv2.to(kind), mask=rest)


LOG2_E = 1.4426950408889634


def of_packed(qkv: Tensor, tokens: int, heads: int) -> tuple[Tensor, Tensor]:
    """(B * tokens, 3 * width) -> attention's output (B * tokens, width) and the softmax's norms."""
    wide = qkv.shape[1] // 3
    batch, dim = len(qkv) // tokens, wide // heads
    out = qkv.new_empty(len(qkv), wide)
    norm = torch.empty((batch, heads, tokens), dtype=torch.float32, device=qkv.device)
    forward_packed[(batch * heads,)](
        qkv, out, norm, dim**-0.5 * LOG2_E, heads, tokens, dim, *split(tokens), ROWS,
        num_warps=WARPS,
    )  # fmt: skip
    return out, norm


def of_packed_back(
    g: Tensor, qkv: Tensor, out: Tensor, norm: Tensor, tokens: int, heads: int
) -> Tensor:
    """The gradient of `of_packed`'s input, (B * tokens, 3 * width)."""
    back, dim = torch.empty_like(qkv), out.shape[1] // heads
    backward_packed[(len(qkv) // tokens * heads,)](
        qkv, out, norm, g, back, dim**-0.5 * LOG2_E, dim**-0.5, heads, tokens, dim,
        *split(tokens), BACKWARD_ROWS, num_warps=BACKWARD_WARPS,
    )  # fmt: skip
    return back


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
    _forward[(batch * heads,)](
        q, k, v, out, norm, dim**-0.5, *_strides(q), *_strides(k), *_strides(v),
        heads, tokens, dim, *split(tokens), ROWS, num_warps=WARPS,
    )  # fmt: skip
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
    batch, heads, tokens, dim = q.shape
    dq, dk, dv = (torch.empty_like(out) for _ in range(3))
    _backward[(batch * heads,)](
        q, k, v, out, norm, g, dq, dk, dv, dim**-0.5,
        *_strides(q), *_strides(k), *_strides(v), *_strides(g.transpose(1, 2)),
        heads, tokens, dim, *split(tokens), BACKWARD_ROWS, num_warps=BACKWARD_WARPS,
    )  # fmt: skip
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
