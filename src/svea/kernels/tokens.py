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
def turned(weight, kind: tl.constexpr, WIDE: tl.constexpr):
    """A square matrix, (in, out), for products."""
    return tl.trans(matrix(weight, WIDE).to(kind))


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
    it and of attention's output. A program takes one tile after the other and keeps all weights in
    shared memory: 192 KB.
    """
    n = tl.arange(0, WIDE)
    kind = x.dtype.element_ty
    project, widen, narrow = (
        turned(output, kind, WIDE),
        turned(one, kind, WIDE),
        turned(two, kind, WIDE),
    )
    if NEXT:
        to_q = turned(of_qkv, kind, WIDE)
        to_k = turned(of_qkv + WIDE * WIDE, kind, WIDE)
        to_v = turned(of_qkv + 2 * WIDE * WIDE, kind, WIDE)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        at = tile * ROWS + tl.arange(0, ROWS)
        inside = (at < rows)[:, None]
        here = at[:, None] * WIDE + n[None, :]
        a = tl.load(mixed + here, mask=inside, other=0.0)
        given = tl.load(x + at[:, None] * stride + n[None, :], mask=inside, other=0.0)
        added = tl.dot(a, project) + row_of(output_bias, WIDE)
        x1 = (given.to(tl.float32) + added).to(kind)
        if KEEP:
            tl.store(kept + here, x1, mask=inside)
        normal, _ = normalised(x1.to(tl.float32), WIDE, EPSILON)
        h = (normal * row_of(scale, WIDE) + row_of(shift, WIDE)).to(kind)
        u = tl.dot(h, widen) + row_of(one_bias, WIDE)
        hidden = (u * bell(u)).to(kind)
        added = tl.dot(hidden, narrow) + row_of(two_bias, WIDE)
        x2 = (x1.to(tl.float32) + added).to(kind)
        tl.store(out + here, x2, mask=inside)
        if NEXT:
            normal, _ = normalised(x2.to(tl.float32), WIDE, EPSILON)
            h = (normal * row_of(next_scale, WIDE) + row_of(next_shift, WIDE)).to(kind)
            where = qkv + at[:, None] * (3 * WIDE) + n[None, :]
            tl.store(where, tl.dot(h, to_q).to(kind), mask=inside)
            tl.store(where + WIDE, tl.dot(h, to_k).to(kind), mask=inside)
            tl.store(where + 2 * WIDE, tl.dot(h, to_v).to(kind), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def block_back(
    g, kept, output, scale, shift, one, one_bias, two, hidden, of_u, normals, of_kept, of_mixed,
    rows, EPSILON: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """From the gradient ``g`` of a block's output to that of attention's output.

    The hidden layer is computed again. It, its gradient and the normalised rows are written for the
    weights' gradients.
    """
    n = tl.arange(0, WIDE)
    kind = g.dtype.element_ty
    widen, narrow = matrix(one, WIDE).to(kind), matrix(two, WIDE).to(kind)
    project, widen_turned = matrix(output, WIDE).to(kind), turned(one, kind, WIDE)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        at = tile * ROWS + tl.arange(0, ROWS)
        inside = (at < rows)[:, None]
        here = at[:, None] * WIDE + n[None, :]
        x1 = tl.load(kept + here, mask=inside, other=0.0)
        normal, _ = normalised(x1.to(tl.float32), WIDE, EPSILON)
        tl.store(normals + here, normal.to(kind), mask=inside)
        h = (normal * row_of(scale, WIDE) + row_of(shift, WIDE)).to(kind)
        u = tl.dot(h, widen_turned) + row_of(one_bias, WIDE)
        under = bell(u)
        tl.store(hidden + here, (u * under).to(kind), mask=inside)
        slope = under + u * 0.3989422804014327 * tl.exp(-0.5 * u * u)
        gradient = tl.load(g + here, mask=inside, other=0.0)
        du = (tl.dot(gradient, narrow) * slope).to(kind)
        tl.store(of_u + here, du, mask=inside)
        dn = tl.dot(du, widen) * row_of(scale, WIDE)
        # read and normalised again: there are not registers enough to keep them
        x1 = tl.load(kept + here, mask=inside, other=0.0)
        gradient = tl.load(g + here, mask=inside, other=0.0)
        normal, factor = normalised(x1.to(tl.float32), WIDE, EPSILON)
        dx1 = (gradient.to(tl.float32) + before_norm(dn, normal, factor, WIDE)).to(kind)
        tl.store(of_kept + here, dx1, mask=inside)
        tl.store(of_mixed + here, tl.dot(dx1, project).to(kind), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def qkv_back(
    of_qkv, x, g, scale, weight, normals, of_x, rows,
    EPSILON: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradient of a block's input, from that of queries, keys, values and of the residual."""
    n = tl.arange(0, WIDE)
    kind = x.dtype.element_ty
    of_q = matrix(weight, WIDE).to(kind)
    of_k = matrix(weight + WIDE * WIDE, WIDE).to(kind)
    of_v = matrix(weight + 2 * WIDE * WIDE, WIDE).to(kind)
    for tile in range(tl.program_id(0), tl.cdiv(rows, ROWS), tl.num_programs(0)):
        at = tile * ROWS + tl.arange(0, ROWS)
        inside = (at < rows)[:, None]
        here = at[:, None] * WIDE + n[None, :]
        where = of_qkv + at[:, None] * (3 * WIDE) + n[None, :]
        dh = tl.dot(tl.load(where, mask=inside, other=0.0), of_q)
        dh = tl.dot(tl.load(where + WIDE, mask=inside, other=0.0), of_k, dh)
        dh = tl.dot(tl.load(where + 2 * WIDE, mask=inside, other=0.0), of_v, dh)
        given = tl.load(x + here, mask=inside, other=0.0).to(tl.float32)
        normal, factor = normalised(given, WIDE, EPSILON)
        tl.store(normals + here, normal.to(kind), mask=inside)
        dx = before_norm(dh * row_of(scale, WIDE), normal, factor, WIDE)
        dx += tl.load(g + here, mask=inside, other=0.0).to(tl.float32)
        tl.store(of_x + here, dx.to(kind), mask=inside)


