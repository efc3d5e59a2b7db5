"""A graph as load_and_run would execute it: numbers, names, order, and how it prints a variable."""

from collections.abc import Mapping

from ..graph import Graph, Opr, Var
from ..graph.dtypes import Array
from ..graph.params import OptionalAxisV1
from ..ops.catalog import CATALOG
from ..ops.infer import Inference, infer_dtypes, infer_shapes
from ..ops.numbering import Numbering, loaded
from ..ops.op import Trait
from ..ops.registry import Shape
from .naming import compiled, executed, host_inputs, sequence

NONE, CONST, RUNTIME, MISSING = 1, 2, 4, 8
"""Kinds of knowledge of a shape or value before execution: nothing says how to infer it, it is constant, it follows
from the inputs, or something is missing."""
STATIC_NAMES = {NONE: "NO_DESC", CONST: "CONST", RUNTIME: "RT_STATIC", MISSING: "MISSING_INP"}
_NODE = 'CompNode("cpu0:0" from "xpux:0")'
_NO_AXIS = 7


class ExecutionPlan:
    """The order and numbers in which MegEngine executes a graph, for given input shapes.

    Args:
        graph: the graph to execute; its dtypes are inferred.
        shapes: the inputs' shapes by name.

    Attributes:
        loaded: numbers and names after loading.
        numbers: numbers and names of what is executed.
        order: the operators that are executed, in order.
    """

    node = _NODE

    def __init__(self, graph: Graph, shapes: Mapping[str, Shape] | None = None) -> None:
        infer_dtypes(graph.oprs)
        self.graph = graph
        self.known: Inference = infer_shapes(graph, graph.oprs, shapes)
        self.loaded = loaded(graph)
        self.numbers = compiled(graph, self.loaded)
        self.order = sequence(executed(graph, self.known), self.numbers, self.known)
        self.on_device = {v.id for o in self.order for v in o.outputs}
        self._shape, self._value = _static(graph)
        self._layouts: dict[int, str] = {}

    def note(self, var: Var, array: Array) -> None:
        """Remember how a value is in memory."""
        self._layouts[var.id] = self._layout(var, array)

    def infer_type(self, var: Var) -> tuple[int, int]:
        """Tell what is known in advance of a variable's shape and of its value."""
        return self._shape[var.id], self._value[var.id]

    def storage(self, var: Var) -> str:
        """``s`` where memory can be planned in advance, else ``d``."""
        return "s" if self._shape[var.id] in (CONST, RUNTIME) else "d"

    def layout(self, var: Var) -> str:
        """Shape and strides of the last value, as MegEngine prints them."""
        return self._layouts.get(var.id) or self._layout(var, None)

    def _layout(self, var: Var, array: Array | None) -> str:
        shape = self.known.shapes.get(var.id, ()) if array is None else array.shape
        view = array is not None and Trait.VIEW in CATALOG[var.owner.type].traits
        strides = (
            [s // array.itemsize for s in array.strides] if view and array is not None else packed(shape)
        )
        sizes = ",".join(f"{n}({s})" for n, s in zip(shape, strides, strict=True))
        return f"{{{sizes} {var.dtype.name if var.dtype else '?'}}}"

    def info(self, var: Var, numbers: Numbering | None = None) -> str:
        """Show a variable as MegEngine's messages do, with the numbers of what is executed unless others are given."""
        numbers = numbers or self.numbers
        number, name = numbers.var(var)
        owner = numbers.oprs[var.owner.id]
        placed = numbers is self.numbers and var.id in self.on_device
        shape = self.known.shapes.get(var.id, ())
        where = f"layout:{self.layout(var)}" if placed else f"shape:{shape_text(shape)}"
        known = self.infer_type(var)
        return (
            f"{{id:{number}, {where}, {var.dtype.name if var.dtype else '?'}, "
            f"owner:{owner.name}{{{owner.cls}}}, name:{name}, slot:{var.index}, {_NODE}, "
            f"{self.storage(var)}, {known[0]}, {known[1]}}}"
        )

    def infos(self, opr: Opr, numbers: Numbering | None = None) -> str:
        """Show the inputs of an operator, numbered where there are several."""
        inputs = (numbers or self.numbers).inputs(opr)
        one = len(inputs) == 1
        return " ".join(f"{'' if one else f'{i}='}{self.info(v, numbers)}" for i, v in enumerate(inputs))


def shape_text(shape: Shape) -> str:
    """Format a shape as MegEngine prints it.

    >>> shape_text((1, 10))
    '{1,10}'
    """
    return "{" + ",".join(str(n) for n in shape) + "}"


def packed(shape: Shape) -> list[int]:
    """Return the steps between elements of an array without gaps.

    >>> packed((2, 3, 4))
    [12, 4, 1]
    """
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return strides


def _static(graph: Graph) -> tuple[dict[int, int], dict[int, int]]:
    """Tell what is known of shapes and values before anything is executed."""
    shapes: dict[int, int] = {}
    values: dict[int, int] = {}
    for opr in graph.oprs:
        traits = CATALOG[opr.type].traits
        if opr.type == "Host2DeviceCopy":
            shape, value = RUNTIME, RUNTIME
        elif Trait.CONSTANT in traits:
            shape, value = CONST, CONST if opr.type == "ImmutableTensor" else NONE
        else:
            shape = _shape(opr, shapes, values)
            value = _value(opr, shapes, values)
        for var in opr.outputs:
            shapes[var.id], values[var.id] = shape, value
    return shapes, values


def _weakest_knowledge(levels: list[int]) -> int:
    if any(f in (NONE, MISSING) for f in levels):
        return MISSING
    return max(levels, default=CONST)


def _shape(opr: Opr, shapes: Mapping[int, int], values: Mapping[int, int]) -> int:
    op = CATALOG[opr.type]
    if Trait.DATA_SHAPED in op.traits:
        return NONE
    host = host_inputs(opr)
    levels = [values[v.id] for i, v in enumerate(opr.inputs) if i in host]
    told = op.inputs.rstrip("?").endswith(" target_shape") and (
        op.name != "ReshapeV1" or opr.get(OptionalAxisV1).axis == _NO_AXIS
    )
    if levels and told:
        return _weakest_knowledge(levels)
    if op.family == "indexing" or Trait.SHAPE_ONLY in op.traits:
        levels = []
    return _weakest_knowledge(
        [*levels, *(shapes[v.id] for i, v in enumerate(opr.inputs) if i not in host or not levels)]
    )


def _value(opr: Opr, shapes: Mapping[int, int], values: Mapping[int, int]) -> int:
    op = CATALOG[opr.type]
    if op.class_name == "AssertEqual":
        return values[opr.inputs[0].id]
    # What is filled is made when it is executed.
    if op.family == "fill" or not (Trait.INFERRED in op.traits or op.conditional):
        return NONE
    if Trait.SHAPE_ONLY in op.traits:
        # Shapes of inputs; what is constant there is still asked for at run time.
        return max(RUNTIME, _weakest_knowledge([shapes[v.id] for v in opr.inputs]))
    return _weakest_knowledge([values[v.id] for v in opr.inputs])
