"""What MegEngine's record does not hold: newer functions, other sizes than the traced ones, numpy's index rules."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun import Tensor
from loadrun.megengine import functional as F, tensor

RNG = np.random.default_rng(5)


def dumped(function: Callable[..., Any], *traced: np.ndarray) -> Callable[..., list[np.ndarray]]:
    """The function as a model file made at the traced sizes."""
    fun = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(function)
    fun(*[tensor(x) for x in traced])
    file = io.BytesIO()
    names = [f"a{i}" for i in range(len(traced))]
    fun.dump(file, arg_names=names)
    bundle = loadrun.loads(file.getvalue())

    def run(*arrays: np.ndarray) -> list[np.ndarray]:
        (result,) = loadrun.run(bundle, dict(zip(names, arrays, strict=True)))
        return [out.value for out in result.outputs if out.value is not None]

    return run


def assigned(x: Any) -> Any:
    y = x * 1
    y[:, 1:] = np.float32([[7.0]])
    y[0] = y[1, :1]
    return y


OTHER_SIZES: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
    ("flatten", lambda x: F.flatten(x, 0, 1), lambda x: x.reshape(-1, x.shape[2])),
    ("reshape", lambda x: x.reshape(x.shape[0], -1), lambda x: x.reshape(x.shape[0], -1)),
    ("repeat", lambda x: F.repeat(x, 2, 1), lambda x: np.repeat(x, 2, 1)),
    ("repeat-flat", lambda x: F.repeat(x, 2), lambda x: np.repeat(x, 2)),
    ("tile", lambda x: F.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    ("tile-more", lambda x: F.tile(x, (2, 1, 2, 1)), lambda x: np.tile(x, (2, 1, 2, 1))),
    ("roll", lambda x: F.roll(x, 1, 0), lambda x: np.roll(x, 1, 0)),
    ("roll-back", lambda x: F.roll(x, -1, 1), lambda x: np.roll(x, -1, 1)),
    ("roll-flat", lambda x: F.roll(x, 3), lambda x: np.roll(x, 3)),
    ("split", lambda x: F.split(x, 2)[0], lambda x: np.array_split(x, 2)[0]),
    ("split-at", lambda x: F.split(x, [1])[1], lambda x: x[1:]),
    ("full_like", lambda x: F.full_like(x, 3), lambda x: np.full_like(x, 3)),
    ("zeros", lambda x: F.zeros(x.shape), np.zeros_like),
    ("ones", lambda x: F.ones((x.shape[0], 2)), lambda x: np.ones((x.shape[0], 2), "f")),
    ("eye", lambda x: F.eye(x.shape[0], x.shape[1]), lambda x: np.eye(*x.shape[:2], dtype="f")),
    ("arange", lambda x: F.arange(x.shape[0]), lambda x: np.arange(x.shape[0], dtype="f")),
    ("linspace", lambda x: F.linspace(0, 1, x.shape[1]), lambda x: np.linspace(0, 1, x.shape[1], dtype="f")),
    (
        "broadcast_to",
        lambda x: F.broadcast_to(x[:, :1], x.shape),
        lambda x: np.broadcast_to(x[:, :1], x.shape),
    ),
    ("broadcast_to-none", lambda x: F.broadcast_to(x, (2, None, None, None)), lambda x: np.stack([x, x])),
    (
        "meshgrid",
        lambda x: F.meshgrid(x[:, 0, 0], x[0, :, 0])[1],
        lambda x: np.meshgrid(x[:, 0, 0], x[0, :, 0])[1],
    ),
    (
        "gather",
        lambda x: F.gather(x, 1, F.zeros_like(x).astype("int32")),
        lambda x: np.take_along_axis(x, np.zeros(x.shape, "i4"), 1),
    ),
    ("last", lambda x: x[x.shape[0] - 1, : x.shape[1] // 2], lambda x: x[-1, : x.shape[1] // 2]),
    ("mask", lambda x: x[x > 0], lambda x: x[x > 0]),
    ("mask-joined", lambda x: x[:, x[0] > 0], lambda x: x[:, x[0] > 0]),
    ("assign", assigned, lambda x: assigned(x.copy())),
    ("non_zero", lambda x: F.non_zero(x > 0), lambda x: np.argwhere(x > 0).astype("i4")),
]


@pytest.mark.parametrize(
    ("function", "reference"), [c[1:] for c in OTHER_SIZES], ids=[c[0] for c in OTHER_SIZES]
)
def test_a_dump_follows_the_sizes_of_its_input(
    function: Callable[..., Any], reference: Callable[..., Any]
) -> None:
    run = dumped(function, RNG.normal(size=(2, 3, 4)).astype("f"))
    for shape in ((2, 3, 4), (5, 6, 2), (3, 2, 7)):
        x = RNG.normal(size=shape).astype("f")
        (got,) = run(x)
        want = reference(x)
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_size_of_one_is_broadcast_into_a_part_of_another_size() -> None:
    def set_rows(x: Any, row: Any) -> Any:
        y = x * 1
        y[1:] = row
        return y

    run = dumped(set_rows, np.ones((2, 3), "f"), np.zeros((1, 3), "f"))
    (got,) = run(np.ones((4, 3), "f"), np.zeros((1, 3), "f"))
    assert got.tolist() == [[1, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("shape", [(5,), (2, 5), (1, 2, 3, 2, 1, 2, 3), (0, 3)])
def test_non_zero(shape: tuple[int, ...]) -> None:
    x = RNG.integers(0, 2, shape).astype(np.int32)
    np.testing.assert_array_equal(F.non_zero(tensor(x)).numpy(), np.argwhere(x))
    for got, want in zip(F.non_zero(tensor(x), as_tuple=True), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)
        assert got.dtype == np.int32


def test_where_of_a_mask_alone_gives_positions() -> None:
    rows, columns = F.where(tensor([[True, False], [True, True]]))
    assert (rows.tolist(), columns.tolist()) == ([0, 1, 1], [0, 0, 1])


def test_non_zero_wants_a_tensor() -> None:
    with pytest.raises(TypeError, match="list"):
        F.non_zero([1, 0])


X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
s_ = np.s_
INDICES: list[Any] = [
    s_[True],
    s_[False],
    s_[None, False, 1],
    s_[-9:],
    s_[:-9],
    s_[:, -9:2],
    s_[::-1, 2::-1],
    s_[2:-9:-1],
    s_[()],
    s_[[0, 1], None, [1, 2]],
    s_[0, :, [1, 2]],
    s_[[[0], [1]], :, [[1, 2]]],
    s_[[True, False, True], 1],
    s_[np.array(2)],
    s_[np.uint8(2), np.array([1, 3], np.uint8)],
    s_[X > 30],
    s_[:, (X > 30)[0]],
    s_[None, X[..., 0] > 20, None],
]


@pytest.mark.parametrize("index", INDICES, ids=lambda i: str(i).replace("\n", " ")[:40])
def test_reading_follows_numpy(index: Any) -> None:
    got = tensor(X)[index]
    assert got.shape == X[index].shape
    np.testing.assert_array_equal(got.numpy(), X[index])


@pytest.mark.parametrize("index", INDICES, ids=lambda i: str(i).replace("\n", " ")[:40])
def test_writing_follows_numpy(index: Any) -> None:
    for value in (-1.5, RNG.normal(size=X[index].shape).astype("f")):
        want = X.copy()
        want[index] = value
        got = tensor(X)
        got[index] = value if isinstance(value, float) else tensor(value)
        assert got.shape == X.shape
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize(
    ("index", "kind", "text"),
    [
        (s_[..., ...], IndexError, "only one ellipsis"),
        (s_[0, 0, 0, 0], IndexError, "3 axes, but 4"),
        (np.array([True, False]), IndexError, r"shape \[2\]"),
        (s_[:, np.ones((4, 4), bool)], IndexError, r"shape \[4, 4\].*\[4, 5\]"),
        (s_[np.array([0.5])], ValueError, "integer"),
        (s_["a"], ValueError, "'a'"),
        (s_[0.5:], ValueError, "bounds of a slice"),
        (tensor([1.5]), ValueError, "Float32"),
        (s_[3], RuntimeError, "out of bounds"),
        (s_[[0, 3]], RuntimeError, "out of bounds"),
    ],
)
def test_an_impossible_index_is_refused(index: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        tensor(X)[index]


def test_a_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \[3\] does not fit a part of shape \[4, 5\]"):
        tensor(X)[0] = np.zeros(3)


def test_assignment_leaves_other_names_alone() -> None:
    x = tensor([1, 2, 3])
    y, part = x, x[1:]
    z = x + 0
    x[1] = 9
    assert (x.tolist(), y.tolist(), z.tolist(), part.tolist()) == ([1, 9, 3], [1, 9, 3], [1, 2, 3], [2, 3])


def test_a_value_is_converted_to_the_dtype_of_the_tensor() -> None:
    x = tensor([1, 2, 3])
    x[0] = tensor(7.9)
    x[1:] = np.array([2.5, -2.5])
    assert x.dtype == np.int32
    assert x.tolist() == [7, 2, -2]


def test_scalars_stay_scalars() -> None:
    x = tensor(2.5)
    assert F.zeros_like(x).shape == F.copy(x).shape == F.full((), 1).shape == x[...].shape == ()
    assert F.squeeze(tensor([[3]])).shape == ()
    assert F.reshape(tensor([3]), ()).shape == ()


def test_stacked_scalars_count_as_vectors() -> None:
    """What MegEngine 1.13.0 gives."""
    x = tensor(2.5)
    assert F.stack([x, x]).tolist() == [[2.5], [2.5]]
    assert F.stack([x, x], axis=-1).tolist() == [[2.5, 2.5]]
    assert F.stack([x]).tolist() == [2.5]


def test_ndarrays_are_taken_too() -> None:
    a = np.float32([[1, 2], [3, 4]])
    assert F.concat([a, tensor([[5, 6]])]).tolist() == [[1, 2], [3, 4], [5, 6]]
    assert F.transpose(a, np.array([1, 0])).tolist() == [[1, 3], [2, 4]]
    assert F.tile(a, (2, 1, 1)).shape == (2, 2, 2)
    assert F.arange(5, 1).shape == (0,)


def test_scatter_changes_the_given_tensor() -> None:
    x = tensor(np.zeros((2, 2), "f"))
    y = F.scatter(x, 1, tensor([[1], [0]]), tensor(np.float32([[5], [6]])))
    assert y.tolist() == [[0, 5], [6, 0]]
    assert x.tolist() == y.tolist()


def rotated(x: Tensor, y: Tensor) -> Any:
    """Some arithmetic on complex numbers, and numpy's on the same."""
    z = F.complex(x, y)
    z = -(z * z + z - F.polar(x, y))
    return z.reshape(-1, 2)[1:] if isinstance(z, Tensor) else z


