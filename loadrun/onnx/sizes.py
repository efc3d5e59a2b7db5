"""Dynamic axes in the forms of torch.onnx.export, as names of sizes by input and axis."""

from collections.abc import Mapping, Sequence

from ..base.errors import UsageError
from .source import ExportSource

Dynamic = dict[str, dict[int, str]]
"""Names of sizes by input (or output) name and axis."""
DynamicAxes = Mapping[str, Mapping[int, str] | Sequence[int]]
"""`dynamic_axes`: names of sizes by axis, or the axes alone, by input or output name."""
AxisNames = object
"""One input's entry in `dynamic_shapes`, by axis; a size is a name, a Dim (torch's too), or None for a fixed one."""
DynamicShapes = Mapping[str, AxisNames] | Sequence[AxisNames]
"""`dynamic_shapes`: entries by input name, or one per input."""


class Dim:
    """The name of a size, for `dynamic_shapes`; equal names mean equal sizes.

    `Dim.AUTO` and `Dim.DYNAMIC` give a name of their own, `Dim.STATIC` says that the size is fixed.

    >>> Dim("batch").__name__
    'batch'
    """

    AUTO = "__auto__"
    DYNAMIC = "__dynamic__"
    STATIC = "__static__"

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not name.isidentifier():
            raise UsageError(f"the name of a size must be an identifier, found {name!r}")
        self.__name__ = name
        self.min, self.max = min, max


def dynamic_sizes(
    source: ExportSource,
    axes: DynamicAxes | None,
    shapes: DynamicShapes | None,
    renamed: Mapping[str, str],
    outputs: Mapping[str, str],
) -> tuple[Dynamic, Dynamic]:
    """Read `dynamic_axes` or `dynamic_shapes`: names of the inputs' sizes, and of the outputs'.

    Args:
        renamed, outputs: the names in the model by those in the source; both may be used.

    Raises:
        UsageError: unknown names, axes that do not exist, both given, or one name for different sizes.
    """
    if axes is not None and shapes is not None:
        raise UsageError("pass dynamic_axes or dynamic_shapes, not both")
    inputs: Dynamic = {}
    ends: Dynamic = {}
    if shapes is not None:
        inputs = _of_shapes(source, shapes, renamed)
    elif axes is not None:
        inputs, ends = _of_axes(source, axes, renamed, outputs)
    _check_equal(source, inputs)
    for name, named in inputs.items():
        fixed = source.graph.fixed_shapes.get(name, ())
        for axis in named:
            if axis < len(fixed) and fixed[axis] is not None:
                raise UsageError(
                    f"axis {axis} of {name!r} cannot be dynamic: the model was traced for size {fixed[axis]} and may "
                    "give other values elsewhere; trace it with dynamic_shapes"
                )
    return inputs, ends


def _of_axes(
    source: ExportSource, axes: DynamicAxes, renamed: Mapping[str, str], outputs: Mapping[str, str]
) -> tuple[Dynamic, Dynamic]:
    ranks = {i.name: len(i.shape) for i in source.inputs}
    known = {new: old for old, new in renamed.items()} | {i.name: i.name for i in source.inputs}
    ends = {new: old for old, new in outputs.items()} | {n: n for n in source.outputs}
    inputs: Dynamic = {}
    output_axes: Dynamic = {}
    for name, spec in axes.items():
        if name not in known and name not in ends:
            raise UsageError(
                f"dynamic_axes names {name!r}, which is neither an input ({', '.join(renamed.values())}) nor an "
                f"output ({', '.join(outputs.values())})"
            )
        if name in known:
            old = known[name]
            inputs[old] = _named_axes(name, spec, ranks[old])
        else:
            output_axes[ends[name]] = _named_axes(name, spec, None)
    return inputs, output_axes


def _named_axes(name: str, spec: Mapping[int, str] | Sequence[int], rank: int | None) -> dict[int, str]:
    if isinstance(spec, Mapping):
        pairs = list(spec.items())
    else:
        pairs = [(axis, f"{name}_dynamic_axes_{i + 1}") for i, axis in enumerate(spec)]
    symbols: dict[int, str] = {}
    for axis, symbol in pairs:
        _check_axis(name, axis, rank, "dynamic_axes")
        if not isinstance(symbol, str) or not symbol:
            raise UsageError(f"the size of axis {axis} of {name!r} needs a name, found {symbol!r}")
        symbols[axis % rank if rank is not None else axis] = symbol
    return symbols


def _check_axis(name: str, axis: object, rank: int | None, what: str) -> None:
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise UsageError(f"an axis of {name!r} must be a number, found {axis!r}")
    if rank is not None and not -rank <= axis < rank:
        raise UsageError(f"{name!r} has {rank} axes, {what} names axis {axis}")


