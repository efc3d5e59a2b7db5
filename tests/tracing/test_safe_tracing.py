"""What a trace freezes is said with its line; a dump's testcases are held against the Python function."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.functional as F
from loadrun import Verdict, trace
from loadrun.base.errors import TraceError, TraceWarning

X = np.array([1.0, 2.0, 3.0], "f4")


def frozen(function: Callable[..., Any], *args: Any, **options: Any) -> list[warnings.WarningMessage]:
    """The warnings of a function's first call."""
    traced = trace(function, **{"symbolic": True, "capture_as_const": True, **options})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        traced(*args)
    return [w for w in found if w.category is TraceWarning]


def _branch(x: Any) -> dict[str, Any]:
    if x.sum() > 0:
        return {"y": x * 2}
    return {"y": x - 1}


def _integer(x: Any) -> Any:
    for _ in range(int(F.argmax(x))):
        x = x + 1
    return x


def _float(x: Any) -> Any:
    return x * float(x.max())


def _item(x: Any) -> Any:
    return x * x[1].item()


@pytest.mark.parametrize(
    ("function", "kind", "line"),
    [
        (_branch, "bool", 1),
        (_integer, "int", 1),
        (_float, "float", 1),
        (_item, "float", 1),
    ],
)
@pytest.mark.parametrize("array", [False, True])
def test_a_value_that_becomes_a_number(
    function: Callable[..., Any], kind: str, line: int, array: bool
) -> None:
    if function is _integer and array:
        pytest.skip("F.argmax takes tensors")
    (found,) = frozen(function, X if array else loadrun.tensor(X))
    assert f"a traced value becomes a Python {kind} in test_safe_tracing.py:" in str(found.message)
    assert Path(found.filename) == Path(__file__)
    assert found.lineno == function.__code__.co_firstlineno + line


def test_constants_and_sizes_freeze_nothing() -> None:
    def function(x: Any) -> Any:
        weight = loadrun.tensor(X)
        return x * float(weight.sum()) if x.shape[0] == 3 else x

    assert frozen(function, loadrun.tensor(X)) == []


def test_where_the_python_code_runs_again_it_is_checked() -> None:
    """Without capture_as_const later calls run the function and notice the other branch by themselves."""
    assert frozen(_branch, loadrun.tensor(X), capture_as_const=False) == []


def traced_quietly(function: Callable[..., Any], *args: Any) -> Any:
    made = trace(function, symbolic=True, capture_as_const=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        made(*args)
    return made


def test_a_dump_says_which_testcase_takes_another_branch() -> None:
    made = traced_quietly(_branch, loadrun.tensor(X))
    file = io.BytesIO()
    with pytest.warns(
        TraceWarning, match=r"testcase 1: 'y' differs by .* between the Python function"
    ) as found:
        made.dump(file, arg_names=["x"], input_data=["#rand(0,1)", "#rand(-2,-1)"])
    (said,) = found
    assert "traced: MUL in test_safe_tracing.py" in str(said.message)
    assert "now:    SUB in test_safe_tracing.py" in str(said.message)
    assert Path(said.filename) == Path(__file__)
    # What the file holds is what its graph gives.
    assert [r.verdict.value for r in loadrun.run(loadrun.loads(file.getvalue()))] == ["pass", "pass"]
    made.dump(io.BytesIO(), arg_names=["x"], input_data=["#rand(0,1)", "#rand(-2,-1)"], check=False)


def test_a_dump_says_that_its_graph_gives_next_to_nothing_for_small_numbers() -> None:
    """The function's numbers say how far off is too far; the graph's are far smaller."""
    factor = [1e-12]
    made = traced_quietly(lambda x: {"y": x * factor[0]}, loadrun.tensor(X))
    factor[0] = 1e-4
    data = {"arg_names": ["x"], "input_data": ["[0.1, 0.2, 0.3]"]}
    with pytest.warns(TraceWarning, match=r"'y' differs by .* \(tolerance 1e-08\)"):
        made.dump(io.BytesIO(), **data)
    # A tolerance that was given is MegEngine's measure, absolute below 1.
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made.dump(io.BytesIO(), **data, maxerr=1e-4)
    assert not [w for w in found if w.category is TraceWarning]


def test_a_dump_says_what_narrowing_changes() -> None:
    """2**31 * 2 is 2**32 in 64 bits and 0 in 32."""
    made = traced_quietly(lambda x: {"n": np.arange(3) * 2**31 + x.astype(np.int64)}, X.astype(np.float64))
    with pytest.warns(TraceWarning, match=r"(?s)'n' differs .*computes in 64 bits, the graph in 32"):
        made.dump(io.BytesIO(), arg_names=["x"], input_data=["#rand(0,1)"])
    # (1e8 + 1) - 1e8 is 1 in 64 bits and 0 in 32.
    made = traced_quietly(lambda x: {"y": (x + 1e8) - 1e8}, X.astype(np.float64))
    with pytest.warns(TraceWarning, match=r"(?s)'y' differs .*computes in 64 bits, the graph in 32"):
        made.dump(io.BytesIO(), arg_names=["x"], input_data=["[1, 1, 1.5e9]"])


def test_a_dump_that_agrees_says_nothing(tmp_path: Path) -> None:
    """Tensors, ndarrays, keywords, structures, unused arguments; functions of loadrun on ndarrays."""

    def function(parts: Any, unused: Any, *, scale: float, shift: Any) -> dict[str, Any]:
        a, b = parts
        return {"y": F.relu(a * scale) + shift, "n": (b > 0).sum()}

    traced = trace(function, symbolic=True, capture_as_const=True)
    traced((loadrun.tensor(X), X > 2), X, scale=2.0, shift=loadrun.tensor(0.5))
    (tmp_path / "list.txt").write_text(
        "a:[-0.5,0.25,1];b:[true,false,true];shift:[0.25]\na:[1,-1,0.5];b:[1,1,1];shift:[4]\n"
    )
    traced.dump(tmp_path / "m.mge", arg_names=["a", "b", "u"], input_data=f"@{tmp_path}/list.txt")
    assert [r.verdict for r in loadrun.run(tmp_path / "m.mge")] == [Verdict.PASS] * 2


def test_opencv_on_a_traced_value() -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    made = trace(lambda x: cv2.resize(x, (4, 4)), symbolic=True, capture_as_const=True)
    with pytest.raises(TraceError, match=r"OpenCV is called on a traced value, in test_safe_tracing.py:\d+"):
        made(np.ones((8, 8), "f4"))
