"""Where sums and products are computed: factors and summands moved into weights, or before what makes them large."""

from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array
from ...graph.params import Convolution, Elemwise, ElemwiseMode, Format, MatrixMul, Sparse
from ...ops.elemwise.table import ModeTrait, modes
from ...ops.numeric.special import broadcast
from ...ops.registry import Shape
from ..rewriter import Rewriter, repeat
from .identities import elemwise
from .terms import ends_chain, is_large, leaves, mode_of, on_grid, uniform

# Moving factors and summands into weights (MegEngine's ParamRedistribute).
#
# ``conv(x, w) * k`` becomes ``conv(x, w * k)``, which is how batch normalization vanishes in the convolution
# before it; ``conv(x * k, w)``, ``conv(x + b, w)`` without padding and the same for matrix products likewise;
# ``(x + a) + b`` becomes ``x + (a + b)`` for constants of any shape; ``(conv(x, w) + a) * k`` is first
# multiplied out. Results agree to within rounding.

M = ElemwiseMode
_JOINED = modes(ModeTrait.ASSOCIATIVE)
_ROUNDS = 10


def redistribute(graph: Graph) -> Graph:
    """Apply the rules until none applies; the products of constants are left to constant folding.

    Only constant weights change, and only after values that nothing else reads.
    """
    return repeat(graph, _visit, _ROUNDS, "Elemwise", "ConvolutionV2", "MatrixMulV2")


def _visit(r: Rewriter, opr: Opr) -> Var | None:
    if len(opr.outputs) != 1:
        return None
    types = {r.dtype(r.var(v)).name for v in opr.inputs}
    if on_grid(r, opr) or types not in ({"Float32"}, {"Float16"}):
        return None
    return _elementwise(r, opr) if opr.type == "Elemwise" else _linear(r, opr)


def _with_constant(r: Rewriter, opr: Opr) -> tuple[Var, Var] | None:
    """Return the variable and the constant that an operator joins."""
    for x, k in (opr.inputs, opr.inputs[::-1]) if len(opr.inputs) == 2 else ():
        if _constant(r, k) and not _constant(r, x):
            return x, k
    return None


def _elementwise(r: Rewriter, opr: Opr) -> Var | None:
    """Move the constant of ``f(x, k)`` into what gives `x`."""
    pair, mode = _with_constant(r, opr), opr.get(Elemwise).mode
    if pair is None:
        return None
    x, k = pair[0], r.var(pair[1])
    return _absorbed(r, mode, x, k) or (_distributed(r, x, k) if mode == M.MUL else None)


def _linear(r: Rewriter, opr: Opr) -> Var | None:
    """Move the constant of a convolution or product of ``f(x, k)`` into the weights."""
    source = opr.inputs[0]
    inner = source.owner
    if not _constant(r, opr.inputs[1]) or not r.single(source) or inner.type != "Elemwise" or r.frozen(inner):
        return None
    if is_large(r, source):
        return None
    pair = _with_constant(r, inner)
    if pair is None or r.old_shape(source) is None or r.old_shape(pair[0]) != r.old_shape(source):
        return None
    into = _into_convolution if opr.type == "ConvolutionV2" else _into_product
    return into(r, opr, inner.get(Elemwise).mode, pair[0], r.var(pair[1]))


def _constant(r: Rewriter, old: Var) -> bool:
    return r.constant(r.var(old))


def _finite(value: Array | None) -> bool:
    return value is not None and bool(np.isfinite(value).all())


# f(g(x, k1), k2) -> f(x, k)


def _absorbed(r: Rewriter, mode: ElemwiseMode, x: Var, k: Var) -> Var | None:
    """Move what a constant does to a variable of the old graph into an operator before it."""
    inner = x.owner
    if not r.single(x) or r.frozen(inner) or is_large(r, x):
        return None
    if inner.type == "Elemwise" and len(inner.inputs) == 2 and mode in _JOINED:
        if inner.get(Elemwise).mode != mode:
            return None
        for first, other in (inner.inputs, inner.inputs[::-1]):
            if _constant(r, other) and not _constant(r, first):
                return _absorbed_constant(r, mode, r.var(first), r.var(other), k)
        return None
    if mode != M.MUL or not _finite(r.value(k)):
        return None
    if inner.type == "ConvolutionV2":
        return _scaled_convolution(r, inner, k)
    return _scaled_product(r, inner, k) if inner.type == "MatrixMulV2" else None


def _absorbed_constant(r: Rewriter, mode: ElemwiseMode, x: Var, a: Var, b: Var) -> Var | None:
    first, second = r.shape(a), r.shape(b)
    if first is None or second is None or broadcast([first, second]) not in (first, second):
        return None
    return elemwise(r, mode, x, elemwise(r, mode, a, b))


