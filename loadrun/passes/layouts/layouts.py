"""The common base of the layout passes: which variable has which layout, and what becomes of operators without one."""

from collections.abc import Callable, Sequence

from ...base.errors import EngineError
from ...graph import Graph, Opr, Var
from ...graph.params import Record
from ...ops.catalog import types
from ...ops.op import Trait
from ...ops.registry import Shape
from ..rewriter import Rewriter
from .reformat import reformat

ELEMENTWISE = types(Trait.ELEMENTWISE)
"""Operators to which a layout does not matter."""
CONVOLUTIONS = types(Trait.PACKED)
"""Those that layout passes convert alike: data, filter, then bias and residual if there are any."""
PLAIN = "NCHW"


def fills_packs(shape: Shape | None, pack: int) -> bool:
    """Return whether a shape is that of plain images (NCHW) whose channels fill packs."""
    return shape is not None and len(shape) == 4 and shape[1] % pack == 0


class Layouts:
    """The new graph while a layout pass makes it.

    Attributes:
        r: what makes the graph.
        layout: layout of the new variables that are not plain (NCHW), by their ids.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self.r = rewriter
        self.layout: dict[int, str] = {}
        self._origin: dict[int, tuple[Var, str]] = {}

    def of(self, var: Var) -> str:
        """Return the layout of a new variable."""
        return self.layout.get(var.id, PLAIN)

    def mark(self, var: Var, layout: str) -> Var:
        """Note the layout of a new variable."""
        if layout != PLAIN:
            self.layout[var.id] = layout
        return var

    def to(self, var: Var, layout: str, change: Callable[[Var, str, str], Var] | None = None) -> Var:
        """Convert the variable to another layout, from its original one if it was converted before.

        Args:
            change: how to change it, in place of `converted`.
        """
        origin, current = self._origin.get(var.id, (var, self.of(var)))
        if self.of(var) == layout:
            return var
        if current == layout:
            return origin
        converted = (change or self.converted)(origin, current, layout)
        self.mark(converted, layout)
        self._origin[converted.id] = (origin, current)
        return converted

    def converted(self, var: Var, source: str, target: str) -> Var:
        """Append what turns one layout into another: Reshape and Dimshuffle."""
        return reformat(self.r, var, source, target)

    def plain(self, var: Var) -> Var:
        """Convert the variable to NCHW."""
        return self.to(var, PLAIN)

    def keep(self, opr: Opr) -> None:
        """Copy an operator that knows no layout: it reads plain inputs."""
        self.r.copy(opr, [self.plain(self.r.var(v)) for v in opr.inputs])

    def attempt(self, opr: Opr, layout: str, inputs: Sequence[Var], *params: Record) -> bool:
        """Copy an operator whose outputs get a layout, unless it cannot take these inputs."""
        try:
            outputs = self.r.copy(opr, inputs, *params)
        except EngineError:
            return False
        for var in outputs:
            self.mark(var, layout)
        return True


def convert_layouts(
    graph: Graph, visit: Callable[[Layouts, Opr], bool], make: Callable[[Rewriter], Layouts] = Layouts
) -> Graph:
    """Run a layout pass: `visit` handles an operator and returns True, or leaves it to be kept plain.

    Operators in branches are kept plain; outputs are plain.
    """
    r = Rewriter(graph)
    layouts = make(r)
    for opr in r.oprs:
        if r.frozen(opr) or not _visited(layouts, opr, visit):
            layouts.keep(opr)
    for old in graph.outputs:
        new = r.var(old)
        plain = layouts.plain(new)
        if plain is not new:
            r.replace(old, plain)
    return r.finish()


def _visited(layouts: Layouts, opr: Opr, visit: Callable[[Layouts, Opr], bool]) -> bool:
    try:
        return visit(layouts, opr)
    except EngineError:
        # Data or weights of this shape or type cannot have the layout.
        return False
