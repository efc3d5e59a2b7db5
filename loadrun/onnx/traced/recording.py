"""A graph of composites as one of MegEngine's operators, at one set of sizes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...arrays import protocol
from ...arrays.array import TracedArray
from ...arrays.names import recording
from ...arrays.promotion import all_tensors
from ...base.errors import FormatError, LoadRunError, UnsupportedError
from ...graph import Graph, Opr, Var
from ...graph.composite import Composite
from ...graph.dtypes import Array, DType, held_array, plain
from ...layers import emit as e
from ...ops.infer import infer_dtypes, kernel_of
from ...ops.registry import Call, Shape, pay_operator
from ...passes.constants import subgraph
from ...passes.loadable import make_loadable
from ...passes.narrowing import narrow_dtype
from ...tensors import Tensor, apply
from ...tensors.access import dtype_of, from_stored, recorded_variable, snapshot, variable_of
from ...tensors.applying import type_cvt
from ...tensors.naming import scope as named_part
from ...tensors.switches import exact_arithmetic, use
from ...tensors.symbolic import TracedNumber
from ...testcase import EXPECT, Check, checks_of
from ..file import check
from ..graph import RULE
from ..nodes import Subgraph
from . import HALVES, KERNELS, OPERATORS, Untraceable, traced
from .elements import as_mode
from .session import Draws, Session, stored_type

__all__ = ["Untraceable", "recorded"]

_HALF = ("Float16", "BFloat16")
_DECIDED = {"If": frozenset((0,)), "Loop": frozenset((0, 1))}
"""Inputs that decide what is computed, by operator."""
_HINT = "give what decides as constants="
Made = Any
"""A value while the graph is made: an array that is known, a `TracedArray`, or a list or None of ONNX's objects."""


