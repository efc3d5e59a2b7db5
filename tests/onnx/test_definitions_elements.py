"""Definitions of ONNX's elementwise, reducing and quantized operators: results computed by hand."""

from __future__ import annotations

import ast
import re
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadrun.arrays.registry import FUNCTIONS, UFUNCS, name_of
from loadrun.graph import Opr
from loadrun.graph.composite import Composite, NodeTypes
from loadrun.graph.dtypes import Array, DType, dtype_of
from loadrun.onnx import operators
from loadrun.onnx.operators import find
from loadrun.ops.infer import kernel_of
from loadrun.ops.registry import Call, ShapeCall, implementation


def run(op: str, *inputs: Any, opset: int = 24, domain: str = "", **attributes: Any) -> Array:
    """Run a node with one output as an engine does, and check its shape rule; an input is (name of type, values)."""
    given = [None if v is None else v if isinstance(v, tuple) else (dtype_of(v).name, v) for v in inputs]
    types = tuple(None if g is None else DType(g[0]) for g in given)
    definition = find(domain, op, opset)
    assert definition is not None
    node = NodeTypes(types, (), opset, (True,))
    node = node._replace(outputs=definition.types_of(node, attributes))
    dtypes = tuple(t for t in types if t is not None)
    arrays = [np.asarray(g[1], DType(g[0]).np) for g in given if g is not None]
    kind = "CompositePointwise" if definition.pointwise else "Composite"
    opr = Opr(kind, (Composite(definition, attributes, node),), exact=True)
    call = Call(opr, dtypes, node.outputs)
    with np.errstate(all="ignore"):
        result = kernel_of(call)(call, *arrays)
    shapes = ShapeCall(opr, dtypes, tuple(a.shape for a in arrays), tuple(arrays))
    assert list(implementation(kind).shape(shapes)) == [result.shape]
    assert result.dtype == node.outputs[0].np
    return result


def ints(*values: int, dtype: str = "i8") -> Array:
    return np.array(values, dtype)


def reals(*values: float) -> Array:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "want"),
    [
        ("Div", [ints(7, -7, -6), ints(2, 2, -3)], {}, [3, -3, 2]),
        ("Mod", [ints(-7, 7), ints(3, -3)], {"fmod": 1}, [-1, 1]),
        ("Pow", [ints(3, -2), ints(39, 3)], {}, [4052555153018976267, -8]),
        ("Pow", [ints(9, 10), reals(0.5, -1)], {}, [3, 0]),
        ("Shrink", [ints(-3, 0, 3, dtype="i4")], {"bias": 1.0, "lambd": 1.5}, [-2, 0, 2]),
        ("Cast", [reals(0.1, 1 / 3, 1e10)], {"to": 8}, ["0.1", "0.33333334", "1e+10"]),
        ("Cast", [reals(2.5, -2.5, 9)], {"to": 22}, [3, -3, -7]),
        # 1.0625 lies in the middle of 1 and 1.125, 1.1875 in that of 1.125 and 1.25: 1 and 1.25 have even codes.
        ("Cast", [reals(1.0625, 1.1875, 465, 1e-9)], {"to": 17}, [1, 1.25, 448, 0]),
        ("Cast", [reals(3, 4.1, 0.75)], {"to": 24, "round_mode": "nearest"}, [4, 4, 1]),
        ("BitCast", [("BFloat16", [1.5, -2])], {"to": 4}, [0x3FC0, 0xC000]),
        ("ReduceMean", [ints(-7, 2), ints(0)], {"keepdims": 0}, -2),
        ("ReduceLogSumExp", [reals(1000, 1000)], {}, [1000 + np.log(2)]),
        ("QuantizeLinear", [reals(3, 5, -40), reals(2), ("Int4", [1])], {}, [3, 3, -8]),
        ("DequantizeLinear", [ints(3, 5, 7, 9), reals(1, 10), ints(3, 5)], {"block_size": 2}, [0, 2, 20, 40]),
    ],
)
def test_results(op: str, inputs: list[Any], attributes: dict[str, Any], want: Any) -> None:
    got = run(op, *inputs, opset=26, **attributes)
    if got.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)


def test_versions_before_broadcasting() -> None:
    x, y = np.arange(12, dtype=np.int64).reshape(2, 3, 2), ints(1, 2, 3)
    got = run("Div", x, y, opset=6, axis=1, broadcast=1)
    np.testing.assert_array_equal(got, x // y[:, None])


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "why"),
    [
        ("Div", [ints(1), ints(0)], {}, "whole numbers are divided by 0"),
        ("ReduceSum", [ints(1)], {"keepdims": 2}, "its keepdims is 2, expected 0 or 1"),
        ("Cast", [("String", ["one"])], {"to": 7}, "a text is no number of type int64"),
        ("Elu", [reals(1)], {"alpha": float("nan")}, "its alpha is nan, expected a finite number"),
    ],
)
def test_refusals(op: str, inputs: list[Any], attributes: dict[str, Any], why: str) -> None:
    with pytest.raises((ValueError, ZeroDivisionError), match=why):
        run(op, *inputs, **attributes)


def test_products_of_quantized_numbers() -> None:
    a, b = ints(3, 5, dtype="u1").reshape(1, 2), ints(2, 7, 4, 1, dtype="u1").reshape(2, 2)
    one, zero = reals(0.5).reshape(()), ints(1, dtype="u1").reshape(())
    # (2, 4) @ ((1, 6), (3, 0)) = (14, 12); times 0.5 * 0.5 / 0.5, plus 1.
    np.testing.assert_array_equal(run("QLinearMatMul", a, one, zero, b, one, zero, one, zero), [[8, 7]])
    x, w = a.reshape(1, 2, 1, 1), b.reshape(2, 2, 1, 1)
    got = run("QLinearConv", x, one, zero, w, one, zero, one, zero, ints(1, 0, dtype="i4"))
    # 2 * 1 + 4 * 6 + 1 = 27 and 2 * 3 + 0 = 6; 13.5 is a tie.
    np.testing.assert_array_equal(got.reshape(-1), [15, 4])


NOT_TRACED = """
add.at fft.fft fft.ifft fft.irfft fft.rfft ldexp lexsort maximum.at minimum.at multiply.at nextafter subtract.at unique
"""
"""What definitions call on known values alone, or in functions that have a counterpart where they are traced."""


def test_functions_that_definitions_call_are_recorded_in_traces() -> None:
    FUNCTIONS.load()
    recorded = {name_of(f) for f in (*FUNCTIONS, *UFUNCS)}
    called = set()
    for path in Path(operators.__file__).parent.glob("*.py"):
        text = path.read_text("utf-8")
        names = {ast.unparse(n.func) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)}
        if "arrays.names import" in text:
            called |= {n[3:] for n in names if re.fullmatch(r"np(\.\w+)+", n)}
    functions = {n: reduce(getattr, n.split("."), np) for n in called}
    missing = {n for n, f in functions.items() if not isinstance(f, type) and name_of(f) not in recorded}
    assert "require" in called
    assert sorted(missing) == NOT_TRACED.split()
