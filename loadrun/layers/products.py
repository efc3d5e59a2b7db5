"""Products of matrices by numpy's rules, and Einstein summation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graph import params as P
from ..graph.dtypes import plain
from ..tensors import TensorLike, as_tensor
from ..tensors.access import dtype_of
from ..tensors.applying import apply1
from ..tensors.naming import refused
from ..tensors.symbolic import TracedInt
from ..tensors.value import Tensor
from . import emit as e
from .emit import M, elem, number, summed
from .geometry import require

__all__ = ["einsum"]


def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of matrices, or stacks of one shape, of one dtype, in which it is."""
    kind = dtype_of(a).name
    if kind in ("Float32", "Float16") or dtype_of(a).is_wide:
        return _operator(a, b)
    if kind == "Bool":
        result = _operator(e.cast(a, "int8"), e.cast(b, "int8"))
        return e.cast(result, "bool")
    return e.cast(whole_product(a, b), dtype_of(a))


def _operator(a: Tensor, b: Tensor) -> Tensor:
    wide = P.MatrixMulComputeMode
    # numpy sums float16 in float32.
    param = P.MatrixMul(compute_mode=wide.FLOAT32 if dtype_of(a).name == "Float16" else wide.DEFAULT)
    name = "MatrixMulV2" if len(e.sizes(a)) == 2 else "BatchedMatrixMulV2"
    out = plain("Int32") if dtype_of(a).name == "Int8" else None
    return apply1(name, param, inputs=[a, b], output_dtype=out, scalar=False)


def _digits(x: Tensor) -> list[Tensor]:
    """Return bytes of integers, each signed, from the lowest."""
    count = {"Int8": 1, "Uint8": 2, "Int16": 2, "Uint16": 3}.get(dtype_of(x).name, 4)
    if count == 1:
        return [x]
    rest = e.cast(x, "int32")
    result = []
    for i in range(count):
        low = e.cast(rest, "int8")
        result.append(low)
        if i < count - 1:
            rest = e.folded(_above, rest, low)
    return result


def _above(x: Tensor, low: Tensor) -> Tensor:
    """Return what is left of integers above their lowest byte."""
    return elem(M.SHR, elem(M.SUB, x, e.cast(low, "int32")), number(8, x))