def _by_channel(shape: Shape | None) -> bool:
    """Return whether a constant differs along channels at most."""
    return shape is not None and len(shape) <= 4 and all(n == 1 for n in (*shape[:-3], *shape[-2:]))


def _reshaped(r: Rewriter, k: Var, shape: Shape) -> Var:
    value = r.value(k)
    assert value is not None
    return r.put(value.reshape(shape if value.size > 1 else (1,)), r.dtype(k))


def _plain_convolution(r: Rewriter, conv: Opr) -> Shape | None:
    """Return the shape of the filter of a convolution whose constant filter may change."""
    if conv.get(Convolution).format != Format.NCHW or not _constant(r, conv.inputs[1]):
        return None
    return r.shape(r.var(conv.inputs[1]))


def _scaled_convolution(r: Rewriter, conv: Opr, k: Var) -> Var | None:
    weight, shape = _plain_convolution(r, conv), r.shape(k)
    if weight is None or shape is None or not _by_channel(shape):
        return None
    groups = conv.get(Convolution).sparse == Sparse.GROUP
    channels = weight[0] * weight[1] if groups else weight[0]
    if prod(shape) not in (1, channels):
        return None
    by = _reshaped(r, k, (weight[0], weight[1], 1, 1, 1) if groups else (weight[0], 1, 1, 1))
    scaled = elemwise(r, M.MUL, by, r.var(conv.inputs[1]))
    return r.add("ConvolutionV2", *conv.params, inputs=[r.var(conv.inputs[0]), scaled], like=conv)[0]


def _matrix(shape: Shape | None) -> Shape | None:
    if shape is None or not 1 <= len(shape) <= 2:
        return None
    return shape if len(shape) == 2 else (1, shape[0])


def _scaled_product(r: Rewriter, product: Opr, k: Var) -> Var | None:
    shape, weight = _matrix(r.shape(k)), r.shape(r.var(product.inputs[1]))
    if shape is None or weight is None or shape[0] != 1 or not _constant(r, product.inputs[1]):
        return None
    turned = product.get(MatrixMul).transposeB
    if shape[1] not in (1, weight[0 if turned else 1]):
        return None
    by = _reshaped(r, k, (shape[1], 1) if turned else (1, shape[1]))
    scaled = elemwise(r, M.MUL, by, r.var(product.inputs[1]))
    return r.add("MatrixMulV2", *product.params, inputs=[r.var(product.inputs[0]), scaled], like=product)[0]


# conv(x * k, w), conv(x + k, w)


def _into_convolution(r: Rewriter, conv: Opr, mode: ElemwiseMode, x: Var, k: Var) -> Var | None:
    weight, value = _plain_convolution(r, conv), r.value(k)
    if weight is None or value is None or not _by_channel(value.shape) or not _finite(value):
        return None
    p = conv.get(Convolution)
    groups = p.sparse == Sparse.GROUP
    channels = weight[0] * weight[2] if groups else weight[1]
    if value.size not in (1, channels):
        return None
    by = (weight[0], 1, weight[2], 1, 1) if groups else (1, weight[1], 1, 1)
    data, filter_ = r.var(x), r.var(conv.inputs[1])
    if mode == M.MUL:
        scaled = elemwise(r, M.MUL, _reshaped(r, k, by), filter_)
        return r.add("ConvolutionV2", *conv.params, inputs=[data, scaled], like=conv)[0]
    numbers = r.value(filter_)
    if mode != M.ADD or p.pad_h or p.pad_w or numbers is None or r.dtype(k).name != "Float32":
        return None
    shifted = numbers.astype(np.float64) * value.reshape(by if value.size > 1 else (1,))
    bias = shifted.sum(axis=(-3, -2, -1)).astype(np.float32).reshape(1, -1, 1, 1)
    (plain,) = r.add("ConvolutionV2", *conv.params, inputs=[data, filter_], like=conv)
    return elemwise(r, M.ADD, plain, r.put(bias, r.dtype(k)))