def test_complex_numbers() -> None:
    x, y = np.float32([[1, -2, 0.5], [3, 0.25, -1]]), np.float32([[0.5, 1, -1], [2, -0.75, 4]])
    z = x + 1j * y.astype(np.complex128)
    want = -(z * z + z - x * np.exp(1j * y.astype(np.float64))).reshape(-1, 2)[1:]
    found = rotated(tensor(x), tensor(y))
    assert found.dtype == np.complex64
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-6)
    for symbolic in (False, True):
        shapes = []

        @loadrun.tracing.trace(symbolic=symbolic)
        def parts(x: Tensor, y: Tensor, into: list[Any] = shapes) -> tuple[Tensor, Tensor]:
            z = rotated(x, y)
            into.append((tuple(z.shape), z.dtype))
            return F.real(z), F.imag(z)

        for _ in range(3):
            real, imag = parts(tensor(x), tensor(y))
            np.testing.assert_allclose(real.numpy() + 1j * imag.numpy(), want, rtol=1e-6)
        assert shapes[0] == ((2, 2), np.complex64)


def test_complex_numbers_of_parts_that_broadcast() -> None:
    x, y = tensor(np.float32([[1], [2]])), tensor(np.float32([3, 4]))
    assert F.complex(x, y).tolist() == [[1 + 3j, 1 + 4j], [2 + 3j, 2 + 4j]]
    assert F.complex(1.0, 2.0).tolist() == 1 + 2j
    half = tensor([1, 2], dtype="int32")
    assert F.imag(F.complex(half, half)).tolist() == [1, 2]
    assert (F.real(y).tolist(), F.imag(y).tolist()) == ([3, 4], [0, 0])


