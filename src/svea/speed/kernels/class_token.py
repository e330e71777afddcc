"""Attention of the class token alone, as it is in the ViT's last block (Triton).

There is one query to an image, so keys and values of all tokens need not be made: a head's scores
are products of the tokens with one vector, W_k^T q, and its output is W_v times the tokens' mean,
weighted by the softmax. Tokens are read once and nothing as large as they are is written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from svea.speed.kernels.tokens import before_norm, matrix, normalised, row_of

MOST_HEADS = 16  # rows of the smallest tile


@triton.jit
def tokens_of(x, image, at, TOKENS: tl.constexpr, WIDE: tl.constexpr):
    """Some tokens of an image; zero beyond the last."""
    where = (image * TOKENS + at)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    return tl.load(x + where, mask=(at < TOKENS)[:, None], other=0.0)


@triton.jit
def weights_of(
    x, image, first, rest, scale, shift, weight,
    TOKENS: tl.constexpr, WIDE: tl.constexpr, DIM: tl.constexpr, EPSILON: tl.constexpr,
):  # fmt: skip
    """Attention's weights (tokens, heads), and everything that led to them."""
    kind = x.dtype.element_ty
    head, n = tl.arange(0, 16), tl.arange(0, WIDE)
    own = (n // DIM)[None, :] == head[:, None]  # a head's own numbers
    factor, term = row_of(scale, WIDE), row_of(shift, WIDE)
    n1, _ = normalised(tokens_of(x, image, first, TOKENS, WIDE).to(tl.float32), WIDE, EPSILON)
    n2, _ = normalised(tokens_of(x, image, rest, TOKENS, WIDE).to(tl.float32), WIDE, EPSILON)
    h1, h2 = (n1 * factor + term).to(kind), (n2 * factor + term).to(kind)
    # the class token as 16 equal rows, of which each head keeps its own numbers
    class_token = tl.load(x + image * (TOKENS * WIDE) + n[None, :] + 0 * head[:, None])
    normal, _ = normalised(class_token.to(tl.float32), WIDE, EPSILON)
    h0 = (normal * factor + term).to(kind)
    query = tl.where(own, tl.dot(h0, tl.trans(matrix(weight, WIDE))), 0.0).to(kind)
    look = tl.dot(query, matrix(weight + WIDE * WIDE, WIDE)).to(kind)
    s1, s2 = tl.dot(h1, tl.trans(look)) * DIM**-0.5, tl.dot(h2, tl.trans(look)) * DIM**-0.5
    s2 = tl.where((rest < TOKENS)[:, None], s2, float("-inf"))
    most = tl.maximum(tl.max(s1, 0), tl.max(s2, 0))[None, :]
    p1, p2 = tl.exp(s1 - most), tl.exp(s2 - most)
    total = (tl.sum(p1, 0) + tl.sum(p2, 0))[None, :]
    return own, h1, h2, query, look, p1 / total, p2 / total


@triton.jit
def mix_first(
    x, scale, shift, weight, mixed, EPSILON: tl.constexpr, TOKENS: tl.constexpr,
    WIDE: tl.constexpr, DIM: tl.constexpr, FIRST: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """Attention's output for an image's class token, of a block's input ``x``."""
    image = tl.program_id(0)
    kind = x.dtype.element_ty
    first, rest = tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    own, h1, h2, _, _, p1, p2 = weights_of(
        x, image, first, rest, scale, shift, weight, TOKENS, WIDE, DIM, EPSILON
    )
    mean = tl.dot(tl.trans(p1.to(kind)), h1) + tl.dot(tl.trans(p2.to(kind)), h2)
    found = tl.dot(mean.to(kind), tl.trans(matrix(weight + 2 * WIDE * WIDE, WIDE)))
    found = tl.sum(tl.where(own, found, 0.0), 0)
    tl.store(mixed + image * WIDE + tl.arange(0, WIDE), found.to(kind))


@triton.jit
def mix_first_back(
    x, scale, shift, weight, g, residual, of_x, vectors, means, looks,
    EPSILON: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr, DIM: tl.constexpr,
    FIRST: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    """The gradient of ``x`` from that of `mix_first` and the class token's own (``residual``).

    For the weights' gradients: ``means`` and ``looks``, a row for each head, and ``vectors``, four
    of an image: the query, its gradient, and what scale and shift get.
    """
    image = tl.program_id(0)
    kind = x.dtype.element_ty
    first, rest = tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    own, h1, h2, query, look, p1, p2 = weights_of(
        x, image, first, rest, scale, shift, weight, TOKENS, WIDE, DIM, EPSILON
    )
    head, n = tl.arange(0, 16), tl.arange(0, WIDE)
    heads: tl.constexpr = WIDE // DIM
    of_output = tl.load(g + image * WIDE + n)[None, :]
    of_own = tl.where(own, of_output, 0.0).to(kind)
    of_mean = tl.dot(of_own, matrix(weight + 2 * WIDE * WIDE, WIDE)).to(kind)
    mean = tl.dot(tl.trans(p1.to(kind)), h1) + tl.dot(tl.trans(p2.to(kind)), h2)
    of_p1, of_p2 = tl.dot(h1, tl.trans(of_mean)), tl.dot(h2, tl.trans(of_mean))
    inner = (tl.sum(p1 * of_p1, 0) + tl.sum(p2 * of_p2, 0))[None, :]
    s1 = (p1 * (of_p1 - inner) * DIM**-0.5).to(kind)
    s2 = (p2 * (of_p2 - inner) * DIM**-0.5).to(kind)
    of_look = (tl.dot(tl.trans(s1), h1) + tl.dot(tl.trans(s2), h2)).to(kind)
    of_query = tl.where(own, tl.dot(of_look, tl.trans(matrix(weight + WIDE * WIDE, WIDE))), 0.0)
    of_first = tl.sum(tl.dot(of_query.to(kind), matrix(weight, WIDE)), 0)[None, :]
    d1 = tl.dot(p1.to(kind), of_mean) + tl.dot(s1, look)
    d1 += tl.where((first == 0)[:, None], of_first, 0.0)
    d2 = tl.dot(p2.to(kind), of_mean) + tl.dot(s2, look)
    rows = means + (image * heads + head)[:, None] * WIDE + n[None, :]
    tl.store(rows, mean.to(kind), mask=(head < heads)[:, None])
    rows = looks + (image * heads + head)[:, None] * WIDE + n[None, :]
    tl.store(rows, of_look, mask=(head < heads)[:, None])
    mine = vectors + image * (4 * WIDE) + n
    tl.store(mine, tl.sum(query.to(tl.float32), 0))
    tl.store(mine + WIDE, tl.sum(of_query, 0))
    # read and normalised again: there are not registers enough to keep them
    n1, f1 = normalised(tokens_of(x, image, first, TOKENS, WIDE).to(tl.float32), WIDE, EPSILON)
    n2, f2 = normalised(tokens_of(x, image, rest, TOKENS, WIDE).to(tl.float32), WIDE, EPSILON)
    tl.store(mine + 2 * WIDE, tl.sum(d1 * n1, 0) + tl.sum(d2 * n2, 0))
    tl.store(mine + 3 * WIDE, tl.sum(d1, 0) + tl.sum(d2, 0))
    factor, alone = row_of(scale, WIDE), tl.load(residual + image * WIDE + n).to(tl.float32)
    x1 = before_norm(d1 * factor, n1, f1, WIDE)
    x1 += tl.where((first == 0)[:, None], alone[None, :], 0.0)
    x2 = before_norm(d2 * factor, n2, f2, WIDE)
    where = of_x + (image * TOKENS + first)[:, None] * WIDE + n[None, :]
    tl.store(where, x1.to(kind), mask=(first < TOKENS)[:, None])
    where = of_x + (image * TOKENS + rest)[:, None] * WIDE + n[None, :]
    tl.store(where, x2.to(kind), mask=(rest < TOKENS)[:, None])