def _into_product(r: Rewriter, product: Opr, mode: ElemwiseMode, x: Var, k: Var) -> Var | None:
    p, value, weight = product.get(MatrixMul), r.value(k), r.value(r.var(product.inputs[1]))
    shape = _matrix(None if value is None else value.shape)
    if value is None or weight is None or shape is None or not _finite(value) or weight.ndim != 2:
        return None
    inner = weight.shape[1 if p.transposeB else 0]
    if shape[1 if p.transposeA else 0] != 1 or value.size not in (1, inner):
        return None
    data, matrix = r.var(x), r.var(product.inputs[1])
    if mode == M.MUL:
        scaled = elemwise(r, M.MUL, _reshaped(r, k, (1, inner) if p.transposeB else (inner, 1)), matrix)
        return r.add("MatrixMulV2", *product.params, inputs=[data, scaled], like=product)[0]
    if mode != M.ADD or r.dtype(k).name != "Float32":
        return None
    row = np.broadcast_to(value.reshape(1, -1), (1, inner)).astype(np.float64)
    bias = (row @ (weight.T if p.transposeB else weight)).astype(np.float32)
    (plain,) = r.add("MatrixMulV2", *product.params, inputs=[data, matrix], like=product)
    return elemwise(r, M.ADD, plain, r.put(bias, r.dtype(k)))


# (x + a) * k -> x * k + a * k


def _distributed(r: Rewriter, total: Var, k: Var) -> Var | None:
    """Multiply a sum out, if the factor then vanishes in all terms but one at most."""
    terms = _terms(r, total)
    if len(terms) < 2 or not _finite(r.value(k)):
        return None
    products: list[Var] = []
    failed = succeeded = 0
    for term in terms:
        if _constant(r, term):
            products.append(elemwise(r, M.MUL, r.var(term), k))
            continue
        moved = _absorbed(r, M.MUL, term, k)
        succeeded += moved is not None
        failed += moved is None
        products.append(moved if moved is not None else elemwise(r, M.MUL, r.var(term), k))
    if failed > 1 or not succeeded:
        return None
    result = products[0]
    for term in products[1:]:
        result = elemwise(r, M.ADD, result, term)
    return result


def _terms(r: Rewriter, total: Var) -> list[Var]:
    """Return the summands of a sum whose partial sums nothing else reads."""
    terms: list[Var] = []
    stack = [total]
    while stack:
        var = stack.pop()
        opr = var.owner
        inside = opr.type == "Elemwise" and opr.get(Elemwise).mode == M.ADD and not r.frozen(opr)
        if inside and (r.single(var) or _constant(r, var)):
            stack.extend(reversed(opr.inputs))
        else:
            terms.append(var)
    return terms


# Reordering long sums, products, maxima and minima so that constants and small terms meet first.
#
# MegEngine's ReorderArithChain: constants among each other, then terms of equal shape, then those that
# broadcast to each other, from small to large. Sums and products of floats agree to within rounding, maxima
# and minima to the bit.

_MODES = modes(ModeTrait.ASSOCIATIVE)


@dataclass
class _Term:
    shape: Shape
    var: Var


def reorder_chains(graph: Graph) -> Graph:
    """Rewrite chains of at least three terms."""
    r = Rewriter(graph)
    r.rewrite(partial(_reordered_chain, r))
    return r.finish()


def _reordered_chain(r: Rewriter, opr: Opr) -> Var | None:
    mode = mode_of(opr)
    if mode not in _MODES or uniform(r, opr) is None or not ends_chain(r, opr, [mode]):
        return None
    return _reordered(r, opr, mode)


def _reordered(r: Rewriter, end: Opr, mode: ElemwiseMode) -> Var | None:
    terms = leaves(r, end.outputs[0], mode)
    if len(terms) < 3 or all(r.constant(r.var(v)) for v in terms):
        return None
    constants: list[_Term] = []
    others: list[_Term] = []
    for old in sorted(terms, key=lambda v: v.id):
        shape = r.old_shape(old)
        if shape is None:
            return None
        new = r.var(old)
        (constants if r.constant(new) else others).append(_Term(shape, new))
    constants = _merge_equal(r, mode, constants)
    others = _merge_equal(r, mode, others)
    _merge_broadcast(r, mode, constants)
    joined = _merge_equal(r, mode, constants + others)
    _merge_broadcast(r, mode, joined)
    joined.sort(key=lambda t: prod(t.shape))
    total = joined[0].var
    for term in joined[1:]:
        total = elemwise(r, mode, total, term.var)
    return total


def _merge_equal(r: Rewriter, mode: ElemwiseMode, terms: list[_Term]) -> list[_Term]:
    """Join each term with the next one of its shape; what is left has as many terms as there are shapes."""
    following: dict[int, _Term] = {}
    last: dict[Shape, _Term] = {}
    for term in reversed(terms):
        if term.shape in last:
            following[id(term)] = last[term.shape]
        last[term.shape] = term
    for term in terms:
        target = following.get(id(term))
        if target is not None:
            target.var = elemwise(r, mode, term.var, target.var)
    return [t for t in terms if id(t) not in following]


