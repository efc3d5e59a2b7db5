"""What MegEngine 1.13.0 could not record: functions it lacks, operands it refuses, and traced graphs at other sizes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun import Tensor
from loadrun.base.errors import EngineError
from loadrun.engines import make_engine
from loadrun.tensors import quantized_dtypes

RNG = np.random.RandomState(0)
A = RNG.uniform(-2, 2, (4, 3, 5)).astype(np.float32)
B = RNG.uniform(-2, 2, (4, 3, 5)).astype(np.float32)


def close(found: Tensor, want: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(found.numpy(), want, rtol=tolerance, atol=tolerance)


def test_erf() -> None:
    close(F.erf(Tensor(A)), np.vectorize(math.erf)(A.astype(np.float64)))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_along_a_dimension(dim: int, descending: bool) -> None:
    x = RNG.randint(-9, 9, (4, 3, 5)).astype(np.int32)
    sign = -1 if descending else 1
    values, at = F.sort(Tensor(x), descending, dim)
    assert np.array_equal(values.numpy(), sign * np.sort(sign * x, dim))
    assert np.array_equal(np.take_along_axis(x, at.numpy(), dim), values.numpy())
    assert at.numpy().dtype == np.int32


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 1, 3, 4), (5, 4, 2)),
        ((1, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (1, 5, 4, 2)),
        ((0, 3, 4), (4, 5)),
        ((2, 3, 0), (0, 5)),
    ],
)
def test_matmul_broadcasts_stacks(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = RNG.rand(*a).astype(np.float32), RNG.rand(*b).astype(np.float32)
    close(Tensor(x) @ Tensor(y), x @ y)


def test_matmul_modes() -> None:
    with pytest.raises(ValueError, match="float16"):
        F.matmul(Tensor(A[0]), Tensor(A[0].T), compute_mode="float16")
    half = Tensor(A[0]).astype("float16")
    close(F.matmul(half, half.T, compute_mode="FLOAT32"), A[0] @ A[0].T, 1e-2)


def test_dot_repeats_a_scalar() -> None:
    close(F.dot(Tensor([1.0, 2.0, 3.0]), Tensor(2.0)), 12)
    close(F.dot(2.0, np.array([1, 2], np.float32)), 6)


def test_svd_options() -> None:
    u, s, v = (t.numpy() for t in F.svd(Tensor(A), full_matrices=True))
    assert u.shape == (4, 3, 3)
    assert v.shape == (4, 5, 5)
    np.testing.assert_allclose(u * s[:, None] @ v[:, :3], A, atol=1e-5)
    (alone,) = F.svd(Tensor(A), compute_uv=False)
    close(alone, np.linalg.svd(A.astype(np.float64), compute_uv=False))


def test_wide_numpy_operands_narrow() -> None:
    x = Tensor([1, 2])
    assert (x + np.int64(3)).dtype == np.int32
    assert (x + np.array([0.5, 1.0])).dtype == np.float32
    assert (np.float64(2) * x).tolist() == [2.0, 4.0]
    assert (x + (1, 2)).tolist() == [2, 4]
    assert (Tensor(np.array([1, 2], np.uint8)) * 3).dtype == np.uint8


def test_lists_alone_have_the_dtype_of_their_numbers() -> None:
    assert F.add([1, 2], [0.5, 0.5]).tolist() == [1.5, 2.5]
    close(F.log([1, F.exp(1)]), [0, 1])
    assert (Tensor([1.0]).astype("bfloat16") + [1]).tolist() == [2.0]


def test_numbers_beyond_the_dtype_wrap() -> None:
    assert (Tensor([1, 2], dtype="int8") + 300).tolist() == [45, 46]
    assert (Tensor([1, 2], dtype="uint8") + -1).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: Tensor([1]) + "x", TypeError, "unsupported operand"),
        (lambda: Tensor([1]) & 1, TypeError, "requires 2 bool tensors, found Int32 and int"),
        (lambda: ~Tensor([1]), TypeError, "requires a bool tensor"),
        (lambda: Tensor([1]) + None, TypeError, "^the operand is None and is not supported.$"),
        (lambda: Tensor([1], dtype="int8") + Tensor([1], dtype="uint8"), EngineError, "signedness"),
        (lambda: F.max(Tensor([])), EngineError, "without elements"),
        (lambda: F.sum(Tensor(A), (0, 3)), AssertionError, "axis 3 is out of bounds"),
        (lambda: F.topk(Tensor(A), 2), EngineError, "TopK"),
        (
            lambda: Tensor(A).item(),
            AssertionError,
            r"one element can be converted to a number, found shape \[4, 3, 5\]",
        ),
        (lambda: F.norm(Tensor(A)), TypeError, "axis is required"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_ndarrays_in_front_follow_the_tensor() -> None:
    x = Tensor([1, 2], dtype="int8")
    for op in (operator.add, operator.floordiv, operator.lt, operator.eq, operator.pow):
        front, back = op(np.array([3, 5], np.int8), x), op(Tensor(np.array([3, 5], np.int8)), x)
        assert isinstance(front, Tensor)
        assert front.dtype == back.dtype
        assert front.tolist() == back.tolist()
    assert 2 in x
    assert 3 not in x


def test_check_non_finite_scales_in_place() -> None:
    tensors = [Tensor([1.0, 2.0]), Tensor([4.0])]
    assert F.math._check_non_finite(tensors, 0.5).tolist() == [0]
    assert [t.tolist() for t in tensors] == [[0.5, 1.0], [2.0]]
    assert F.math._check_non_finite(Tensor([math.inf])).tolist() == [1]


SIZES: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda x: F.matmul(x, Tensor(np.ones((5, 2), np.float32))),
    "matmul-stacks": lambda x: F.matmul(x, x, transpose_b=True),
    "matmul-broadcast": lambda x: F.matmul(Tensor(np.ones((2, 1, 2, 3), np.float32)), x),
    "sort": lambda x: F.sort(x, dim=0)[0],
    "var": lambda x: F.var(x, (0, 2)),
    "mean-of-all": lambda x: x - F.mean(x),
    "argmax": lambda x: F.argmax(x),
    "normalize": lambda x: F.normalize(x, axis=-1),
    "topk": lambda x: F.topk(x.reshape(x.shape[0], -1), 3)[0],
    "isnan": lambda x: F.isnan(x.astype("int32")),
    "accuracy": lambda x: F.topk_accuracy(x[:, 0], F.argmax(x[:, 1], 1), 2),
    "dot": lambda x: F.dot(x.flatten(), 2.0),
}


@pytest.mark.parametrize("name", SIZES)
def test_recorded_graphs_run_at_other_sizes(name: str) -> None:
    function = SIZES[name]
    traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(function)
    traced(Tensor(A))
    graph = traced.graph(["x"])
    for batch in (1, 7):
        x = RNG.uniform(-2, 2, (batch, 3, 5)).astype(np.float32)
        (found,) = make_engine("reference", graph, graph.outputs).run({"x": x})
        want = function(Tensor(x)).numpy()
        np.testing.assert_allclose(found.reshape(want.shape), want, rtol=1e-5, atol=1e-6)


def test_arrays_of_bfloat16_are_rounded_as_megengine_rounds_them() -> None:
    # MegEngine 1.13: Tensor(np.array([...], bfloat16)), whose dtype rounds at once.
    x = np.array([1.00390625, 1.01, 3.14159, 1e38], quantized_dtypes.bfloat16)
    found = Tensor(x).numpy().view(np.float32)
    np.testing.assert_array_equal(found, np.float32([1.0, 1.0078125, 3.140625, 9.96920996838687e37]))


def test_arrays_of_ml_dtypes_are_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs ml_dtypes")
    x = Tensor(np.array([1.00390625, 1.01, 3.14159], ml_dtypes.bfloat16))
    assert x.dtype.metadata == quantized_dtypes.bfloat16.metadata
    assert x.tolist() == [1.0, 1.0078125, 3.140625]
    assert Tensor([1.0], dtype=ml_dtypes.bfloat16).dtype.metadata == x.dtype.metadata


LOW = {"intb1": 1, "intb2": 3, "intb4": 15}
"""Types of few bits and the largest number that MegEngine 1.13 takes; it takes odd ones alone."""


@pytest.mark.parametrize(("name", "largest"), LOW.items())
def test_integers_of_few_bits_are_odd(name: str, largest: int) -> None:
    dtype = getattr(quantized_dtypes, name)
    taken = [*range(-largest, largest + 1, 2)]
    assert Tensor(taken, dtype=dtype).tolist() == taken
    for value in {*range(-17, 18)} - {*taken}:
        text = f"{name} holds the odd numbers between -{largest} and {largest}, found {value}$"
        with pytest.raises(ValueError, match=text):
            Tensor([1, value], dtype=dtype)
    x = Tensor(np.array([1, -1], dtype))
    assert x.numpy().dtype == np.int8
    assert x.reshape(2, 1).dtype.metadata == dtype.metadata
    assert Tensor([1.7], dtype=dtype).tolist() == [1]
    for bad in ([-2.9], [float("nan")], [300], np.array([0], dtype)):
        with pytest.raises(ValueError, match="odd numbers"):
            Tensor(bad, dtype=dtype)
    # MegEngine has no kernels that compute with them.
    for call in (lambda: x + x, lambda: x.astype("float32"), lambda: Tensor([1.0]).astype(dtype)):
        with pytest.raises(RuntimeError, match=name.replace("intb", "IntB")):
            call()


UINT16 = (
    "abs",
    "neg",
    "square",
    "relu",
    "sign",
    "sum",
    "prod",
    "max",
    "min",
    "sort",
    "add",
    "sub",
    "mul",
    "mod",
    "less",
)
"""What MegEngine 1.13 does not compute in uint16."""


@pytest.mark.parametrize("name", UINT16)
def test_uint16_is_refused_where_megengine_refuses_it(name: str) -> None:
    x = Tensor(np.array([1, 300], np.uint16))
    function = getattr(F, name)
    with pytest.raises(RuntimeError, match=r"not take Uint16; convert it to int32 or float32"):
        function(x, x) if name in ("add", "sub", "mul", "mod", "less") else function(x)


@pytest.mark.parametrize("other", [np.uint16, np.uint8])
def test_uint16_is_computed_in_floats_where_megengine_does_so(other: Any) -> None:
    x, y = Tensor(np.array([1, 300], np.uint16)), Tensor(np.array([2, 3], other))
    assert F.exp(Tensor(np.array([0, 1], np.uint16))).numpy().dtype == np.float32
    np.testing.assert_allclose((x / y).numpy(), np.float32([0.5, 100]))
    np.testing.assert_array_equal((x + Tensor([0.5, 0.5])).numpy(), np.float32([1.5, 300.5]))


def test_booleans_are_not_sorted() -> None:
    for call in (F.sort, lambda x: F.topk(x, 1)):
        with pytest.raises(RuntimeError, match="does not take Bool"):
            call(Tensor([True, False]))


@pytest.mark.parametrize("dtype", ["uint16", "bool"])
def test_positions_of_what_megengine_does_not_search_are_those_of_integers(dtype: str) -> None:
    # Its Argmax takes both and leaves the result unwritten.
    x = np.array([[0, 5, 1], [1, 0, 7]]).astype(dtype)
    assert F.argmax(Tensor(x, dtype=dtype), 1).tolist() == x.argmax(1).tolist()
    assert F.argmin(Tensor(x, dtype=dtype)).item() == x.argmin()
    traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(lambda t: F.argmax(t, 1))
    traced(Tensor(x, dtype=dtype))
    (search,) = [o for o in traced.graph().oprs if o.type == "Argmax"]
    assert str(search.inputs[0].dtype) == "Int32"


def test_evenly_spaced_numbers_refuse_what_megengine_refuses() -> None:
    odd = Tensor(4, dtype="uint16")
    for bounds in ((odd, 4, 5), (0, odd, 5), (0, 4, odd), (0, 4, Tensor(True))):
        with pytest.raises(EngineError, match="convert it to int32 or float32"):
            F.linspace(*bounds)
    assert F.linspace(Tensor(False), Tensor(True), 3).tolist() == [0, 0.5, 1]


def test_an_identity_matrix_of_uint16() -> None:
    found = F.eye(2, 3, dtype="uint16")
    assert (found.dtype, found.tolist()) == (np.uint16, [[1, 0, 0], [0, 1, 0]])


def test_the_axis_of_a_vector_is_removed_where_it_has_one_element() -> None:
    assert F.squeeze(Tensor([3.0])).shape == F.squeeze(Tensor([3.0]), -1).shape == ()
    traced = loadrun.tracing.trace(symbolic=True)(lambda t: F.squeeze(t, 0))
    assert traced(Tensor([2.0])).tolist() == traced(Tensor([3.0])).item() - 1 == 2
    for refused in (F.squeeze, traced):
        with pytest.raises(EngineError, match=r"cannot remove axis 0 of \[2\]"):
            refused(Tensor([1.0, 2.0]), *([0] if refused is F.squeeze else []))


def test_new_axes_of_a_scalar() -> None:
    x = Tensor(2.0)
    for made, shape in (
        (F.expand_dims(x, 0), (1,)),
        (F.expand_dims(x, (0, -1)), (1, 1)),
        (x[None], (1,)),
        (x[..., None, None], (1, 1)),
        (x[True, None], (1, 1)),
    ):
        assert (made.shape, made.reshape(-1).tolist()) == (shape, [2.0])
    x[None] = 5.0
    assert (x.shape, x.item()) == ((), 5.0)
