"""What cannot be traced is refused with the line and a way out; values are read; tensors know the protocols."""

from __future__ import annotations

import copy
import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun.arrays.array import TracedArray
from loadrun.arrays.promotion import narrow
from loadrun.arrays.registry import registered
from loadrun.base.errors import TraceError, TraceWarning
from loadrun.tracing import trace
from tests.support.numpy_cases import agree

X = np.arange(6, dtype="f4").reshape(2, 3)


def refusal(func: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(TraceError) as found:
        trace(func, symbolic=True, capture_as_const=True)(*(args or (X.copy(),)))
    return str(found.value)


def test_the_message_names_function_line_and_way_out() -> None:
    def func(x: Any) -> Any:
        y = x + 1
        return np.unique(y)  # the line

    text = refusal(func)
    line = func.__code__.co_firstlineno + 2
    assert "np.unique has no lowering" in text
    assert f"{__file__}:{line}: return np.unique(y)  # the line" in text
    assert "depends on the data" in text
    assert "outside the traced function" in text


def test_near_names_are_suggested() -> None:
    assert "use np.histogram or" in refusal(lambda x: np.histogramdd(x))
    # Names that only look alike are none: np.square for np.unique.
    assert "\n  compute it outside" in refusal(lambda x: np.unique(x))


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (lambda x: np.fft.fft(x), "np.fft|complex"),
        (lambda x: np.frexp(x), "np.frexp"),
        (lambda x: np.gcd(x.astype("i4"), 2), "np.gcd"),
        (lambda x: np.maximum.at(x, [0], 1), r"np\.maximum\.at"),
        (lambda x: np.add.reduceat(x, [0, 1]), r"np\.add\.reduceat"),
        (lambda x: np.subtract.reduce(x), r"np\.subtract\.reduce"),
        (lambda x: x * 1j, "complex"),
        (lambda x: x.astype("c8"), "complex"),
        (lambda x: x.astype("U3"), "<U3"),
        (lambda x: x.view("i4"), "astype"),
        (lambda x: np.bincount(x.astype("i4").ravel()), "np.bincount has no lowering"),
        (lambda x: np.nanmean(x), "np.nanmean has no lowering"),
        (lambda x: np.histogram(x), "np.histogram has no lowering"),
        (lambda x: np.polyval([1, 2], x), "np.polyval has no lowering"),
        (lambda x: np.histogram2d(x[0], x[1]), "np.histogram2d"),
        (lambda x: np.apply_along_axis(np.sort, 0, x), "whole-array"),
        (lambda x: np.quantile(x, 0.5, method="weibull"), "linear"),
        (lambda x: np.matmul(x, x.T, axes=[(0, 1), (0, 1), (0, 1)]), "axes"),
        (lambda x: np.power(x.astype("i4"), x.astype("i4")), "float"),
        (lambda x: np.delete(x, x[0, 0].astype("i4")), "depend on the data"),
        (lambda x: np.arange(x[0, 0], like=x), "depends on the data"),
        (lambda x: x[True], "single bool"),
    ],
)
def test_refused(func: Callable[..., Any], words: str) -> None:
    assert re.search(words, refusal(func))


def test_writing_into_an_ndarray_is_refused() -> None:
    """The usual mistake: the parts of a plain ndarray would be constants of the graph."""

    def assigned(x: Any) -> Any:
        out = np.zeros((2, 3), "f4")
        out[:, 0] = x[:, 1]
        return out

    def added(x: Any) -> Any:
        out = np.zeros((2, 3), "f4")
        out += x
        return out

    def copied(x: Any) -> Any:
        out = np.zeros((2, 3), "f4")
        np.put_along_axis(out, x.astype("i4"), 1, 1)
        return out

    def placed(x: Any) -> Any:
        out = np.zeros(9, "f4")
        out[x[0].astype("i4")] = 1
        return out

    # Older numpy warns of an index that may be a tuple in disguise, before it takes its values.
    new = np.lib.NumpyVersion(np.__version__) >= "1.23.0"
    for func in (assigned, added, copied, *([placed] if new else [])):
        assert "np.zeros_like(x)" in refusal(func)

    def looked_up(x: Any) -> Any:
        return np.arange(9)[x.astype("i4")]

    if new:
        assert "np.take(table, index, axis=0)" in refusal(looked_up)

    def right(x: Any) -> Any:
        out = np.zeros(x.shape, "f4", like=x)
        out[:, 0] = x[:, 1]
        out += x
        return out

    traced = trace(right, symbolic=True, capture_as_const=True)
    for x in (X, X * 2, np.ones((4, 3), "f4")):
        expected = x.copy()
        expected[:, 0] += x[:, 1]
        agree(traced(x.copy()), expected)


