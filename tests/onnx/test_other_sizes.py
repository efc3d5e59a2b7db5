"""Models that are loaded at one size and run at others: what numpy gives there, or an error that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
from loadrun.base.errors import EngineError, InputError
from loadrun.cli import main

onnx = pytest.importorskip("onnx", reason="models are built with the package onnx")
parser = pytest.importorskip("onnx.parser")

F = np.float32
Array = np.ndarray[Any, Any]


def written(body: str, shapes: dict[str, tuple[int, ...]], opset: int = 19, **stored: Any) -> bytes:
    """A model of float inputs whose sizes are all open."""
    inputs = ", ".join(f"float[{','.join(f'{n}{i}' for i in range(len(s)))}] {n}" for n, s in shapes.items())
    model = parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}]>\ng ({inputs}) => (float y) {{ {body} }}'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.elem_type = 0
    for name, value in stored.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    return bytes(model.SerializeToString())


def loaded(body: str, shapes: dict[str, tuple[int, ...]], opset: int = 19, **stored: Any) -> loadrun.Runner:
    """A model of float inputs whose sizes are all open, loaded at some."""
    return loadrun.Runner(loadrun.load(written(body, shapes, opset, **stored), input_shapes=shapes))


def run(runner: loadrun.Runner, **feeds: Array) -> Array:
    value = runner.run(feeds).outputs[0].value
    assert value is not None
    return value


def numbers(*shape: int) -> Array:
    return np.random.default_rng(7).permutation(int(np.prod(shape))).reshape(shape).astype(F)


def windows(x: Array, axis: int, kernel: int, stride: int, least: float, pads: tuple[int, int]) -> Array:
    """The maximum of windows along one axis."""
    widths = [pads if i == axis else (0, 0) for i in range(x.ndim)]
    wide = np.pad(x, widths, constant_values=least)
    view = np.lib.stride_tricks.sliding_window_view(wide, kernel, axis)
    return np.asarray(view[(slice(None),) * axis + (slice(None, None, stride),)].max(-1))


def same(n: int, kernel: int, stride: int, *, upper: bool) -> tuple[int, int]:
    total = max((-(-n // stride) - 1) * stride + kernel - n, 0)
    return (total // 2, total - total // 2) if upper else (total - total // 2, total // 2)


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
def test_padding_that_keeps_the_size(pad: str) -> None:
    for stride in (1, 2, 3):
        runner = loaded(
            f'y = MaxPool<kernel_shape=[3,4],strides=[{stride},{stride}],auto_pad="{pad}">(x)',
            {"x": (1, 2, 6, 6)},
        )
        for h, w in ((6, 6), (5, 6), (6, 5), (7, 8), (9, 4)):
            x = numbers(1, 2, h, w)
            upper = pad == "SAME_UPPER"
            want = windows(x, 2, 3, stride, -np.inf, same(h, 3, stride, upper=upper))
            want = windows(want, 3, 4, stride, -np.inf, same(w, 4, stride, upper=upper))
            np.testing.assert_array_equal(run(runner, x=x), want)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("pad", "first"), [("SAME_UPPER", [3, 1, 1, 2, 2]), ("SAME_LOWER", [2, 1, 1, 1, 2])])
def test_windows_shorter_than_their_stride_move_to_the_middle(op: str, pad: str, first: list[int]) -> None:
    # From ONNX Runtime 1.32 at sizes 5 to 9; which of 1, 2, 3 ... the first window takes.
    node = f'y = {op}<kernel_shape=[1],strides=[5],auto_pad="{pad}">(x)'
    runner = loaded(node, {"x": (1, 1, 6)})
    for size, begin in zip(range(5, 10), first, strict=True):
        x = np.arange(1, size + 1, dtype=np.float32).reshape(1, 1, -1)
        want = [begin + 5 * i for i in range(-(-size // 5))]
        assert run(runner, x=x)[0, 0].tolist() == want
        assert run(loaded(node, {"x": (1, 1, size)}), x=x)[0, 0].tolist() == want


def test_a_convolution_that_keeps_the_size() -> None:
    weight = numbers(1, 1, 3, 3)
    runner = loaded('y = Conv<strides=[2,2],auto_pad="SAME_UPPER">(x, w)', {"x": (1, 1, 8, 8)}, w=weight)
    for h, w in ((8, 8), (7, 8), (9, 5)):
        x = numbers(1, 1, h, w)
        wide = np.pad(x, [(0, 0), (0, 0), same(h, 3, 2, upper=True), same(w, 3, 2, upper=True)])
        view = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2]
        np.testing.assert_array_equal(run(runner, x=x), np.einsum("nchwij,ocij->nohw", view, weight))


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool"])
def test_windows_that_begin_inside_are_counted(operator: str) -> None:
    runner = loaded(
        f"y = {operator}<kernel_shape=[3],strides=[2],pads=[1,1],ceil_mode=1>(x)", {"x": (1, 1, 7)}
    )
    for n in (7, 8, 6, 11, 4):
        x = numbers(1, 1, n)
        rows = []
        for begin in range(-1, n + 2, 2):
            # The last window is the first that reaches the end of the data and the pads.
            rows.append(x[0, 0, max(begin, 0) : begin + 3])
            if begin + 3 >= n + 1:
                break
        rows = [r for r in rows if r.size]
        want = [float(r.max() if operator == "MaxPool" else r.mean()) for r in rows]
        np.testing.assert_allclose(run(runner, x=x)[0, 0], want, rtol=1e-6)


def test_where_the_largest_stands() -> None:
    runner = loaded("v, y = MaxPool<kernel_shape=[2,2],strides=[1,1]>(x)", {"x": (1, 2, 4, 5)})
    for shape in ((1, 2, 4, 5), (3, 1, 3, 7)):
        x = numbers(*shape)
        at = run(runner, x=x)
        view = np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3))
        np.testing.assert_array_equal(x.reshape(-1)[at], view.max((-1, -2)))


def test_values_put_back_where_they_were() -> None:
    body = "v, i = MaxPool<kernel_shape=[2,2],strides=[2,2]>(x)\n y = MaxUnpool<kernel_shape=[2,2],strides=[2,2]>(v, i)"
    runner = loaded(body, {"x": (1, 1, 4, 4)})
    for shape in ((1, 1, 4, 4), (2, 3, 6, 2)):
        x = numbers(*shape) + 1
        n, c, h, w = shape
        best = x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5)).repeat(2, 2).repeat(2, 3)
        np.testing.assert_array_equal(run(runner, x=x), np.where(x == best, x, 0))


FAR = 2**63 - 1
SLICES = [(s, e, t) for s in (0, 2, 5, 9, -1, -3, -7) for e in (0, 3, 6, 20, -1, -4, FAR) for t in (1, 2)]
BACK = [(s, e, t) for s in (-1, 4, 7, FAR) for e in (-FAR, 0, 2) for t in (-1, -2)]


@pytest.mark.parametrize("at", [6, 4])
def test_slices(at: int) -> None:
    for start, end, step in SLICES + BACK:
        given = {"s": np.array([start]), "e": np.array([end]), "a": np.array([0]), "t": np.array([step])}
        runner = loaded("y = Slice(x, s, e, a, t)", {"x": (at, 2)}, **given)
        for n in (at, 3, 5, 8, 12):
            index = slice(start, None if end == -FAR else end, step)
            x = numbers(n, 2)
            try:
                got = run(runner, x=x)
            except EngineError:
                # A static bound beyond an axis that is smaller than it was.
                assert n < at, (start, end, step, n)
                continue
            np.testing.assert_array_equal(got, x[index], err_msg=f"{start}:{end}:{step} of {n}")


def test_a_bound_that_is_a_size_counted_from_the_end() -> None:
    body = "s = Shape<start=1,end=2>(x)\n e = Neg(s)\n y = Slice(x, zero, e, zero)"
    runner = loaded(body, {"x": (7, 2)}, zero=np.array([0]))
    for shape in ((7, 2), (5, 3), (3, 3), (9, 1)):
        x = numbers(*shape)
        np.testing.assert_array_equal(run(runner, x=x), x[: -shape[1]])


def test_a_triangle_beside_a_diagonal_that_is_a_size() -> None:
    body = "s = Shape<start=1,end=2>(p)\n k = Squeeze(s)\n y = Trilu<upper=0>(x, k)"
    runner = loaded(body, {"x": (2, 6), "p": (1, 3)})
    for rows, columns, past in ((2, 6, 3), (3, 5, 1), (4, 4, 0)):
        x = numbers(rows, columns) + 1
        got = run(runner, x=x, p=np.zeros((1, past), F))
        np.testing.assert_array_equal(got, np.tril(x, past))


def test_frames_of_a_longer_signal() -> None:
    given = {"step": np.array(4), "length": np.array(8)}
    runner = loaded("y = STFT(x, step, , length)", {"x": (1, 24, 1)}, **given)
    for n in (24, 40, 9):
        x = numbers(1, n, 1)
        frames = [np.fft.rfft(x[0, i : i + 8, 0]) for i in range(0, n - 7, 4)]
        want = np.stack([np.real(frames), np.imag(frames)], -1)[None]
        np.testing.assert_allclose(run(runner, x=x), want, atol=1e-4)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_borders(mode: str) -> None:
    runner = loaded(f'y = Pad<mode="{mode}">(x, p)', {"x": (4, 3)}, p=np.array([2, 1, 1, 2]))
    for shape in ((4, 3), (6, 5), (3, 8)):
        x = numbers(*shape)
        want = np.pad(x, ((2, 1), (1, 2)), mode)  # type: ignore[call-overload]
        np.testing.assert_array_equal(run(runner, x=x), want)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_that_follow_from_sizes(mode: str) -> None:
    """To the next multiple of 4, as models with windows do it."""
    body = (
        "s = Shape<start=0,end=1>(x)\n m = Mod(s, four)\n d = Sub(four, m)\n r = Mod(d, four)\n"
        f'p = Concat<axis=0>(zero, zero, r, zero)\n y = Pad<mode="{mode}">(x, p)'
    )
    runner = loaded(body, {"x": (6, 2)}, four=np.array([4]), zero=np.array([0]))
    for n in (6, 5, 8, 7, 13):
        x = numbers(n, 2)
        want = np.pad(x, ((0, -n % 4), (0, 0)), mode)  # type: ignore[call-overload]
        np.testing.assert_array_equal(run(runner, x=x), want)


def test_the_middle_of_any_size() -> None:
    runner = loaded("y = CenterCropPad<axes=[0]>(x, s)", {"x": (7, 2)}, s=np.array([5]))
    for n in (7, 5, 4, 2, 10):
        x = numbers(n, 2)
        cut = (n - 5) // 2
        want = x[cut : cut + 5] if n > 5 else np.pad(x, (((5 - n) // 2, 5 - n - (5 - n) // 2), (0, 0)))
        np.testing.assert_array_equal(run(runner, x=x), want)


def test_parts_of_uneven_sizes() -> None:
    for at in (6, 7):
        runner = loaded("a, y, b = Split<axis=0,num_outputs=3>(x)", {"x": (at,)})
        for n in (6, 7, 8, 11):
            each = -(-n // 3)
            np.testing.assert_array_equal(run(runner, x=numbers(n)), numbers(n)[each : 2 * each])


def test_different_values() -> None:
    runner = loaded("y = Unique(x)", {"x": (6,)})
    for n in (6, 1, 4, 15):
        x = numbers(n) // 2
        np.testing.assert_array_equal(run(runner, x=x), np.unique(x))


def test_more_boxes_than_there_were() -> None:
    given = {"most": np.array([50]), "iou": np.array([0.5], F)}
    runner = loaded("y = NonMaxSuppression(b, s, most, iou)", {"b": (1, 2, 4), "s": (1, 1, 2)}, **given)
    for n in (2, 30):
        corners = np.arange(n, dtype=F)[:, None]
        boxes = np.concatenate([corners, corners, corners + 1, corners + 1], 1)[None]
        found = run(runner, b=boxes, s=numbers(1, 1, n))
        np.testing.assert_array_equal(np.sort(found[:, 2]), np.arange(n))


Case = tuple[str, dict[str, tuple[int, ...]], dict[str, tuple[int, ...]], dict[str, Any]]
AT_TWO_SIZES: dict[str, Case] = {
    "boxes of another batch": (
        "y = NonMaxSuppression(b, s, most)",
        {"b": (1, 4, 4), "s": (1, 1, 4)},
        {"b": (2, 4, 4), "s": (2, 1, 4)},
        {"most": np.array([2])},
    ),
    "pairs of indices": (
        "i = Cast<to=7>(x)\n y = GatherND(w, i)",
        {"x": (2, 1)},
        {"x": (2, 2)},
        {"w": np.eye(4, dtype=F)},
    ),
    "the largest of nothing": (
        "y = ReduceMax<keepdims=0>(x, a)",
        {"x": (0, 2)},
        {"x": (1, 2)},
        {"a": np.array([0])},
    ),
    "real numbers, then complex ones": (
        "y = DFT(x)",
        {"x": (1, 4, 1)},
        {"x": (1, 4, 2)},
        {},
    ),
    "rows of other lengths": ("y = Unique<axis=0>(x)", {"x": (4, 2)}, {"x": (4, 3)}, {}),
}


@pytest.mark.parametrize("name", AT_TWO_SIZES)
def test_one_graph_holds_at_all_sizes(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="its values are those that count")
    body, shapes, others, stored = AT_TWO_SIZES[name]
    runner = loaded(body, shapes, **stored)
    model = onnx.load_from_string(written(body, shapes, **stored))
    model.graph.output[0].ClearField("type")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for sizes in (shapes, others):
        feeds = {n: numbers(*s) for n, s in sizes.items()}
        (want,) = session.run(None, feeds)
        np.testing.assert_allclose(run(runner, **feeds), want, rtol=1e-5, atol=1e-5)


def test_a_running_product() -> None:
    runner = loaded("y = CumProd(x, a)", {"x": (4,)}, opset=26, a=np.array(0))
    for n in (4, 9):
        x = numbers(n) / 4 + 0.5
        np.testing.assert_allclose(run(runner, x=x), x.cumprod(), rtol=1e-5)


def test_an_index_that_another_input_decides() -> None:
    """A value that only the feed tells is refused with the operator's name."""
    runner = loaded(
        "i = Cast<to=7>(s)\n y = Slice(x, i, e, a)",
        {"x": (4, 4), "s": (2,)},
        e=np.array([9, 9]),
        a=np.array([0, 1]),
    )
    with pytest.raises(EngineError, match=r"Slice 'y' .* starts of 1, ends of 2, axes of 2 numbers"):
        run(runner, x=numbers(4, 4), s=numbers(1))


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("d = Sub(s, three)  m = Max(d, zero)", {2: 0, 3: 0, 5: 2}),
        ("d = Sub(s, three)  m = Div(d, two)", {8: 2, 2: 0, 1: -1, 4: 0}),
        ("d = Sub(s, three)  m = Min(d, zero)", {2: -1, 5: 0}),
    ],
)
def test_differences_of_sizes_may_be_negative(body: str, want: dict[int, int]) -> None:
    stored = {"zero": np.array([0]), "two": np.array([2]), "three": np.array([3])}
    nodes = f"s = Shape(x)  {body}  c = Cast<to=1>(m)  y = Add(x, c)"
    for first in want:
        runner = loaded(nodes, {"x": (first,)}, **stored)
        for n, m in want.items():
            assert run(runner, x=np.zeros(n, F)).tolist() == [m] * n