class _Walker:
    """Goes through the operators of a graph."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.converted: set[int] = set()

    def run(
        self, graph: Graph, values: dict[int, Made], targets: Iterable[Var] | None = None
    ) -> dict[int, Made]:
        """Compute the values of what the targets need; inputs are given."""
        for opr in graph.needed(targets):
            if opr.outputs[0].id in values:
                continue
            if opr.tensors:
                value = opr.tensors[0].value()
                values[opr.outputs[0].id] = value[()] if opr.tensors[0].dtype.name == "Object" else value
                if opr.tensors[0].dtype.np.kind in "biuf":
                    self.session.remember(value, stored_type(opr.tensors[0].dtype), opr.tensors[0].name or "")
                continue
            inputs = [values[v.id] for v in opr.inputs]
            with named_part(opr.name or next((v.name for v in opr.outputs if v.name), opr.title)):
                whole = as_mode(opr) if _any_traced(inputs) else None
                if whole is None:
                    results = self._results(opr, inputs)
                else:
                    mode, dtype = whole[0].mode, whole[0].dtype
                    operands = [tensor_of(values[v.id], dtype) for v in whole[1]]
                    results = [_around(e.elem(mode, *operands))]
            for var, value in zip(opr.outputs, results, strict=False):
                values[var.id] = value
                if isinstance(value, TracedArray) and var.name:
                    self._name(value, var.name)
        return values

    def _name(self, value: TracedArray, name: str) -> None:
        """Name a variable as the model does; what only other runtimes convert gets the last name."""
        own = variable_of(value)
        while own is not None and own.owner.type == "TypeCvtV2":
            (source,) = own.owner.inputs
            kept = source.name is not None and source.id not in self.converted
            if kept or narrow_dtype(_typed(source)) != narrow_dtype(_typed(own)):
                break
            self.converted.add(source.id)
            source.name, own = None, source
        if own is not None and own.name is None and own.owner.type != "Host2DeviceCopy":
            own.name = name

    def _results(self, opr: Opr, inputs: list[Made]) -> list[Made]:
        try:
            if not _any_traced(inputs) and not (opr.params and getattr(_definition(opr), "random", False)):
                return self._computed(opr, inputs)
            if isinstance(opr.params[0] if opr.params else None, Composite):
                return self._composite(opr, inputs)
            dtypes = [stored_type(_typed(v)) for v in opr.inputs]
            tensors = [tensor_of(a, d) for a, d in zip(inputs, dtypes, strict=True)]
            outs = apply(
                opr.type, *opr.params, inputs=tensors, n=len(opr.outputs), output_dtype=opr.output_dtype
            )
            return [*map(_around, outs)]
        except FormatError:
            raise
        except Untraceable as error:
            raise self._asking(opr, inputs, error) from error
        except LoadRunError as error:
            why = str(error).partition("\n")[0]
            raise UnsupportedError(f"{_called(opr)}: {why}") from error
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            NotImplementedError,
            TypeError,
            ValueError,
        ) as error:
            raise UnsupportedError(f"{_called(opr)} cannot be written: {error}") from error

    def _asking(self, opr: Opr, inputs: Sequence[Made], error: Untraceable) -> Untraceable:
        """Return an error that says how the values that an operator needs are given."""
        p = opr.params[0] if opr.params else None
        known = _DECIDED.get(opr.title, p.definition.known) if isinstance(p, Composite) else frozenset[int]()
        if not isinstance(p, Composite) or _HINT in str(error) or not known or "left open" in str(error):
            return Untraceable(f"{_called(opr)}: {error}")
        places = [i for i, here in enumerate(p.present) if here]
        deciding = [v for i, v in zip(places, inputs, strict=True) if i in known]
        names = sorted({n for t in all_tensors(deciding) for n in self._inputs_behind(t)})
        return Untraceable(
            f"{_called(opr)}: {error}; {_HINT}{{{', '.join(f'{n!r}: ...' for n in names)}}} (--constant)"
        )

    def _inputs_behind(self, tensor: Tensor) -> list[str]:
        """Return the names of the inputs that a value depends on."""
        var = variable_of(tensor)
        todo, seen, names = [] if var is None else [var], set[int](), list[str]()
        for var in todo:
            if var.id not in seen:
                seen.add(var.id)
                names += [var.name or ""] if var.owner.type == "Host2DeviceCopy" else []
                todo += var.owner.inputs
        return names

    def _computed(self, opr: Opr, inputs: list[Made]) -> list[Made]:
        """Compute what is known."""
        ins, outs = (tuple(map(_typed, vs)) for vs in (opr.inputs, opr.outputs))
        call = Call(opr, ins, outs)
        arrays = [held_array(a, d) for a, d in zip(inputs, ins, strict=True)]
        pay_operator(opr, ins, outs, arrays)
        with use(None):
            result = kernel_of(call)(call, *arrays)
        results = result if isinstance(result, tuple) else (result,)
        return [r[()] if d.name == "Object" else r for r, d in zip(results, outs, strict=False)]

    def _composite(self, opr: Opr, inputs: list[Made]) -> list[Made]:
        p = opr.params[0]
        assert isinstance(p, Composite)
        halves = p.definition.name in HALVES
        args = [_argument(a, _typed(v), halves) for a, v in zip(inputs, opr.inputs, strict=True)]
        placed = p.placed(args)
        function = OPERATORS.get(p.definition.function)
        result = NotImplemented if function is None else function(*placed, **_taken(function, p.keywords))
        if result is NotImplemented:
            result = p.call(args, **({"stream": Draws(p.seed)} if p.definition.random else {}))
        results = result if isinstance(result, tuple) else (result,)
        return [_finished(r, _typed(v)) for r, v in zip(results, opr.outputs, strict=False)]

    def lower(self, function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Record a call of one of `loadrun.arrays.names`."""
        if not _any_traced(args) and not _any_traced(keywords.values()):
            return NotImplemented
        if function is _SUBGRAPH:
            return self.subgraph(*args, **keywords)
        how = KERNELS.get(function)
        result = NotImplemented if how is None else how(*args, **keywords)
        if result is not NotImplemented:
            return tuple(map(_around, result)) if isinstance(result, tuple) else _around(result)
        if function.__module__.partition(".")[0] == "numpy":
            return protocol.lower_function(function, args, keywords)
        return NotImplemented

    def subgraph(self, graph: Subgraph, inputs: Sequence[Any], captured: Sequence[Any] = ()) -> list[Any]:
        """Go through the operators of a branch or of one turn of a loop."""
        by_name = graph.named(inputs, captured)
        values: dict[int, Made] = {}
        for var in graph.graph.inputs:
            value = by_name[var.name or ""]
            values[var.id] = _finished(value, _typed(var))
        values = self.run(graph.graph, values)
        return [values[v.id] for v in graph.graph.outputs]


_SUBGRAPH = getattr(Subgraph.__call__, "__wrapped__", Subgraph.__call__)