def test_values_are_read() -> None:
    x = TracedArray(X)
    assert bool(x[1, 2] > 3)
    assert (int(x[0, 1]), float(x[1, 0]), x[1, 1].item(), x.item(2)) == (1, 3.0, 4.0, 2.0)
    assert x.tolist() == X.tolist()
    np.testing.assert_array_equal(np.asarray(x), X)
    assert np.asarray(x, dtype="f8").dtype == np.float64
    assert len(x) == 2
    assert [row.tolist() for row in x] == X.tolist()
    assert 5 in x
    assert x.tobytes() == X.tobytes()
    assert [10, 20, 30][TracedArray(np.array(1))] == 20
    assert list(range(TracedArray(np.array(3)))) == [0, 1, 2]
    assert f"{float(x.sum()):.1f}" == "15.0"
    assert max(x[0]).item() == 2
    assert divmod(7, int(x[0, 2])) == (3, 1)


@pytest.mark.parametrize(
    "func",
    [
        lambda x: np.asarray(x) + x,
        lambda x: np.array([x, x]) + x,
        lambda x: np.ascontiguousarray(x) + x,
        lambda x: np.ones(2, "f4").dot(x) + x,
    ],
)
def test_constants_by_mistake_are_warned_of(func: Any) -> None:
    with pytest.warns(TraceWarning, match=r"test_numpy_protocol\.py.*lambda x: .*\n?.*constant|constant"):
        trace(func, symbolic=True, capture_as_const=True)(X.copy())


def test_record_only_reads_no_values() -> None:
    traced = trace(lambda x: x * 2, record_only=True)
    assert isinstance(traced(X.copy()), TracedArray)
    with pytest.raises(TraceError, match="value is read"):
        trace(lambda x: x if (x + 1).sum() > 0 else -x, record_only=True)(X.copy())


def test_a_branch_on_a_value_works_and_a_changed_one_is_an_error() -> None:
    def func(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x - 1

    traced = trace(func, capture_as_const=True)
    with pytest.warns(TraceWarning, match="becomes a Python bool"):
        agree(traced(X.copy()), X * 2)
    agree(traced(X + 1), (X + 1) * 2)
    with pytest.raises(TraceError, match="path"):
        traced(-X - 1)


def test_describing_functions() -> None:
    x = TracedArray(X)
    assert np.result_type(x, np.float64) == np.float64
    assert np.result_type(x, TracedArray(np.zeros(1, "i1"))) == np.float32
    assert np.can_cast(x, "f8")
    assert not np.can_cast(x, "i4")
    assert np.isrealobj(x)
    assert not np.iscomplexobj(x)
    assert (x.ndim, x.size, x.shape, x.dtype, x.nbytes, x.itemsize) == (2, 6, (2, 3), np.float32, 24, 4)


def test_copies() -> None:
    x = TracedArray(X)
    for other in (copy.copy(x), copy.deepcopy(x), x.copy(), np.copy(x)):
        other += 1
        np.testing.assert_array_equal(x.numpy(), X)


def test_dtypes_are_narrowed() -> None:
    for wide, found in (("f8", "f4"), ("i8", "i4"), ("u4", "i4"), ("u8", "i4"), ("u2", "u2"), ("?", "?")):
        assert TracedArray(np.zeros(2, wide)).dtype == np.dtype(found) == narrow(wide)
        assert TracedArray(X).astype(wide).dtype == np.dtype(found)


def test_tensors_know_the_protocols() -> None:
    """Functions that call a tensor's methods give tensors; it keeps MegEngine's rules where operators are used."""
    t = loadrun.tensor(X)
    for found, want in (
        (np.exp(t), np.exp(X)),
        (np.mean(t, 0), X.mean(0)),
        (X + t, X + X),
        (np.clip(t, 1, 3), X.clip(1, 3)),
    ):
        assert type(found) is type(t)
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-5)
    mixed = np.add(TracedArray(X), t)
    assert type(mixed) is TracedArray


