"""A dump beside an ONNX model: it is written as ONNX, too, since operators of one format can be compared."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...base.errors import LoadRunError
from ...dump import load
from ...dump.store import save_as
from ...graph import Graph, Opr, Var
from ...graph.dtypes import Array
from ...passes.constants import bare, subgraph
from ...testcase import Bundle
from .blaming import SuspectVar
from .finding import Differences
from .matching import Matching
from .running import Stop, ends

_UNNAMED = "loadrun:"


def is_onnx(graph: Graph) -> bool:
    """Return whether a graph was made of an ONNX model."""
    return graph.magic.startswith("ONNX")


@dataclass(frozen=True)
class Written:
    """A dump's graph that was written as ONNX and read again.

    Attributes:
        graph: what was read. Only variables that stand for variables of the dump have names.
        source: these variables of the dump, by name.
    """

    graph: Graph
    source: Mapping[str, Var]

    def blamed(self, again: Differences, plain: Differences) -> Differences:
        """Take over what was found with the ONNX graph as the model under suspicion.

        Args:
            again: the ONNX graph compared with the reference.
            plain: the dump compared with it.

        Returns:
            `plain` with the suspects of `again`, if they stand for operators of the dump.
        """
        behind = self._behind()
        roots: dict[int, SuspectVar] = {}
        for root in again.roots:
            var = behind.get(root.var.id)
            if var is None or var.id in roots:
                continue
            before = {
                v.owner.id: v.owner for o in root.between for v in map(self._of, o.outputs) if v is not None
            }
            before.pop(var.owner.id, None)
            roots[var.id] = replace(
                root,
                var=var,
                between=tuple(before[i] for i in sorted(before)),
                changes=tuple(re.sub(rf"'({_UNNAMED}\d+)'", self._label, c) for c in root.changes),
            )
        if not roots:
            return plain
        matching = Matching(alike=False)
        for there in self.graph.vars():
            mine = self._of(there)
            if mine is not None and there.id in again.matching.pairs:
                matching.add(mine, again.matching.pairs[there.id], again.matching.how[there.id])
        for number, other in plain.matching.pairs.items():
            if number not in matching.pairs:
                matching.pairs[number], matching.how[number] = other, plain.matching.how[number]
        return replace(plain, roots=list(roots.values()), matching=matching)

    def named(self, again: Differences) -> Differences:
        """Name what the model lacks as the dump has it, where the dump is the reference.

        Args:
            again: the model compared with the ONNX graph.
        """
        behind = self._behind()
        roots = []
        for root in again.roots:
            missing = {
                v.owner.id: v.owner for o in root.missing for v in map(behind.get, _ids(o)) if v is not None
            }
            roots.append(replace(root, missing=tuple(missing[i] for i in sorted(missing)) or root.missing))
        return replace(again, roots=roots)

    def _label(self, named: re.Match[str]) -> str:
        return repr(self.source[named[1]].label)

    def _of(self, var: Var) -> Var | None:
        return self.source.get(var.name or "")

    def _behind(self) -> dict[int, Var]:
        """Map each variable to that of the dump for which it stands, or to the first one that is computed from it."""
        behind: dict[int, Var] = {}
        for opr in reversed(self.graph.oprs):
            for var in opr.outputs:
                source = self._of(var)
                if source is not None:
                    behind[var.id] = source
            after = next((behind[v.id] for v in opr.outputs if v.id in behind), None)
            if after is not None:
                # The readers come from the last to the first.
                behind.update((v.id, after) for v in opr.inputs if self._of(v) is None)
        return behind


def _ids(opr: Opr) -> list[int]:
    return [v.id for v in opr.outputs]


def written(graph: Graph, feeds: Mapping[str, Array], stops: Sequence[Stop] = ()) -> Written | None:
    """Write a dump's graph as ONNX for the sizes of some data, and read it again; None where it cannot be written.

    Args:
        graph: the graph, without checks.
        feeds: arrays by input name.
        stops: operators that cannot run on the data; what depends on them is left out.
    """
    copied, known = subgraph(graph, ends(graph, stops))
    named: dict[str, Var] = {}
    for var in graph.vars():
        if var.id in known and var.owner.inputs:
            name = var.name
            if not name or name in named:
                # ONNX names every value; one that the dump leaves without gets one that no model has.
                name = known[var.id].name = f"{_UNNAMED}{var.id}"
            named[name] = var
    for var in copied.inputs:
        if (array := feeds.get(var.name or "")) is not None:
            var.shape = var.owner.tensors[0].shape = array.shape
    with tempfile.TemporaryDirectory(prefix="loadrun-", ignore_cleanup_errors=True) as folder:
        target = Path(folder) / "written.onnx"
        try:
            save_as(Bundle(copied), target)
            again = bare(load(target).for_data(feeds))
        except LoadRunError:
            return None
    for var in again.vars():
        if var.owner.inputs and var.name not in named:
            var.name = None
    return Written(again, named)
