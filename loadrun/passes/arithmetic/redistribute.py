"""Moving factors and summands into weights (MegEngine's ParamRedistribute).

``conv(x, w) * k`` becomes ``conv(x, w * k)``, which is how batch normalization vanishes in the convolution before it;
``conv(x * k, w)``, ``conv(x + b, w)`` without padding and the same for matrix products likewise; ``(x + a) + b``
becomes ``x + (a + b)`` for constants of any shape; ``(conv(x, w) + a) * k`` is first multiplied out. Results agree to
within rounding.
"""

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
from .terms import is_large, on_grid

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