def _definition(opr: Opr) -> Any:
    return getattr(opr.params[0], "definition", None)


def _called(opr: Opr) -> str:
    name = opr.name or next((v.name for v in opr.outputs if v.name), "")
    return f"{opr.title} {name!r}" if name else opr.title


def _typed(var: Var) -> DType:
    assert var.dtype is not None
    return var.dtype


def _any_traced(values: Iterable[Any]) -> bool:
    """Return whether a value is traced, or a size that is left open or data decide, in lists and dicts too."""
    for value in values:
        if isinstance(value, (Tensor, TracedNumber)):
            return True
        if isinstance(value, slice):
            value = (value.start, value.stop, value.step)
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(value, (list, tuple, dict)) and _any_traced(inner):
            return True
    return False


def _argument(value: Made, dtype: DType, halves: bool) -> Any:
    """Return a value as definitions take it: halves as float32 unless they are wanted as they are."""
    if dtype.name not in _HALF or (halves and dtype.name == "Float16"):
        return value
    return (
        value.astype(np.float32)
        if isinstance(value, np.ndarray)
        else _around(e.cast(snapshot(value), "float32"))
    )


def _around(value: Any) -> Any:
    """Return a tensor as a traced array, all else as it is."""
    if isinstance(value, Tensor) and not isinstance(value, TracedArray):
        return traced(value)
    return value