def by_bytes(multiplied: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Multiply integers exactly, wrapping at 32 bits, by products of their bytes.

    Args:
        multiplied: gives the sums of products of int8 tensors as int32.
        a: integers.
        b: integers, of the same dtype or another.
    """
    total: Tensor | None = None
    for i, x in enumerate(_digits(a)):
        for j, y in enumerate(_digits(b)):
            if i + j > 3:
                continue
            part = multiplied(x, y)
            if i + j:
                part = elem(M.SHL, part, number(8 * (i + j), part))
            total = part if total is None else elem(M.ADD, total, part)
    assert total is not None
    return total


def whole_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices of integers, or stacks of one shape, exactly in int32."""
    return by_bytes(_operator, a, b)


def product(a: Tensor, b: Tensor, multiplied: Callable[[Tensor, Tensor], Tensor] = multiply) -> Tensor:
    """Compute ``a @ b`` of tensors with at least one axis each, by products of matrices or stacks of one shape."""
    if not e.sizes(a) or not e.sizes(b):
        raise ValueError("matmul: input operand does not have enough dimensions, needs at least 1")
    vectors = (len(e.sizes(a)) == 1, len(e.sizes(b)) == 1)
    if vectors[0]:
        a = e.add_axes(a, [0])
    if vectors[1]:
        b = e.add_axes(b, [1])
    if e.sizes(a)[-1] != e.sizes(b)[-2]:
        raise ValueError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0 (size {e.sizes(b)[-2]} is different "
            f"from {e.sizes(a)[-1]})"
        )
    result = _stacks(a, b, multiplied)
    ndim = len(e.sizes(result))
    gone = [ndim - 2] * vectors[0] + [ndim - 1] * vectors[1]
    return e.drop_axes(result, gone)


def _stacks(a: Tensor, b: Tensor, multiplied: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    if len(e.sizes(b)) == 2:
        if len(e.sizes(a)) == 2:
            return multiplied(a, b)
        flat = multiplied(e.reshape(a, (-1, a.shape[-1])), b)
        return e.reshape(flat, (*a.shape[:-1], b.shape[-1]))
    lead = e.broadcast_shape([a.shape[:-2], b.shape[:-2]])
    stacks = []
    for x in (a, b):
        x = e.broadcast(x, (*lead, *x.shape[-2:]))
        stacks.append(x if len(lead) == 1 else e.reshape(x, (-1, *x.shape[-2:])))
    result = multiplied(stacks[0], stacks[1])
    return result if len(lead) == 1 else e.reshape(result, (*lead, *result.shape[-2:]))


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Names of axes."""


def _parsed(subscripts: str, xs: Sequence[Tensor]) -> tuple[list[str], str]:
    """Return one letter per axis for every operand and the result, without ``...``."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(xs):
        raise ValueError(
            "more operands provided to einstein sum function than specified in the subscripts string"
        )
    free = [c for c in LETTERS if c not in text]
    depth = 0
    for term, x in zip(terms, xs, strict=True):
        if "..." in term:
            depth = max(depth, len(e.sizes(x)) - len(term) + 3)
    dots = "".join(free[:depth])
    expanded = []
    for term, x in zip(terms, xs, strict=True):
        if "..." in term:
            count = len(e.sizes(x)) - len(term) + 3
            term = term.replace("...", dots[len(dots) - count :])
        if len(term) != len(e.sizes(x)):
            raise ValueError(
                f"operand has {len(e.sizes(x))} dimensions, but its einstein sum subscripts name {len(term)}"
            )
        expanded.append(term)
    if arrow:
        result = right.replace("...", dots)
    else:
        letters = left.replace(",", "").replace(".", "")
        result = dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if any(c not in "".join(expanded) for c in result) or len(set(result)) < len(result):
        raise ValueError(
            "einstein sum subscripts string: an output subscript is not among the inputs, or twice"
        )
    return expanded, result


def _without_repeats(x: Tensor, term: str) -> tuple[Tensor, str]:
    """Return diagonals where a letter stands twice in one operand."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            order = [first, second, *(i for i in range(len(term)) if i not in (first, second))]
            at = e.arange(x.shape[first])
            x = e.gather(e.permute(x, order), [(0, at), (1, at)])
            term = letter + "".join(c for i, c in enumerate(term) if i not in (first, second))
    return x, term


def _summed_out(x: Tensor, term: str, keep: str) -> tuple[Tensor, str]:
    """Return the sum the axes that nothing else needs."""
    gone = [i for i, c in enumerate(term) if c not in keep]
    return (summed(x, gone), "".join(c for c in term if c in keep)) if gone else (x, term)


def _aligned(x: Tensor, term: str, order: str) -> Tensor:
    return e.permute(x, [term.index(c) for c in order if c in term])


def _sizes_of_letters(x: Tensor, term: str, letters: str) -> list[int]:
    return [x.shape[term.index(c)] for c in letters]


def _total(sizes: Sequence[int]) -> int:
    result: int = 1
    for n in sizes:
        result = n * result if isinstance(n, TracedInt) else result * n
    return result


def _pair(x: Tensor, s: str, y: Tensor, t: str, keep: str) -> tuple[Tensor, str]:
    """Return two operands contracted; letters that `keep` has stay."""
    x, s = _summed_out(x, s, keep + t)
    y, t = _summed_out(y, t, keep + s)
    both = [c for c in s if c in t]
    # An axis of size 1 broadcasts, so that it cannot be a batch or a sum of a product.
    wide = [c for c in both if e.sizes(x)[s.index(c)] != e.sizes(y)[t.index(c)]]
    over = [c for c in both if c not in keep]
    if not over or wide:
        order = "".join(dict.fromkeys(s + t))
        result = elem(M.AND if e.is_bool(x) else M.MUL, _spread(x, s, order), _spread(y, t, order))
        return _summed_out(result, order, keep)
    batch = "".join(c for c in both if c in keep)
    gone = "".join(over)
    left = "".join(c for c in s if c not in both)
    right = "".join(c for c in t if c not in both)
    sizes = _sizes_of_letters(x, s, batch + left) + _sizes_of_letters(y, t, right)
    shared, m, n, k = (
        _total(_sizes_of_letters(x, s, batch)),
        _total(_sizes_of_letters(x, s, left)),
        _total(_sizes_of_letters(y, t, right)),
        _total(_sizes_of_letters(x, s, gone)),
    )
    a, b = _aligned(x, s, batch + left + gone), _aligned(y, t, batch + gone + right)
    lead = (shared,) if batch else ()
    result = product(e.reshape(a, (*lead, m, k)), e.reshape(b, (*lead, k, n)))
    return e.reshape(result, tuple(sizes)), batch + left + right


def _spread(x: Tensor, term: str, order: str) -> Tensor:
    x = _aligned(x, term, order)
    missing = [i for i, c in enumerate(order) if c not in term]
    return e.add_axes(x, missing)


def contracted(subscripts: str, xs: Sequence[Tensor]) -> Tensor:
    """Sum products of tensors of one dtype as Einstein does.

    Raises:
        ValueError: the subscripts do not fit the tensors.

    >>> contracted("ij,j->i", [Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 10.0])]).tolist()
    [21.0, 43.0]
    """
    terms, result = _parsed(subscripts, xs)
    parts = [_without_repeats(x, t) for x, t in zip(xs, terms, strict=True)]
    for pair in _path(parts, result):
        chosen = [parts[i] for i in sorted(pair)]
        for i in sorted(pair, reverse=True):
            del parts[i]
        keep = result + "".join(t for _, t in parts)
        (x, s), *others = chosen
        for y, t in others:
            x, s = _pair(x, s, y, t, keep if len(others) == 1 else keep + "".join(t for _, t in others))
        parts.append((x, s))
    x, s = _summed_out(*parts[0], result)
    return _aligned(x, s, result)


def _path(parts: Sequence[tuple[Tensor, str]], result: str) -> list[tuple[int, ...]]:
    """Return which operands are contracted in which order, two at a time."""
    if len(parts) < 3:
        return [(0, 1)] if len(parts) == 2 else []
    text = ",".join(t for _, t in parts) + "->" + result
    shapes = [np.broadcast_to(np.float32(0), e.sizes(x)) for x, _ in parts]
    find: Any = np.einsum_path
    steps = find(text, *shapes, optimize="greedy")[0][1:]
    path: list[tuple[int, ...]] = []
    for step in steps:
        if len(step) < 2:
            raise refused(f"np.einsum found no order for {text}")
        # A step of several operands multiplies them one after the other.
        path.append(tuple(step))
    return path


def einsum(equation: str, *args: TensorLike) -> Tensor:
    """Return products of tensors, summed over the axes whose letters the result does not have; numpy's notation.

    A letter that a tensor has twice stands for a diagonal, ``...`` for all axes that have no letter. Without ``->`` the
    result has the letters that stand once, in the order of the alphabet. Pairs of tensors are contracted as matrix
    products, in numpy's greedy order.

    Args:
        equation: for instance ``"ij,jk->ik"``.
        args: tensors or arrays of one dtype, one for each part of the equation.

    Raises:
        AssertionError: there are no tensors, or their dtypes differ.
        ValueError: the equation does not fit the tensors.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> einsum("ij,jk->ik", x, x).tolist(), einsum("ii", x).item()
    ([[7.0, 10.0], [15.0, 22.0]], 5.0)
    """
    tensors = [as_tensor(x) for x in args]
    kinds = [*dict.fromkeys(str(dtype_of(x)) for x in tensors)]
    require(len(kinds) == 1, f"einsum takes tensors of one dtype, found {', '.join(kinds) or 'none'}")
    return contracted(equation, tensors)