def test_a_tensor_result_is_not_its_argument() -> None:
    t = loadrun.tensor(X)
    same = np.positive(t)
    same += 1
    np.testing.assert_array_equal(t.numpy(), X)


def test_numpy_takes_over_outside_a_trace() -> None:
    np.testing.assert_array_equal(np.unique(TracedArray(X)), np.unique(X))


def test_random_numbers_are_constants() -> None:
    """numpy draws them itself, so that they are baked in, and a later call that draws others is an error."""

    def func(x: Any) -> Any:
        return x + np.random.normal(size=x.shape).astype("f4")

    traced = trace(func, symbolic=True, capture_as_const=True)
    traced(X.copy())
    with pytest.raises(TraceError, match="constant"):
        traced(X.copy())


def test_no_warnings_of_numpy() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(divide="ignore"):
            expected = np.log(X)
        agree(np.log(TracedArray(X)), expected)


def test_registry_names_what_numpy_has() -> None:
    families = registered()
    for family, found in families.items():
        assert found, family
        for name in found:
            place: Any = np
            for part in name.removeprefix("np.").split("."):
                place = getattr(place, part)
            assert callable(place), name
        for name in found:
            target: Any = np
            for part in name.split(".")[1:]:
                target = getattr(target, part)
            assert callable(target)


EAGER = {
    "concatenate": lambda t: np.concatenate([t, t]),
    "stack": lambda t: np.stack([t, t], axis=1),
    "vstack": lambda t: np.vstack([t, t]),
    "where": lambda t: np.where(t > 1, t, -t),
    "sort": lambda t: np.sort(t, axis=0),
    "expand_dims": lambda t: np.expand_dims(t, 0),
    "dot": lambda t: np.dot(t, t.T),
    "tile": lambda t: np.tile(t, 2),
    "zeros_like": lambda t: np.zeros_like(t),
    "pad": lambda t: np.pad(t, 1),
    "einsum": lambda t: np.einsum("ij->ji", t),
    "roll": lambda t: np.roll(t, 1),
}
OF_TENSORS = {
    "exp": lambda t: np.exp(t),
    "reshape": lambda t: np.reshape(t, (3, 2)),
    "clip": lambda t: np.clip(t, 0, 1),
    "flip": lambda t: np.flip(t),
    "take": lambda t: np.take(t, [0], 0),
    "split": lambda t: np.split(t, 3, 1)[0],
}


