"""A graph that goes to MegEngine as a whole: written as a dump of its own, whose outputs are the targets."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import finalize

import numpy as np

from ..base.about import About
from ..base.errors import EngineError, InputError
from ..base.proving import proving
from ..dump import save
from ..engines.protocol import checked_feeds, fed_value, graph_inputs
from ..graph import Graph, Var
from ..graph.dtypes import Array, DType, dtype_of
from ..ops.infer import infer_dtypes
from ..passes.constants import subgraph
from ..passes.narrowing import narrow_array, narrow_dtype, narrowed, wide_dtypes

_WIDE = tuple(map(np.dtype, ("f8", "i8", "u4", "u8")))


class WholeDump:
    """Writes the dump, and knows which targets it computes: those that are neither inputs nor stored.

    Inputs are called ``in0``, ``in1`` ... in the dump and outputs ``out0``, ``out1`` ...: names of models may hold
    what a command line or a file name cannot. Dtypes that MegEngine lacks are narrowed there, and results widened.

    Args:
        graph: the graph.
        targets: the variables to compute.

    Attributes:
        arithmetic: in which dtypes MegEngine computes.
    """

    def __init__(self, graph: Graph, targets: Sequence[Var]) -> None:
        self._wanted = [v.dtype for v in targets]
        self.targets = list(targets)
        self.arithmetic = "float32"
        if graph.exact:
            pairs = [(DType(n), narrow_dtype(DType(n))) for n in wide_dtypes(graph)]
            self.arithmetic = ", ".join(["float32", *(f"{a.spelling} as {b.spelling}" for a, b in pairs)])
            graph, known = narrowed(graph)
            self.targets = [known[v.id] for v in targets]
        self.oprs = graph.needed(self.targets)
        infer_dtypes(self.oprs)
        self.inputs = graph_inputs(self.oprs)
        self.computed = list({v.id: v for v in self.targets if not v.owner.tensors}.values())
        self._graph = graph
        needed = {o.id for o in graph.needed(self.computed)}
        self._fed = [n for n, v in self.inputs.items() if v.owner.id in needed]
        self.names = {n: f"in{i}" for i, n in enumerate(self._fed)}
        self._path: Path | None = None

    def about(self, name: str, version: str, program: str) -> About:
        """Describe the engine that runs the dump."""
        operators = sum(not o.tensors for o in self.oprs)
        return About(name, version, self.arithmetic, program, operators=operators)

    def path(self) -> Path:
        """Return the dump, written once to a folder that lasts as long as this does.

        Raises:
            FormatError: the graph cannot be written.
        """
        if self._path is None:
            folder = tempfile.TemporaryDirectory(prefix="loadrun-")
            finalize(self, folder.cleanup)
            self._write(Path(folder.name) / "model.mge")
            self._path = Path(folder.name) / "model.mge"
        return self._path

    def _write(self, path: Path) -> None:
        graph, known = subgraph(self._graph, self.computed)
        for i, var in enumerate(self.computed):
            known[var.id].name = f"out{i}"
        for name, new in self.names.items():
            var = known[self.inputs[name].id]
            var.name = var.owner.tensors[0].name = new
        # An engine's result is compared by whoever runs it.
        with proving("none"):
            save(graph, path)

    def feeds(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Arrays by the names of the dump's inputs.

        Raises:
            InputError: one is missing or of another dtype.
        """
        values = checked_feeds(self.inputs, {n: self._narrow(n, a) for n, a in feeds.items()})
        return {new: np.ascontiguousarray(values[self.inputs[name].id]) for name, new in self.names.items()}

    def results(self, outputs: Sequence[Array], feeds: Mapping[str, Array], what: str) -> list[Array]:
        """Return the targets, from what the dump's outputs gave.

        Raises:
            EngineError: an output has another dtype than the graph says.
        """
        values: dict[int, Array] = {}
        for var, array in zip(self.computed, outputs, strict=True):
            want = array.dtype if var.dtype is None else var.dtype.np
            if array.dtype != want:
                raise EngineError(f"{what} returned {array.dtype} for {var.label!r}, which is {var.dtype}")
            values[var.id] = array
        outs = [values[v.id] if v.id in values else self._kept(v, feeds) for v in self.targets]
        return [
            a if d is None or not d.is_wide else a.astype(d.np)
            for a, d in zip(outs, self._wanted, strict=True)
        ]

    def _narrow(self, name: str, array: Array) -> Array:
        """Return what is fed to an input in MegEngine's dtype.

        Raises:
            InputError: an integer does not fit.
        """
        var = self.inputs.get(name)
        if var is None or array.dtype == var.owner.tensors[0].dtype.np or array.dtype not in _WIDE:
            return array
        converted = narrow_array(array, dtype_of(array))
        if converted.dtype.kind == "i" and not np.array_equal(converted, array):
            raise InputError(
                f"input {name!r} holds integers that do not fit int32, which MegEngine has for them"
            )
        return converted

    def _kept(self, var: Var, feeds: Mapping[str, Array]) -> Array:
        """Return a target that is an input or stored."""
        if var.owner.type == "Host2DeviceCopy":
            name = var.name or ""
            return fed_value(name, var, {name: self._narrow(name, feeds[name])} if name in feeds else feeds)
        return var.owner.tensors[var.index].value()
