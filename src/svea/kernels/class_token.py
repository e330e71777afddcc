"""Attention of the class token alone, as it is in the ViT's last block (Triton).

There is one query to an image, so keys and values of all tokens need not be made: a head's scores
are products of the tokens with one vector, W_k^T q, and its output is W_v times the tokens' mean,
weighted by the softmax. Tokens are read once and nothing as large as they are is written.

What needs weights is computed for a head and many images at once; what needs tokens for an image
and all heads, which are the rows of tiles of 16, the smallest there are.
"""

from __future__ import annotations

import triton
import triton.language as tl

from svea.kernels.tokens import before_norm, normalised, row_of

MOST_HEADS = 16


@triton.jit
def tokens_of(x, image, at, TOKENS: tl.constexpr, WIDE: tl.constexpr):
    """Some tokens of an image; zero beyond the last."""
    where = (image * TOKENS + at)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    return tl.load(x + where, mask=(at < TOKENS)[:, None], other=0.0)


@triton.jit
def class_tokens(
    x, at, inside, scale, shift, TOKENS: tl.constexpr, WIDE: tl.constexpr, EPSILON: tl.constexpr
):
    """The class tokens of some images: normalised, their deviations, and scaled."""
    where = at[:, None] * (TOKENS * WIDE) + tl.arange(0, WIDE)[None, :]
    given = tl.load(x + where, mask=inside[:, None], other=0.0).to(tl.float32)
    normal, factor = normalised(given, WIDE, EPSILON)
    h = normal * row_of(scale, WIDE) + row_of(shift, WIDE)
    return normal, factor, h.to(x.dtype.element_ty)


@triton.jit
def head_rows(weight, head, kind: tl.constexpr, WIDE: tl.constexpr, DIM: tl.constexpr):
    """A head's rows of a matrix, (DIM, WIDE)."""
    d, n = tl.arange(0, DIM), tl.arange(0, WIDE)
    return tl.load(weight + (head * DIM + d)[:, None] * WIDE + n[None, :]).to(kind)