# Gradients of weights -----------------------------------------------------------------------------


@triton.jit
def outer(
    a, b, partial, sums, rows, begin, end, STRIDE: tl.constexpr, WIDE: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Some rows' share of (a transposed) b, and of a's sum."""
    n = tl.arange(0, WIDE)
    found, total = tl.zeros((WIDE, WIDE), tl.float32), tl.zeros((ROWS, WIDE), tl.float32)
    for start in range(begin, end, ROWS):
        at = start + tl.arange(0, ROWS)
        inside = (at < rows)[:, None]
        left = tl.load(a + at[:, None] * STRIDE + n[None, :], mask=inside, other=0.0)
        right = tl.load(b + at[:, None] * WIDE + n[None, :], mask=inside, other=0.0)
        found = tl.dot(tl.trans(left), right, found)
        total += left.to(tl.float32)
    tl.store(partial + n[:, None] * WIDE + n[None, :], found)
    tl.store(sums + n, tl.sum(total, 0))


@triton.jit(do_not_specialize=["rows", "each"])
def outers(
    g, hidden, of_u, normals, of_kept, mixed, of_qkv, first_normals, partial, rows, each,
    WIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Shares of a block's weight gradients: of the layers two, one, output, query, key, value.

    ``each``: rows of a share, a multiple of ROWS.
    """
    share, part = tl.program_id(0), tl.program_id(1)
    partial += share * (6 * WIDE * (WIDE + 1))
    sums = partial + (6 * WIDE + part) * WIDE
    partial += part * (WIDE * WIDE)
    begin = share * each
    end = begin + each
    if part == 0:
        outer(g, hidden, partial, sums, rows, begin, end, WIDE, WIDE, ROWS)
    elif part == 1:
        outer(of_u, normals, partial, sums, rows, begin, end, WIDE, WIDE, ROWS)
    elif part == 2:
        outer(of_kept, mixed, partial, sums, rows, begin, end, WIDE, WIDE, ROWS)
    else:
        ours = of_qkv + (part - 3) * WIDE
        outer(ours, first_normals, partial, sums, rows, begin, end, 3 * WIDE, WIDE, ROWS)


@triton.jit
def finish(
    found, scale, shift, one, norm_scale, norm_shift, of_qkv, out,
    WIDE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """A block's gradients, in the order of `FusedViT.block_sizes`, from what `outers` found.

    A layer behind a LayerNorm was summed with normalised rows: scale and shift come in here, and
    their own gradients follow from the same sums.
    """
    layer, columns = tl.program_id(0), tl.program_id(1) * TILE + tl.arange(0, TILE)
    n, area = tl.arange(0, WIDE), WIDE * WIDE
    here = n[:, None] * WIDE + columns[None, :]
    sums, vectors = found + 6 * area, out + 6 * area
    if layer == 0:
        tl.store(out + here, tl.load(found + here))
        tl.store(vectors + n, tl.load(sums + n))
    elif layer == 1:
        inner, total = tl.load(found + area + here), tl.load(sums + WIDE + n)
        weight = tl.load(one + here)
        factor, term = tl.load(scale + columns), tl.load(shift + columns)
        tl.store(out + area + here, inner * factor[None, :] + total[:, None] * term[None, :])
        tl.store(vectors + WIDE + n, total)
        tl.store(vectors + 3 * WIDE + columns, tl.sum(weight * inner, 0))
        tl.store(vectors + 4 * WIDE + columns, tl.sum(weight * total[:, None], 0))
    elif layer == 2:
        tl.store(out + 2 * area + here, tl.load(found + 2 * area + here))
        tl.store(vectors + 2 * WIDE + n, tl.load(sums + 2 * WIDE + n))
    else:
        factor, term = tl.load(norm_scale + columns), tl.load(norm_shift + columns)
        of_scale, of_shift = tl.zeros((TILE,), tl.float32), tl.zeros((TILE,), tl.float32)
        for part in tl.static_range(3):
            inner = tl.load(found + (3 + part) * area + here)
            total = tl.load(sums + (3 + part) * WIDE + n)
            weight = tl.load(of_qkv + part * area + here)
            there = out + (3 + part) * area + here
            tl.store(there, inner * factor[None, :] + total[:, None] * term[None, :])
            of_scale += tl.sum(weight * inner, 0)
            of_shift += tl.sum(weight * total[:, None], 0)
        tl.store(vectors + 5 * WIDE + columns, of_scale)
        tl.store(vectors + 6 * WIDE + columns, of_shift)


@triton.jit(do_not_specialize=["before", "rows", "each"])
def patch_shares(
    g, images, partial, before, rows, each, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
    SIDE: tl.constexpr, PATCH: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Shares of the gradient of the patches' weights, three channels to a program."""
    share, channel, n = tl.program_id(0), 3 * tl.program_id(1), tl.arange(0, WIDE)
    k, area = tl.arange(0, PATCH * PATCH), PATCH * PATCH
    red = tl.zeros((WIDE, PATCH * PATCH), tl.float32)
    green = tl.zeros((WIDE, PATCH * PATCH), tl.float32)
    blue = tl.zeros((WIDE, PATCH * PATCH), tl.float32)
    for start in range(share * each, share * each + each, ROWS):
        at = start + tl.arange(0, ROWS)
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