@pytest.mark.parametrize("name", [*EAGER, *OF_TENSORS])
def test_numpy_functions_give_of_plain_tensors_what_they_give_of_megengine_s(name: str) -> None:
    """Kinds of results as MegEngine 1.13 gives them; the values are numpy's."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3) / 2
    f = {**EAGER, **OF_TENSORS}[name]
    got = f(loadrun.tensor(values))
    assert type(got) is (np.ndarray if name in EAGER else loadrun.Tensor)
    np.testing.assert_allclose(np.asarray(got), f(values), rtol=1e-6)
    # While a trace runs they are recorded.
    traced = trace(f, symbolic=True)
    for _ in range(2):
        found = traced(loadrun.tensor(values))
        assert isinstance(found, loadrun.Tensor)
        np.testing.assert_allclose(found.numpy(), f(values), rtol=1e-6)


def test_opencv_takes_what_numpy_makes_of_tensors() -> None:
    cv2 = pytest.importorskip("cv2")
    t = loadrun.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    got = cv2.resize(np.concatenate([t, t]), (4, 3))
    # Halving the height gives the mean of two rows.
    want = np.concatenate([t.numpy(), t.numpy()]).reshape(3, 2, 4).mean(axis=1)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_parts_and_grids_are_tuples() -> None:
    v = loadrun.tensor([1.0, 2.0])
    parts, grids = F.split(v, 2), F.meshgrid(v, v)
    assert (type(parts), type(grids)) == (tuple, tuple)
    assert [p.numpy().tolist() for p in parts] == [[1.0], [2.0]]
    assert [g.numpy().tolist() for g in grids] == [[[1.0, 2.0], [1.0, 2.0]], [[1.0, 1.0], [2.0, 2.0]]]


NO_AXES = (
    "np.where(x > 1, x, 0), np.select([x > 1, x > 0], [x, 0 * x], 2), np.full_like(x, 1), np.zeros_like(x)",
    "np.pad(x, 0), np.ones_like(x), np.empty_like(x), np.tensordot(v, v, 1)",
    "np.zeros((), like=x)",
    "np.full((), 1.0, like=x), np.roll(x, 1), np.flip(x), np.sum(v), v.max(), v[0], v[0, ...]",
    "np.squeeze(v[:1]), v[:1].reshape(()), np.dot(v, v), np.clip(x, 0, 1), np.nan_to_num(x), -x, x + 1, np.round(x)",
)


@pytest.mark.parametrize("sources", NO_AXES)
def test_what_has_no_axes_is_an_array_where_numpy_gives_one(sources: str) -> None:
    def assignable(x: Any, v: Any) -> list[bool]:
        found = []
        for value in eval(f"[{sources}]", {"np": np, "x": x, "v": v}):
            try:
                value[...] = 0
                found.append(True)
            except TypeError:
                found.append(False)
        return found

    x, v = np.array(2, np.float32), np.float32([2, 3])
    want = assignable(x, v)
    assert trace(lambda x, v: assignable(x, v))(x.copy(), v.copy()) == want


@pytest.mark.parametrize(
    "copied", [lambda x: +x, np.copy, lambda x: x.copy(), lambda x: x.astype("f4"), np.abs]
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_assigning_to_an_argument_leaves_its_copies_as_they_were(copied: Any, symbolic: bool) -> None:
    def f(x: Any) -> tuple[Any, Any]:
        before = copied(x)
        x[1] += 2
        return before, x

    traced = trace(f, symbolic=symbolic)
    for _ in range(3):
        x = np.float32([1, 2])
        before, after = traced(x)
        assert (before.tolist(), after.tolist(), x.tolist()) == ([1, 2], [1, 4], [1, 4])


# A square of reversed rows is a view, any other matrix a copy.
SIZE_DECIDES = {
    "turned=x[:,::-1];y=turned.reshape(turned.shape[::-1])": ((3, 3), (3, 4)),
    "y=x.T.reshape(2,-1)": ((6, 2), (6, 4)),
    "y=x[:,1:].reshape(3,-1)": ((3, 4), (6, 4)),
    "y=x.T.reshape(x.shape)": ((4, 4), (4, 6)),
    "y=x[:,:x.shape[0]].reshape(-1)": ((3, 3), (3, 4)),
    "y=x[:,:3].reshape(-1)": ((4, 3), (4, 5)),
    "y=x[:,:3].ravel()": ((4, 3), (4, 5)),
    "y=x[:,:x.shape[0]].ravel()": ((3, 3), (3, 4)),
    "y=np.swapaxes(x.reshape(x.shape[0],2,-1),1,2).reshape(x.shape[0],2,-1)": ((3, 4), (3, 6)),
    "y=x.T.reshape(-1)": ((1, 4), (3, 4)),
    "y=np.ravel(x,order='F')": ((1, 4), (3, 4)),
}


@pytest.mark.parametrize("written", ["x", "y"])
@pytest.mark.parametrize("source", SIZE_DECIDES)
def test_what_is_a_view_at_some_sizes_only_is_not_taken_for_one(source: str, written: str) -> None:
    """Nor for a copy, whichever of both it is at the traced sizes."""
    view, copy = (np.zeros(shape, "f4") for shape in SIZE_DECIDES[source])

    def f(x: Any) -> Any:
        found = {"x": x, "np": np}
        exec(source, found)
        found[written][...] = 1
        return found["y" if written == "x" else "x"] * 2

    assert f(view.copy()).any()
    assert not f(copy.copy()).any()
    # Where an axis of 1 makes it a view, a trace of larger sizes may take it for a copy.
    for x in (view, *([] if 1 in view.shape else [copy])):
        said = refusal(f, x)
        assert "depends on sizes or on a memory layout that the trace does not know" in said


def test_many_axes_of_open_sizes_and_several_numbers() -> None:
    """Multiples of all numbers of the program would be larger arrays than numpy describes."""

    def f(x: Any) -> Any:
        y = x.transpose(5, 0, 3, 1, 4, 2).reshape(-1, 7, 11, 13)
        y += 1
        return y + x.sum()

    traced = trace(f, symbolic=True)
    for n in (2, 4, 2):
        x = np.arange(n * 30030 // 2, dtype="f4").reshape(n, 7, 3, 11, 5, 13) % 17
        np.testing.assert_array_equal(traced(x), f(x))


SIZE_IS_FREE = {
    "y=x.transpose(0,2,1).reshape(x.shape[0],-1)": False,
    "y=x.transpose(2,0,1).reshape(-1,x.shape[1])": False,
    "y=x.transpose(1,2,0).reshape(-1,x.shape[0])": True,
    "y=x[:,::-1].reshape(-1)": False,
    "y=x[:,::-1].reshape(x.shape[0],x.shape[1],x.shape[2],1)": True,
    "y=x[::-1].reshape(x.shape[0],-1)": True,
    "y=x[1:].reshape(-1)": True,
    "y=x[0].ravel()": True,
    "y=x[:,0].ravel()": False,
    "y=x[:,:,None].reshape(-1)": True,
    "y=x.reshape(x.shape[0],x.shape[1]//2,2,-1).transpose(0,2,1,3).reshape(-1,x.shape[2])": False,
    "y=x[:,::2].reshape(x.shape[0],-1)": False,
    "y=(x+1).T.reshape(-1)": False,
    "y=x[:,:,:2].transpose(1,0,2).reshape(-1,2)": False,
    "y=np.ravel(x.T,order='F')": True,
}


@pytest.mark.parametrize("written", ["x", "y"])
@pytest.mark.parametrize("source", SIZE_IS_FREE)
def test_what_sizes_do_not_decide_follows_numpy_at_all_of_them(source: str, written: str) -> None:
    def f(x: Any) -> tuple[Any, Any]:
        found = {"x": x, "np": np}
        exec(source, found)
        found[written][...] += 1
        return x * 2, found["y"] * 2

    traced = trace(f, symbolic=True, capture_as_const=True)
    traced(np.zeros((2, 4, 6), "f4"))
    file = io.BytesIO()
    traced.dump(file, arg_names=["x"])
    runner = loadrun.Runner(loadrun.loads(file.getvalue()))
    for shape in ((3, 6, 4), (4, 4, 4), (2, 6, 6), (5, 8, 3)):
        values = np.arange(np.prod(shape), dtype="f4").reshape(shape)
        want = f(values.copy())
        if written == "y":
            assert (want[0] != 2 * values).any() == SIZE_IS_FREE[source]
        for given, expected in zip(runner.run({"x": values}).outputs, want, strict=True):
            np.testing.assert_array_equal(given.value, expected)


def test_forms_of_tensors_as_in_megengine() -> None:
    t = loadrun.tensor(X)
    if hasattr(np, "from_dlpack"):
        assert np.from_dlpack(t).tolist() == X.tolist()
    assert t[:, :, :].numpy().tolist() == X.tolist()
    assert t[1, :, :].numpy().tolist() == X[1].tolist()
    with pytest.raises(IndexError, match="too many indices"):
        _ = t[0, 0, 0]
    assert (loadrun.Tensor(None).shape, loadrun.tensor(None).dtype) == ((0,), np.float32)
