"""The ViT's kernels besides attention, as GPU kernels of our own (Triton).

A token has 128 numbers, so a row of any product is a whole token, and everything between two
attentions is computed for a tile of tokens without going through memory: projection, residual,
LayerNorm, both hidden layers, residual, LayerNorm, and the next block's queries, keys and values.
Tokens lie in memory in 16 bits; what is computed with them is float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def normalised(x, WIDE: tl.constexpr, EPSILON: tl.constexpr):
    """Rows with mean 0 and deviation 1, and what they were multiplied by."""
    x = x - (tl.sum(x, 1) / WIDE)[:, None]
    factor = 1 / tl.sqrt(tl.sum(x * x, 1) / WIDE + EPSILON)
    return x * factor[:, None], factor


@triton.jit
def before_norm(g, normal, factor, WIDE: tl.constexpr):
    """The gradient of rows from that of `normalised` rows."""
    along = tl.sum(g * normal, 1) / WIDE
    return factor[:, None] * (g - (tl.sum(g, 1) / WIDE)[:, None] - normal * along[:, None])


@triton.jit
def matrix(weight, WIDE: tl.constexpr):
    """A square matrix, (out, in)."""
    n = tl.arange(0, WIDE)
    return tl.load(weight + n[:, None] * WIDE + n[None, :])


@triton.jit
def row_of(vector, WIDE: tl.constexpr):
    """A bias, a scale or a shift."""
    return tl.load(vector + tl.arange(0, WIDE))[None, :]


@triton.jit
def bell(u):
    """The standard normal distribution's integral, which GELU multiplies with."""
    return 0.5 * (1 + tl.erf(u * 0.7071067811865476))


@triton.jit
def store_qkv(x, scale, shift, weight, qkv, at, inside, WIDE: tl.constexpr, EPSILON: tl.constexpr):
    """Queries, keys and values of a tile of tokens."""
    normal, _ = normalised(x, WIDE, EPSILON)
    kind = qkv.dtype.element_ty
    h = (normal * row_of(scale, WIDE) + row_of(shift, WIDE)).to(kind)
    n = tl.arange(0, WIDE)
    for part in tl.static_range(3):
        found = tl.dot(h, tl.trans(matrix(weight + part * WIDE * WIDE, WIDE)))
        where = qkv + at[:, None] * (3 * WIDE) + part * WIDE + n[None, :]
        tl.store(where, found.to(kind), mask=inside[:, None])