def _merge_broadcast(r: Rewriter, mode: ElemwiseMode, terms: list[_Term]) -> None:
    """Join terms of different shapes in place where the joined shape is that of one, into the smallest that will do."""
    merged = True
    while merged:
        merged = False
        for i, source in enumerate(terms):
            places = [
                j
                for j, t in enumerate(terms)
                if j != i and _broadcast(source.shape, t.shape) in (source.shape, t.shape)
            ]
            if not places:
                continue
            best = min(places, key=lambda j: (prod(_broadcast(source.shape, terms[j].shape)), j))
            target = terms[best]
            terms[best] = _Term(
                _broadcast(source.shape, target.shape), elemwise(r, mode, source.var, target.var)
            )
            del terms[i]
            merged = True
            break


def _broadcast(a: Shape, b: Shape) -> Shape:
    return a if a == b else broadcast([a, b])


# MegEngine's ArithMulDistribute: sums are multiplied out where that saves work.


def distribute_products(graph: Graph) -> Graph:
    """Write ``(x * a + y * b) * m`` as ``x * (a * m) + y * (b * m)`` where that saves work.

    That is, where `m` is smaller than the sum, and so are `a` and `b` together. Results agree to within rounding.
    """
    r = Rewriter(graph)
    r.rewrite(lambda o: _multiplied_out(r, o) if mode_of(o) == M.MUL and uniform(r, o) is not None else None)
    return r.finish()


def _multiplied_out(r: Rewriter, opr: Opr) -> Var | None:
    total, factor = opr.inputs
    shapes = [r.old_shape(total), r.old_shape(factor)]
    if shapes[0] is None or shapes[1] is None or prod(shapes[0]) == prod(shapes[1]):
        return None
    if prod(shapes[0]) < prod(shapes[1]):
        total, factor = factor, total
    shape, small = r.old_shape(total), r.old_shape(factor)
    if shape is None or small is None or r.old_shape(opr.outputs[0]) != shape or not r.single(total):
        return None
    terms = leaves(r, total, M.ADD)
    if len(terms) < 2 or mode_of(total.owner) != M.ADD or r.frozen(total.owner):
        return None
    saved = prod(shape)
    plans = []
    for term in terms:
        factors = leaves(r, term, M.MUL) if r.single(term) else [term]
        best = _smallest(r, factors, small, saved)
        if best is None:
            return None
        saved -= prod(r.old_shape(factors[best]) or ())
        plans.append((factors, best))
    result: Var | None = None
    for factors, best in plans:
        parts = [r.var(v) for v in factors]
        parts[best] = elemwise(r, M.MUL, parts[best], r.var(factor))
        product = parts[0]
        for part in parts[1:]:
            product = elemwise(r, M.MUL, product, part)
        result = product if result is None else elemwise(r, M.ADD, result, product)
    return result


def _smallest(r: Rewriter, factors: list[Var], small: Shape, limit: int) -> int | None:
    """Return the smallest factor that a product with `small` does not make larger."""
    best = None
    for i, var in enumerate(factors):
        shape = r.old_shape(var)
        if shape is not None and broadcast([shape, small]) == shape and prod(shape) < limit:
            best, limit = i, prod(shape)
    return best


# MegEngine's DelayBroadcast: small tensors are computed with before they are broadcast.

_DELAY_ROUNDS = 16


def delay_broadcast(graph: Graph) -> Graph:
    """Let conversions and elementwise operators of one variable and scalars change places with a Broadcast before
    them; results are the same bits."""
    return repeat(graph, _swapped, _DELAY_ROUNDS, "Elemwise", "TypeCvtV2")


def _swapped(r: Rewriter, opr: Opr) -> Var | None:
    wide = [v for v in opr.inputs if v.owner.type == "Broadcast" and r.old_shape(v) != (1,)]
    if len(wide) != 1 or not r.single(wide[0]) or r.frozen(wide[0].owner):
        return None
    source, shape = wide[0].owner.inputs
    others = [v for v in opr.inputs if v is not wide[0]]
    # Only constants have a shape that no input changes.
    if any(r.old_shape(v) != (1,) or not r.constant(r.var(v)) for v in others):
        return None
    operands = [r.var(source) if v is wide[0] else r.var(v) for v in opr.inputs]
    (inner,) = r.add(opr.type, *opr.params, inputs=operands, output_dtype=opr.output_dtype, like=opr)
    return r.add("Broadcast", *wide[0].owner.params, inputs=[inner, r.var(shape)], like=wide[0].owner)[0]