def _of_shapes(source: ExportSource, shapes: DynamicShapes, renamed: Mapping[str, str]) -> Dynamic:
    known = {new: old for old, new in renamed.items()} | {i.name: i.name for i in source.inputs}
    if isinstance(shapes, Mapping):
        unknown = [n for n in shapes if n not in known]
        if unknown:
            raise UsageError(
                f"dynamic_shapes names {', '.join(map(repr, unknown))}; the inputs are {', '.join(renamed.values())}"
            )
        pairs = [(known[n], spec) for n, spec in shapes.items()]
    else:
        entries = list(shapes)
        if len(entries) > len(source.inputs):
            raise UsageError(f"dynamic_shapes has {len(entries)} entries for {len(source.inputs)} inputs")
        pairs = [(i.name, spec) for i, spec in zip(source.inputs, entries, strict=False)]
    ranks = {i.name: len(i.shape) for i in source.inputs}
    return {name: axes for name, spec in pairs if (axes := _spec(name, spec, ranks[name]))}


def _spec(name: str, spec: AxisNames, rank: int) -> dict[int, str]:
    """Read one input's sizes: None, a dict by axis, or a list with an entry for every axis."""
    if spec is None:
        return {}
    if isinstance(spec, Mapping):
        pairs = list(spec.items())
    elif not isinstance(spec, Sequence) or isinstance(spec, str):
        raise UsageError(f"dynamic_shapes of {name!r} must be a mapping, a list or None, found {spec!r:.80}")
    else:
        pairs = list(enumerate(spec))
        if len(pairs) != rank:
            raise UsageError(f"dynamic_shapes has {len(pairs)} entries for the {rank} axes of {name!r}")
    symbols = {}
    for axis, dim in pairs:
        _check_axis(name, axis, rank, "dynamic_shapes")
        symbol = _symbol(name, axis % rank, dim)
        if symbol is not None:
            symbols[axis % rank] = symbol
    return symbols


def _symbol(name: str, axis: int, dim: object) -> str | None:
    hint = getattr(getattr(dim, "type", None), "name", None)
    if dim is None or dim == Dim.STATIC or hint == "STATIC" or isinstance(dim, int):
        return None
    if dim in (Dim.AUTO, Dim.DYNAMIC) or hint in ("AUTO", "DYNAMIC"):
        return f"{name}_dim_{axis}"
    symbol = dim if isinstance(dim, str) else getattr(dim, "__name__", None)
    if not isinstance(symbol, str):
        raise UsageError(f"the size of axis {axis} of {name!r} must be a name, a Dim or None, found {dim!r}")
    return symbol


def _check_equal(source: ExportSource, inputs: Dynamic) -> None:
    sizes: dict[str, tuple[int, str]] = {}
    for one in source.inputs:
        for axis, symbol in inputs.get(one.name, {}).items():
            size, where = sizes.setdefault(symbol, (one.shape[axis], f"axis {axis} of {one.name!r}"))
            if size != one.shape[axis]:
                raise UsageError(
                    f"{symbol!r} names sizes that differ: {size} ({where}) and {one.shape[axis]} "
                    f"(axis {axis} of {one.name!r})"
                )


def sizes_of_testcases(source: ExportSource) -> tuple[Dynamic, list[dict[str, tuple[int, ...]]]]:
    """Find the axes that a file leaves open or whose sizes differ in it; return them and all shapes.

    Axes of two inputs whose sizes go together share a name.
    """
    cases = [{n: a.shape for n, a in c.inputs.items()} for c in source.testcases]
    declared = {
        v.name or "": v.owner.tensors[0].shape
        for v in source.graph.inputs
        if v.owner.tensors[0].shape is not None
    }
    dynamic: Dynamic = {}
    names: dict[tuple[int, ...], str] = {}
    for one in source.inputs:
        shapes = [one.shape, *(c[one.name] for c in cases if one.name in c)]
        shapes += [s for s in [declared.get(one.name)] if s is not None]
        if len({len(s) for s in shapes}) > 1:
            continue
        fixed = source.graph.fixed_shapes.get(one.name) or one.shape
        for axis in range(len(one.shape)):
            seen, own = tuple(s[axis] for s in shapes), dynamic.get(one.name, {})
            # A trace knows itself which sizes go together.
            if len(set(seen)) > 1 or (fixed[axis] is None and source.called is None):
                name = names.setdefault(seen, f"{one.name}_dim_{axis}")
                same = len(set(seen)) > 1 or name not in own.values()
                dynamic[one.name] = {**own, axis: name if same else f"{one.name}_dim_{axis}"}
    return dynamic, [c for c in [*cases, declared] if set(c) >= {i.name for i in source.inputs}]