def test_a_graph_with_complex_numbers_holds_real_ones() -> None:
    outside = F.complex(tensor([1.0, 2.0]), tensor([3.0, 4.0]))

    @loadrun.tracing.trace(symbolic=True, capture_as_const=True)
    def fun(x: Tensor) -> Tensor:
        z = F.concat([F.complex(x, x) * outside, outside])
        return F.real(z)

    file = io.BytesIO()
    for _ in range(2):
        # (1 + i)(1 + 3i) = -2 + 4i, (2 + 2i)(2 + 4i) = -4 + 12i
        assert fun(tensor([1.0, 2.0])).tolist() == [-2, -4, 1, 2]
    fun.dump(file, arg_names=["x"])
    bundle = loadrun.loads(file.getvalue())
    assert {v.dtype.name for o in bundle.graph.oprs for v in o.outputs if v.dtype} <= {"Float32", "Int32"}
    (result,) = loadrun.run(bundle, {"x": np.float32([3, 5])})
    assert result.outputs[0].value.tolist() == [-6, -10, 1, 2]


@pytest.mark.parametrize(
    ("fun", "said"),
    [
        (lambda x: F.complex(x, x), "some among what the function returns"),
        (lambda x: F.complex(x, x).sum(), "some as inputs of Reduce"),
        (lambda x: F.concat([F.complex(x, x), x]), "some as inputs of"),
    ],
)
def test_complex_numbers_are_not_recorded(fun: Any, said: str) -> None:
    with pytest.raises(RuntimeError, match=f"complex numbers cannot be recorded, found {said}"):
        loadrun.tracing.trace(symbolic=True)(fun)(tensor([1.0]))