@triton.jit(do_not_specialize=["images"])
def look(
    x, scale, shift, weight, looks, queries, images, KEEP: tl.constexpr, EPSILON: tl.constexpr,
    TOKENS: tl.constexpr, WIDE: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What a head of class tokens looks for in a token, W_k^T q; KEEP: and the queries q."""
    at, head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    kind = x.dtype.element_ty
    inside, n, d = at < images, tl.arange(0, WIDE), tl.arange(0, DIM)
    _, _, h = class_tokens(x, at, inside, scale, shift, TOKENS, WIDE, EPSILON)
    query = tl.dot(h, tl.trans(head_rows(weight, head, kind, WIDE, DIM))).to(kind)
    found = tl.dot(query, head_rows(weight + WIDE * WIDE, head, kind, WIDE, DIM))
    where = looks + (at * (WIDE // DIM) + head)[:, None] * WIDE + n[None, :]
    tl.store(where, found.to(kind), mask=inside[:, None])
    if KEEP:
        where = queries + at[:, None] * WIDE + head * DIM + d[None, :]
        tl.store(where, query, mask=inside[:, None])


@triton.jit
def mix(
    x, scale, shift, looks, means, norms, KEEP: tl.constexpr, EPSILON: tl.constexpr,
    TOKENS: tl.constexpr, WIDE: tl.constexpr, DIM: tl.constexpr, FIRST: tl.constexpr,
    REST: tl.constexpr,
):  # fmt: skip
    """The mean of an image's tokens for each head; KEEP: and the softmax's norms."""
    image, head, n = tl.program_id(0), tl.arange(0, 16), tl.arange(0, WIDE)
    kind = x.dtype.element_ty
    first, rest = tl.arange(0, FIRST), FIRST + tl.arange(0, REST)
    factor, term = row_of(scale, WIDE), row_of(shift, WIDE)
    rows, real = (image * (WIDE // DIM) + head)[:, None] * WIDE + n[None, :], head < WIDE // DIM
    look = tl.trans(tl.load(looks + rows, mask=real[:, None], other=0.0))
    near = tokens_of(x, image, first, TOKENS, WIDE).to(tl.float32)
    far = tokens_of(x, image, rest, TOKENS, WIDE).to(tl.float32)
    h1 = (normalised(near, WIDE, EPSILON)[0] * factor + term).to(kind)
    h2 = (normalised(far, WIDE, EPSILON)[0] * factor + term).to(kind)
    s1, s2 = tl.dot(h1, look) * DIM**-0.5, tl.dot(h2, look) * DIM**-0.5
    s2 = tl.where((rest < TOKENS)[:, None], s2, float("-inf"))
    most = tl.maximum(tl.max(s1, 0), tl.max(s2, 0))
    p1, p2 = tl.exp(s1 - most[None, :]), tl.exp(s2 - most[None, :])
    total = tl.sum(p1, 0) + tl.sum(p2, 0)
    p1, p2 = (p1 / total[None, :]).to(kind), (p2 / total[None, :]).to(kind)
    mean = tl.dot(tl.trans(p1), h1) + tl.dot(tl.trans(p2), h2)
    tl.store(means + rows, mean.to(kind), mask=real[:, None])
    if KEEP:
        tl.store(norms + image * 16 + head, most + tl.log(total))


@triton.jit(do_not_specialize=["images"])
def value(means, weight, mixed, images, WIDE: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr):
    """A head's output from the tokens' means, W_v m."""
    at, head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    kind = means.dtype.element_ty
    inside, n, d = (at < images)[:, None], tl.arange(0, WIDE), tl.arange(0, DIM)
    where = means + (at * (WIDE // DIM) + head)[:, None] * WIDE + n[None, :]
    mean = tl.load(where, mask=inside, other=0.0)
    found = tl.dot(mean, tl.trans(head_rows(weight + 2 * WIDE * WIDE, head, kind, WIDE, DIM)))
    where = mixed + at[:, None] * WIDE + head * DIM + d[None, :]
    tl.store(where, found.to(kind), mask=inside)


@triton.jit(do_not_specialize=["images"])
def value_back(
    g, weight, of_means, images, WIDE: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr
):
    """The gradient of `value`'s means."""
    at, head = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1)
    kind = g.dtype.element_ty
    inside, n, d = (at < images)[:, None], tl.arange(0, WIDE), tl.arange(0, DIM)
    given = tl.load(g + at[:, None] * WIDE + head * DIM + d[None, :], mask=inside, other=0.0)
    found = tl.dot(given, head_rows(weight + 2 * WIDE * WIDE, head, kind, WIDE, DIM))
    where = of_means + (at * (WIDE // DIM) + head)[:, None] * WIDE + n[None, :]
    tl.store(where, found.to(kind), mask=inside)


@triton.jit
def mix_back(
    x, scale, shift, looks, means, norms, of_means, residual, of_x, of_looks, vectors,
    EPSILON: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr, DIM: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """The gradients of an image's tokens and of its looks, from that of its means.

    ``residual``: the gradient of the class token itself. ``vectors``: what scale and shift get.
    """
    image, head, n = tl.program_id(0), tl.arange(0, 16), tl.arange(0, WIDE)
    kind = x.dtype.element_ty
    factor, term = row_of(scale, WIDE), row_of(shift, WIDE)
    rows, real = (image * (WIDE // DIM) + head)[:, None] * WIDE + n[None, :], head < WIDE // DIM
    look = tl.load(looks + rows, mask=real[:, None], other=0.0)
    of_mean = tl.load(of_means + rows, mask=real[:, None], other=0.0)
    mean = tl.load(means + rows, mask=real[:, None], other=0.0).to(tl.float32)
    norm, inner = tl.load(norms + image * 16 + head), tl.sum(of_mean.to(tl.float32) * mean, 1)
    alone = tl.load(residual + image * WIDE + n)[None, :].to(tl.float32)
    of_look = tl.zeros((16, WIDE), tl.float32)
    of_scale, of_shift = tl.zeros((TILE, WIDE), tl.float32), tl.zeros((TILE, WIDE), tl.float32)
    for start in range(0, TOKENS, TILE):
        at = start + tl.arange(0, TILE)
        given = tokens_of(x, image, at, TOKENS, WIDE).to(tl.float32)
        normal, deviation = normalised(given, WIDE, EPSILON)
        h = (normal * factor + term).to(kind)
        p = tl.exp(tl.dot(h, tl.trans(look)) * DIM**-0.5 - norm[None, :])
        p = tl.where((at < TOKENS)[:, None], p, 0.0)
        s = (p * (tl.dot(h, tl.trans(of_mean)) - inner[None, :]) * DIM**-0.5).to(kind)
        of_look = tl.dot(tl.trans(s), h, of_look)
        of_h = tl.dot(p.to(kind), of_mean) + tl.dot(s, look)
        of_scale += of_h * normal
        of_shift += of_h
        dx = before_norm(of_h * factor, normal, deviation, WIDE)
        dx += tl.where((at == 0)[:, None], alone, 0.0)
        where = of_x + (image * TOKENS + at)[:, None] * WIDE + n[None, :]
        tl.store(where, dx.to(kind), mask=(at < TOKENS)[:, None])
    tl.store(of_looks + rows, of_look.to(kind), mask=real[:, None])
    tl.store(vectors + image * (2 * WIDE) + n, tl.sum(of_scale, 0))
    tl.store(vectors + image * (2 * WIDE) + WIDE + n, tl.sum(of_shift, 0))


@triton.jit(do_not_specialize=["images"])
def look_back(
    x, scale, shift, weight, of_looks, of_queries, tokens, of_x, vectors, images,
    EPSILON: tl.constexpr, TOKENS: tl.constexpr, WIDE: tl.constexpr, DIM: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Adds to class tokens' gradients what comes through their queries, whose gradients it writes.

    ``tokens``: the class tokens as queries are made of them, for the gradient of W_q.
    """
    at, n, d = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE), tl.arange(0, DIM)
    kind = x.dtype.element_ty
    inside = (at < images)[:, None]
    of_h = tl.zeros((ROWS, WIDE), tl.float32)
    for head in range(WIDE // DIM):
        rows = of_looks + (at * (WIDE // DIM) + head)[:, None] * WIDE + n[None, :]
        of_look = tl.load(rows, mask=inside, other=0.0)
        to_k = head_rows(weight + WIDE * WIDE, head, kind, WIDE, DIM)
        of_query = tl.dot(of_look, tl.trans(to_k)).to(kind)
        where = of_queries + at[:, None] * WIDE + head * DIM + d[None, :]
        tl.store(where, of_query, mask=inside)
        of_h = tl.dot(of_query, head_rows(weight, head, kind, WIDE, DIM), of_h)
    normal, deviation, h = class_tokens(x, at, at < images, scale, shift, TOKENS, WIDE, EPSILON)
    tl.store(tokens + at[:, None] * WIDE + n[None, :], h, mask=inside)
    where = of_x + at[:, None] * (TOKENS * WIDE) + n[None, :]
    dx = before_norm(of_h * row_of(scale, WIDE), normal, deviation, WIDE)
    dx += tl.load(where, mask=inside, other=0.0).to(tl.float32)
    tl.store(where, dx.to(kind), mask=inside)
    where = vectors + at[:, None] * (2 * WIDE) + n[None, :]
    tl.store(where, tl.load(where, mask=inside, other=0.0) + of_h * normal, mask=inside)
    where += WIDE
    tl.store(where, tl.load(where, mask=inside, other=0.0) + of_h, mask=inside)