@triton.jit
def pixels_of(
    images, at, inside, channel, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
    SIDE: tl.constexpr, PATCH: tl.constexpr,
):  # fmt: skip
    """One channel of some tokens' patches, (tokens, PATCH * PATCH); zero for class tokens."""
    image, token, each = at // TOKENS, at % TOKENS, SIDE // PATCH
    row, column = (token - 1) // each, (token - 1) % each
    k = tl.arange(0, PATCH * PATCH)
    start = image * (CHANNELS * SIDE * SIDE) + row * (PATCH * SIDE) + column * PATCH
    where = start[:, None] + channel * (SIDE * SIDE) + (k // PATCH * SIDE + k % PATCH)[None, :]
    return tl.load(images + where, mask=(inside & (token > 0))[:, None], other=0.0)


@triton.jit(do_not_specialize=["before", "rows"])
def embed(
    images, weight, bias, first, positions, x, scale, shift, of_qkv, qkv, before, rows,
    EPSILON: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr, SIDE: tl.constexpr,
    PATCH: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Class token and patches with their positions, and their queries, keys and values.

    ``before``: rows of other images, which stand before these.
    """
    at, n = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    k, area = tl.arange(0, PATCH * PATCH), PATCH * PATCH
    inside, token = at < rows, at % TOKENS
    x0 = tl.zeros((ROWS, WIDE), tl.float32)
    for channel in range(CHANNELS):
        cut = pixels_of(images, at, inside, channel, TOKENS, CHANNELS, SIDE, PATCH)
        taps = tl.load(weight + n[:, None] * (CHANNELS * area) + channel * area + k[None, :])
        x0 = tl.dot(cut, tl.trans(taps), x0)
    x0 = tl.where((token == 0)[:, None], row_of(first, WIDE), x0 + row_of(bias, WIDE))
    x0 += tl.load(positions + token[:, None] * WIDE + n[None, :])
    x0 = x0.to(x.dtype.element_ty)
    at += before
    tl.store(x + at[:, None] * WIDE + n[None, :], x0, mask=inside[:, None])
    store_qkv(x0.to(tl.float32), scale, shift, of_qkv, qkv, at, inside, WIDE, EPSILON)


@triton.jit(do_not_specialize=["rows"])
def block(
    mixed, x, output, output_bias, scale, shift, one, one_bias, two, two_bias,
    kept, out, next_scale, next_shift, of_qkv, qkv, rows, stride,
    EPSILON: tl.constexpr, KEEP: tl.constexpr, NEXT: tl.constexpr,
    WIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A block from attention's output on, and (NEXT) the next one up to its attention.

    ``x``: what the block was given, a token every ``stride`` numbers. ``kept`` (KEEP): the sum of
    it and of attention's output.
    """
    at, n = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    kind = x.dtype.element_ty
    inside = at < rows
    here = at[:, None] * WIDE + n[None, :]
    a = tl.load(mixed + here, mask=inside[:, None], other=0.0)
    given = tl.load(x + at[:, None] * stride + n[None, :], mask=inside[:, None], other=0.0)
    added = tl.dot(a, tl.trans(matrix(output, WIDE))) + row_of(output_bias, WIDE)
    x1 = (given.to(tl.float32) + added).to(kind)
    if KEEP:
        tl.store(kept + here, x1, mask=inside[:, None])
    normal, _ = normalised(x1.to(tl.float32), WIDE, EPSILON)
    h = (normal * row_of(scale, WIDE) + row_of(shift, WIDE)).to(kind)
    u = tl.dot(h, tl.trans(matrix(one, WIDE))) + row_of(one_bias, WIDE)
    hidden = (u * bell(u)).to(kind)
    added = tl.dot(hidden, tl.trans(matrix(two, WIDE))) + row_of(two_bias, WIDE)
    x2 = (x1.to(tl.float32) + added).to(kind)
    tl.store(out + here, x2, mask=inside[:, None])
    if NEXT:
        store_qkv(x2.to(tl.float32), next_scale, next_shift, of_qkv, qkv, at, inside, WIDE, EPSILON)


@triton.jit(do_not_specialize=["rows"])
def block_back(
    g, kept, output, scale, shift, one, one_bias, two, hidden, of_u, of_kept, of_mixed, rows,
    EPSILON: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """From the gradient ``g`` of a block's output to that of attention's output.

    The hidden layer is computed again; it and its gradient are written for the weights' gradients.
    """
    at, n = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    kind = g.dtype.element_ty
    inside = (at < rows)[:, None]
    here = at[:, None] * WIDE + n[None, :]
    x1 = tl.load(kept + here, mask=inside, other=0.0)
    gradient = tl.load(g + here, mask=inside, other=0.0)
    normal, _ = normalised(x1.to(tl.float32), WIDE, EPSILON)
    h = (normal * row_of(scale, WIDE) + row_of(shift, WIDE)).to(kind)
    first = matrix(one, WIDE)
    u = tl.dot(h, tl.trans(first)) + row_of(one_bias, WIDE)
    under = bell(u)
    tl.store(hidden + here, (u * under).to(kind), mask=inside)
    slope = under + u * 0.3989422804014327 * tl.exp(-0.5 * u * u)
    du = (tl.dot(gradient, matrix(two, WIDE)) * slope).to(kind)
    tl.store(of_u + here, du, mask=inside)
    dn = tl.dot(du, first) * row_of(scale, WIDE)
    # read and normalised again: there are not registers enough to keep them
    x1 = tl.load(kept + here, mask=inside, other=0.0)
    gradient = tl.load(g + here, mask=inside, other=0.0)
    normal, factor = normalised(x1.to(tl.float32), WIDE, EPSILON)
    dx1 = (gradient.to(tl.float32) + before_norm(dn, normal, factor, WIDE)).to(kind)
    tl.store(of_kept + here, dx1, mask=inside)
    tl.store(of_mixed + here, tl.dot(dx1, matrix(output, WIDE)).to(kind), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def qkv_back(
    of_qkv, x, g, scale, weight, of_x, rows,
    EPSILON: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradient of a block's input, from that of queries, keys, values and of the residual."""
    at, n = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    kind = x.dtype.element_ty
    inside = (at < rows)[:, None]
    here = at[:, None] * WIDE + n[None, :]
    dh = tl.zeros((ROWS, WIDE), tl.float32)
    for part in tl.static_range(3):
        where = of_qkv + at[:, None] * (3 * WIDE) + part * WIDE + n[None, :]
        dh += tl.dot(
            tl.load(where, mask=inside, other=0.0), matrix(weight + part * WIDE * WIDE, WIDE)
        )
    normal, factor = normalised(
        tl.load(x + here, mask=inside, other=0.0).to(tl.float32), WIDE, EPSILON
    )
    dx = before_norm(dh * row_of(scale, WIDE), normal, factor, WIDE)
    dx += tl.load(g + here, mask=inside, other=0.0).to(tl.float32)
    tl.store(of_x + here, dx.to(kind), mask=inside)


# Gradients of weights -----------------------------------------------------------------------------


@triton.jit
def outer(
    a, b, partial, sums, rows, begin, STRIDE: tl.constexpr, NORMAL: tl.constexpr,
    EPSILON: tl.constexpr, WIDE: tl.constexpr, TILES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Some rows' share of (a transposed) b, of b's `normalised` rows if NORMAL, and of a's sum."""
    n = tl.arange(0, WIDE)
    found, total = tl.zeros((WIDE, WIDE), tl.float32), tl.zeros((WIDE,), tl.float32)
    for tile in range(TILES):
        at = begin + tile * ROWS + tl.arange(0, ROWS)
        inside = (at < rows)[:, None]
        left = tl.load(a + at[:, None] * STRIDE + n[None, :], mask=inside, other=0.0)
        right = tl.load(b + at[:, None] * WIDE + n[None, :], mask=inside, other=0.0)
        if NORMAL:
            right = normalised(right.to(tl.float32), WIDE, EPSILON)[0].to(left.dtype)
        found = tl.dot(tl.trans(left), right, found)
        total += tl.sum(left.to(tl.float32), 0)
    tl.store(partial + n[:, None] * WIDE + n[None, :], found)
    tl.store(sums + n, total)


@triton.jit(do_not_specialize=["rows"])
def outers(
    g, hidden, of_u, kept, of_kept, mixed, of_qkv, x, partial, sums, rows,
    EPSILON: tl.constexpr, WIDE: tl.constexpr, TILES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Shares of a block's weight gradients: of the layers two, one, output, query, key, value."""
    share, part = tl.program_id(0), tl.program_id(1)
    mine = share * 6 + part
    partial += mine * (WIDE * WIDE)
    sums += mine * WIDE
    begin = share * (TILES * ROWS)
    if part == 0:
        outer(g, hidden, partial, sums, rows, begin, WIDE, False, EPSILON, WIDE, TILES, ROWS)
    elif part == 1:
        outer(of_u, kept, partial, sums, rows, begin, WIDE, True, EPSILON, WIDE, TILES, ROWS)
    elif part == 2:
        outer(of_kept, mixed, partial, sums, rows, begin, WIDE, False, EPSILON, WIDE, TILES, ROWS)
    else:
        ours = of_qkv + (part - 3) * WIDE
        outer(ours, x, partial, sums, rows, begin, 3 * WIDE, True, EPSILON, WIDE, TILES, ROWS)


@triton.jit
def add_shares(
    partial, sums, part, columns, SHARES: tl.constexpr, WIDE: tl.constexpr, TILE: tl.constexpr
):
    """Some columns of a weight's gradient and the sum of the other factor, over all shares."""
    n = tl.arange(0, WIDE)
    found, total = tl.zeros((WIDE, TILE), tl.float32), tl.zeros((WIDE,), tl.float32)
    for share in range(SHARES):
        mine = share * 6 + part
        found += tl.load(partial + mine * (WIDE * WIDE) + n[:, None] * WIDE + columns[None, :])
        total += tl.load(sums + mine * WIDE + n)
    return found, total


@triton.jit
def finish(
    partial, sums, scale, shift, one, norm_scale, norm_shift, of_qkv, out,
    SHARES: tl.constexpr, WIDE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """A block's gradients from their shares, in the order of `FusedViT.block_sizes`.

    A layer behind a LayerNorm was summed with normalised rows: scale and shift come in here, and
    their own gradients follow from the same sums.
    """
    layer, columns = tl.program_id(0), tl.program_id(1) * TILE + tl.arange(0, TILE)
    n, area = tl.arange(0, WIDE), WIDE * WIDE
    here = n[:, None] * WIDE + columns[None, :]
    vectors = out + 6 * area
    if layer == 0:
        found, total = add_shares(partial, sums, 0, columns, SHARES, WIDE, TILE)
        tl.store(out + here, found)
        tl.store(vectors + n, total)
    elif layer == 1:
        found, total = add_shares(partial, sums, 1, columns, SHARES, WIDE, TILE)
        weight = tl.load(one + here)
        factor, term = tl.load(scale + columns), tl.load(shift + columns)
        tl.store(out + area + here, found * factor[None, :] + total[:, None] * term[None, :])
        tl.store(vectors + WIDE + n, total)
        tl.store(vectors + 3 * WIDE + columns, tl.sum(weight * found, 0))
        tl.store(vectors + 4 * WIDE + columns, tl.sum(weight * total[:, None], 0))
    elif layer == 2:
        found, total = add_shares(partial, sums, 2, columns, SHARES, WIDE, TILE)
        tl.store(out + 2 * area + here, found)
        tl.store(vectors + 2 * WIDE + n, total)
    else:
        factor, term = tl.load(norm_scale + columns), tl.load(norm_shift + columns)
        of_scale, of_shift = tl.zeros((TILE,), tl.float32), tl.zeros((TILE,), tl.float32)
        for part in range(3):
            found, total = add_shares(partial, sums, 3 + part, columns, SHARES, WIDE, TILE)
            weight = tl.load(of_qkv + part * area + here)
            there = out + (3 + part) * area + here
            tl.store(there, found * factor[None, :] + total[:, None] * term[None, :])
            of_scale += tl.sum(weight * found, 0)
            of_shift += tl.sum(weight * total[:, None], 0)
        tl.store(vectors + 5 * WIDE + columns, of_scale)
        tl.store(vectors + 6 * WIDE + columns, of_shift)


@triton.jit(do_not_specialize=["before", "rows"])
def patch_shares(
    g, images, partial, before, rows, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
    SIDE: tl.constexpr, PATCH: tl.constexpr, WIDE: tl.constexpr, TILES: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Shares of the gradient of the patches' weights, three channels to a program."""
    share, channel, n = tl.program_id(0), 3 * tl.program_id(1), tl.arange(0, WIDE)
    k, area = tl.arange(0, PATCH * PATCH), PATCH * PATCH
    red = tl.zeros((WIDE, PATCH * PATCH), tl.float32)
    green = tl.zeros((WIDE, PATCH * PATCH), tl.float32)
    blue = tl.zeros((WIDE, PATCH * PATCH), tl.float32)
    for tile in range(TILES):
        at = (share * TILES + tile) * ROWS + tl.arange(0, ROWS)
        inside = at < rows
        there = (before + at)[:, None] * WIDE + n[None, :]
        left = tl.trans(tl.load(g + there, mask=inside[:, None], other=0.0))
        one = pixels_of(images, at, inside, channel, TOKENS, CHANNELS, SIDE, PATCH)
        two = pixels_of(images, at, inside, channel + 1, TOKENS, CHANNELS, SIDE, PATCH)
        three = pixels_of(images, at, inside, channel + 2, TOKENS, CHANNELS, SIDE, PATCH)
        red, green = tl.dot(left, one, red), tl.dot(left, two, green)
        blue = tl.dot(left, three, blue)
    where = partial + share * (WIDE * CHANNELS * area) + channel * area
    where += n[:, None] * (CHANNELS * area) + k[None, :]
    tl.store(where, red)
    tl.store(where + area, green)
    tl.store(where + 2 * area, blue)