def test_complex_arguments_are_not_recorded() -> None:
    z = F.complex(tensor([1.0]), tensor([2.0]))
    with pytest.raises(RuntimeError, match="found complex numbers that are an argument"):
        loadrun.tracing.trace(symbolic=True)(lambda z: F.real(z))(z)


def test_what_complex_numbers_do_not_do() -> None:
    z = F.complex(tensor([1.0]), tensor([2.0]))
    for fun, said in (
        (lambda: z * 2, "MUL does not take Complex64 with int"),
        (lambda: F.exp(z), "EXP does not"),
    ):
        with pytest.raises(RuntimeError, match=said):
            fun()


@pytest.mark.parametrize(
    "call",
    [lambda: F.arange(0, 1, 0), lambda: F.meshgrid(tensor([1]), indexing="yx"), lambda: F.concat([])],
)
def test_arguments_without_a_meaning_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"range|indexing|empty"):
        call()


def test_negative_zero_is_not_zero() -> None:
    x, mask = tensor(np.ones(2, np.float32)), tensor(np.array([True, True]))

    def filled(x: Any, mask: Any) -> Any:
        a, b = x * 1.0, x * 1.0
        a[mask] = 0.0
        b[mask] = -0.0
        return a, b, x * 0.0, x * -0.0

    traced = loadrun.tracing.trace(symbolic=True, capture_as_const=True)(filled)
    for function in (filled, traced, traced):
        signs = [np.signbit(y.numpy()).tolist() for y in function(x, mask)]
        assert signs == [[False] * 2, [True] * 2, [False] * 2, [True] * 2]


def test_the_constant_of_a_number_is_not_shared_with_its_readers() -> None:
    read = F.maximum(5.0, tensor(1.0)).numpy()
    read[...] = 7
    held = loadrun.tensors.as_tensor(5.0)
    held += 1
    assert (held.item(), F.maximum(5.0, tensor(1.0)).item()) == (6.0, 5.0)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            np.array([1, 1 << 40]),
            "int64 narrows to int32, which is what graphs hold: 1099511627776 becomes 0",
        ),
        (np.array([1e300, 1.0]), r"float64 narrows to float32, .*: 1e\+300 becomes inf"),
        (np.array([1 << 31], np.uint32), "uint32 narrows to int32, .*: 2147483648 becomes -2147483648"),
    ],
)
def test_narrowing_that_changes_values_is_said(value: np.ndarray, said: str) -> None:
    with pytest.warns(UserWarning, match=said):
        tensor(value)


def test_narrowing_that_changes_nothing_is_silent() -> None:
    assert tensor(np.array([1 << 30])).tolist() == [1 << 30]
    assert tensor(np.array([np.inf, 0.1])).tolist() == [np.inf, float(np.float32(0.1))]