def _taken(function: Callable[..., Any], keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keywords without those that only definitions ask for."""
    code = function.__code__
    if code.co_flags & 8 or "types" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return keywords
    return {k: v for k, v in keywords.items() if k != "types"}


def _finished(value: Any, dtype: DType) -> Made:
    """Return a result in the type that it has by the model."""
    if dtype.np.kind == "O" or value is None:
        return value
    if isinstance(value, Tensor):
        array = _around(value)
        return _around(type_cvt(snapshot(array), stored_type(dtype)))
    array = np.asarray(value)
    if array.dtype != dtype.np and array.dtype.kind in "biuf":
        array = array.astype(dtype.np)
    return array


def tensor_of(value: Made, dtype: DType) -> Tensor:
    """Return a tensor of a value that a dump can hold.

    Raises:
        UnsupportedError: it is a list, a map or nothing.
    """
    if isinstance(value, Tensor):
        return snapshot(value)
    if not isinstance(value, np.ndarray) or value.dtype == object:
        raise UnsupportedError("its value is no tensor of numbers, which is all that MegEngine has")
    array = value.astype(dtype.np, copy=False)
    return from_stored(array.reshape(array.shape or (1,)), dtype, not array.shape, const=True)


def recorded(
    graph: Graph,
    shapes: Mapping[str, Shape],
    note: Callable[[str], None] = lambda text: None,
    *,
    items: Mapping[str, Array] | None = None,
    elsewhere: Sequence[Mapping[str, Shape]] = (),
) -> Graph:
    """Return a graph of MegEngine's operators that computes what a graph of composites does, at one set of sizes.

    Args:
        graph: the graph of composites; its checks stay.
        shapes: the shape of every input by name, as the model has them.
        note: called with what a dump does not have of the model's outputs.
        items: the expected values of sequences by the names that they have as outputs, where they are to be compared.
        elsewhere: the shapes of inputs in other runs; sizes that differ there are values of the graph, which then may
            run at others, too.

    Raises:
        UnsupportedError: an operator cannot be expressed, or needs values that depend on inputs.
    """
    from . import elements, layers, recurrent, sizes, windows  # noqa: F401 - they register

    infer_dtypes(graph.oprs)
    session = Session(elsewhere)
    walker = _Walker(session)
    checks = {id(c.opr): c for c in checks_of(graph)}
    with exact_arithmetic(), use(session), recording(walker.lower), np.errstate(all="ignore"):
        values: dict[int, Made] = {}
        fed: dict[str, Var] = {}
        for var in graph.inputs:
            value = _input(session, var, shapes.get(var.name or "", var.owner.tensors[0].shape))
            values[var.id] = value
            fed[var.name or ""] = recorded_variable(value)
        compared = [checks.get(id(v.owner)) for v in graph.outputs]
        targets = [v if c is None else c.get for v, c in zip(graph.outputs, compared, strict=True)]
        walker.run(graph, values, [*targets, *(c.expect for c in compared if c is not None)])
        ends: list[tuple[Var, str | None]] = []
        for var, c in zip(targets, compared, strict=True):
            if c is not None:
                ends.append((_compared(session, c, values), None))
            else:
                parts = _parts(var, values[var.id], note)
                ends += [_end(session, name, tensor, items or {}) for name, tensor in parts]
    if not ends:
        raise UnsupportedError("none of its outputs is a tensor of numbers, which is all that MegEngine has")
    # Of a part of a model, which is none of a file, all may be constant.
    if fed and graph.header.magic and all(var.id in session.recording.static for var, _ in ends):
        raise UnsupportedError(
            "at these sizes none of its outputs depends on an input, so there is nothing to run"
        )
    return _finish(session.recording.graph, ends, fed, graph)


def _compared(session: Session, c: Check, values: Mapping[int, Made]) -> Var:
    """Compare an output with its expected value, as the source does."""
    expect, get = snapshot(values[c.expect.id]), tensor_of(values[c.get.id], stored_type(_typed(c.get)))
    by_rule = c.err.owner.params and _definition(c.err.owner) is RULE
    kind = 16 if _typed(c.get).name == "BFloat16" else 0
    return session.source(check(expect, get, kind, None if by_rule else c.maxerr)).var


def _end(session: Session, name: str, tensor: Tensor, items: Mapping[str, Array]) -> tuple[Var, str | None]:
    """Return an output and its name, or its comparison with the value that is expected of it."""
    if name not in items:
        return session.source(tensor).var, name
    value = np.asarray(items[name])
    expect = from_stored(value.reshape(value.shape or (1,)).astype(dtype_of(tensor).np), dtype_of(tensor))
    return session.source(check(session.argument(name + EXPECT, expect), tensor, 0)).var, None


def _parts(var: Var, value: Made, note: Callable[[str], None]) -> list[tuple[str, Tensor]]:
    """Return an output's tensor by its name; those of a sequence by numbers behind it, none of what MegEngine lacks."""
    name = var.name or ""
    if isinstance(value, list) and value:
        note(f"output {name!r} is a sequence; its values are the outputs {name}.0 to {name}.{len(value) - 1}")
        kind = getattr(var.dtype, "element", None) or plain("Float32")
        return [(f"{name}.{i}", tensor_of(v, stored_type(kind))) for i, v in enumerate(value)]
    if isinstance(value, (list, dict)) or value is None or _typed(var).np.kind == "O":
        note(f"output {name!r} holds text or nothing, which MegEngine does not support, so it is omitted")
        return []
    return [(name, tensor_of(value, stored_type(_typed(var))))]


def _input(session: Session, var: Var, shape: Shape | None) -> TracedArray:
    if shape is None:
        raise UnsupportedError(f"the shape of the input {var.name!r} is not known; give it as input_shapes")
    if _typed(var).np.kind == "O":
        hint = f"{_HINT}{{{var.name!r}: ...}} (--constant)"
        raise UnsupportedError(f"the input {var.name!r} is no tensor of numbers; {hint}")
    dtype = stored_type(_typed(var))
    value = np.broadcast_to(np.ones((), dtype.np), shape or (1,))
    return traced(session.argument(var.name or "", from_stored(value, dtype, not shape)))


def _finish(
    whole: Graph, ends: Sequence[tuple[Var, str | None]], fed: Mapping[str, Var], source: Graph
) -> Graph:
    """Return the graph of some outputs, each a variable of its own, with all inputs of the source."""
    for var, name in ends:
        if name is not None and var.owner.type != "Host2DeviceCopy":
            var.name = None
    graph = make_loadable(subgraph(whole, [var for var, _ in ends])[0])
    taken: set[int] = set()
    for i, (_, name) in enumerate(ends):
        var = graph.outputs[i]
        if name is not None and (var.owner.type == "Host2DeviceCopy" or var.id in taken):
            (var,) = graph.add("Identity", inputs=[var])
            graph.outputs[i] = var
        taken.add(var.id)
        var.name = name if name is not None else var.name
    left = {v.name for v in graph.inputs}
    for name, var in fed.items():
        if name not in left:
            graph.add("Host2DeviceCopy", *var.owner.params, names=[name], tensors=var.owner.tensors)
    graph.header.magic, graph.input_order = source.header.magic, source.input_order
    graph.fixed_shapes = {
        name: tuple(var.owner.tensors[0].shape or ())
        for name, var in fed.items()
        if not name.endswith(EXPECT)
    }
    return graph