def test_what_a_negative_difference_equals() -> None:
    stored = {"two": np.array([2]), "three": np.array([3])}
    nodes = "s = Shape(x)  d = Sub(s, three)  k = Equal(d, two)  m = Where(k, d, three)"
    nodes += "  c = Cast<to=1>(m)  y = Add(x, c)"
    runner = loaded(nodes, {"x": (2,)}, **stored)
    assert run(runner, x=np.zeros(1, F)).tolist() == [3]
    assert run(runner, x=np.zeros(5, F)).tolist() == [2] * 5


FIXED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch,3,6,6] x) => (float[batch,3,1,1] y) { y = GlobalAveragePool(x) }"""


def test_sizes_that_the_file_fixes_are_refused_unless_they_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "m.onnx", tmp_path / "out.mge"
    onnx.save(parser.parse_model(FIXED), path)
    fits, wide = numbers(2, 3, 6, 6), numbers(1, 3, 4, 8)
    np.testing.assert_allclose(run(loadrun.Runner(path), x=fits)[..., 0, 0], fits.mean((2, 3)), rtol=1e-6)
    said = r"input 'x' has shape \[\?, 3, 6, 6\] in the file, the given array has \[1, 3, 4, 8\]; .*x:1,3,4,8"
    with pytest.raises(InputError, match=said):
        run(loadrun.Runner(path), x=wide)
    asked = loadrun.Runner(loadrun.load(path, input_shapes={"x": (1, 3, 4, 8)}))
    np.testing.assert_allclose(run(asked, x=wide)[..., 0, 0], wide.mean((2, 3)), rtol=1e-6)
    data = ["-d", "x:{1,3,4,8}", "-o", str(out), "-q"]
    assert main(["pack", str(path), *data]) == 2
    assert main(["pack", str(path), *data, "--no-assert"]) == 2
    assert "in the file, the given array has [1, 3, 4, 8]" in capsys.readouterr().err
    assert not out.exists()
    assert main(["pack", str(path), *data, "--input-shape", "x:1,3,4,8"]) == 0


def test_a_picture_of_another_size_is_scaled_on_request(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason="pictures are written with OpenCV")
    path, picture = tmp_path / "m.onnx", tmp_path / "p.png"
    onnx.save(parser.parse_model(FIXED), path)
    cv2.imwrite(str(picture), np.full((4, 8, 3), 20, np.uint8))
    assert main([str(path), "--allow-uncompared", "--input", f"x:{picture}"]) == 2
    assert main([str(path), "--allow-uncompared", "--input", f"x:{picture}", "--resize-input"]) == 0


def test_a_batch_that_is_asked_for_is_no_other_size(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(FIXED.replace("batch", "1")), path)
    assert main(["pack", str(path), "-d", "#rand(0,1)", "-o", str(tmp_path / "m.mge"), "-q"]) == 0
    assert main(["convert", str(tmp_path / "m.mge"), str(tmp_path / "n.onnx"), "-q"]) == 0
    assert main([str(tmp_path / "n.onnx"), "--batch-size", "4"]) == 0
    assert (
        main(["bench", str(tmp_path / "n.onnx"), "--batch-size", "4", "--min-time", "0", "--min-passes", "1"])
        == 0
    )
