"""An ONNX model in MegEngine's operators: at one set of sizes, or at open ones, then compared with the model itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.errors import EngineError, UnsupportedError
from ..base.registry import late, resolve
from ..engines.others import Other
from ..graph import Graph, StoredTensor
from ..graph.dtypes import Array, DType
from ..inputs.feeds import random_inputs
from ..inputs.kinds import at_sizes
from ..ops.registry import FoldingBudget, Shape, limited
from ..proof import ProofError, proved
from ..testcase import EXPECT, Bundle, LazyTestcases
from .file import OnnxFile
from .types import CODED, from_codes, kind_of_dtype, to_codes

with late(__name__):
    from . import truth


_ELSEWHERE = (0.5, 2, 100)
"""By how much open sizes are multiplied to find out what follows from them."""

_SEVERAL = (1, 2, 3, 5, 65)
"""Sizes at which a graph with open ones is compared."""


@dataclass
class Lowering:
    """Makes graphs of MegEngine's operators of a bundle with composite ones.

    Attributes:
        bundle: the model.
        source: its file.
        shapes: the shapes of its inputs, expected values included.
        items: the values of sequences that its first data set expects, by name.
        assumed: whether nobody gave the sizes of the model's inputs.
        open_axes: which axes of inputs the file leaves open, those of one size together.
        budget: limits what is computed beforehand.
        testcases: gives the testcases of a graph in which values of sequences are outputs.
    """

    bundle: Bundle
    source: OnnxFile
    shapes: Mapping[str, Shape]
    items: Mapping[str, Array]
    assumed: bool
    open_axes: Sequence[Sequence[tuple[str, int]]]
    budget: Callable[[], FoldingBudget | None]
    testcases: Callable[[Graph], LazyTestcases | None]

    def __post_init__(self) -> None:
        self._bundles: dict[tuple[tuple[str, Shape], ...], Bundle] = {}

    def __call__(
        self, data: Sequence[Mapping[str, Array]] = (), lasting: bool = False, open_sizes: bool = False
    ) -> Bundle:
        """Return the bundle whose graph has MegEngine's operators alone.

        Args:
            data: inputs that it is to run with; for a file by default those of the testcases.
            lasting: whether it is for a file, which holds one graph: where data have several sizes, or nothing tells
                any, sizes are left open.
            open_sizes: whether all that the model leaves open are, as far as that holds.

        Raises:
            UnsupportedError: an operator cannot be expressed, or not at these sizes.
        """
        cases = data or ([case.inputs for case in self.bundle.testcases] if lasting else [])
        names = [n for n in self.shapes if not n.endswith(EXPECT)]
        sizes = {
            tuple((n, self._shape(n, case[n]) if n in case else self.shapes[n]) for n in names): case
            for case in cases
        }
        if open_sizes:
            return self._as_open_as_possible(cases)
        if len(sizes) > 1:
            return self._open([dict(s) for s in sizes], list(sizes.values()))
        if lasting and not sizes and self.assumed:
            return self._as_open_as_possible([])
        return self._at(dict(*sizes))

    def _shape(self, name: str, value: Array) -> Shape:
        # What is fed to a graph has an axis at least.
        return () if self.shapes[name] == () else value.shape

    def _for_sizes(self, arrays: Mapping[str, Array]) -> Bundle:
        return self._at({n: self._shape(n, arrays[n]) for n in self.shapes if n in arrays})

    def _at(self, sizes: Mapping[str, Shape]) -> Bundle:
        """Return the bundle for one set of sizes, which makes others for other sizes until it is written."""
        now = {**self.shapes, **sizes}
        key = tuple(sorted(now.items()))
        if key not in self._bundles:
            graph, notes = self._recorded(now)
            bundle = self._bundles[key] = self._with(replace(graph, fixed_shapes={}), notes)
            bundle.source.sized = self._for_sizes
            bundle.source.guarded = lambda: self._proven(self._with(graph, notes), self._cases_at(now), now)
        return self._bundles[key]

    def _cases_at(self, shapes: Mapping[str, Shape]) -> list[Mapping[str, Array]]:
        """Return the inputs of the testcases of those sizes."""
        inputs = (case.inputs for case in self.bundle.testcases)
        return [c for c in inputs if all(self._shape(n, v) == shapes[n] for n, v in c.items())]

    def _with(self, graph: Graph, notes: Sequence[str]) -> Bundle:
        bundle = replace(self.bundle, graph=graph)
        bundle.facts.warnings = [*bundle.facts.warnings, *notes]
        bundle.source.lower = None
        # It is the file still, whose rule judges its outputs.
        source = self.bundle.source.file if isinstance(self.bundle.source.file, OnnxFile) else self.source
        bundle.source.file = replace(source, graph=graph)
        cases = self.testcases(graph) if self.bundle.holds_objects else None
        return bundle if cases is None else replace(bundle, testcases=cases)

    def _recorded(
        self, shapes: Mapping[str, Shape], elsewhere: Sequence[Mapping[str, Shape]] = ()
    ) -> tuple[Graph, list[str]]:
        record: Any = resolve("loadrun.onnx.traced.recording:recorded")
        notes: list[str] = []
        with limited(self.budget()):
            graph: Graph = record(
                self.bundle.graph, shapes, notes.append, items=self.items, elsewhere=elsewhere
            )
        return graph, notes

    # Open sizes

    def _open(self, sizes: Sequence[Mapping[str, Shape]], cases: Sequence[Mapping[str, Array]]) -> Bundle:
        """Return the bundle that is right at several sets of sizes, where it is compared with the model itself.

        Raises:
            UnsupportedError: it is not.
        """
        ranks = {n: {len(s[n]) for s in sizes} for n in sizes[0]}
        why = next((f"input {n!r} has {sorted(r)} axes" for n, r in ranks.items() if len(r) > 1), None)
        if why is None:
            varying = {
                n: tuple(a if len({s[n][i] for s in sizes}) == 1 else None for i, a in enumerate(shape))
                for n, shape in sizes[0].items()
            }
            bundle = self._opened(varying)
            try:
                if isinstance(bundle, Bundle):
                    return self._proven(bundle, cases, self.shapes, varying)
                why = bundle
            except ProofError as e:
                why = str(e)
        shown = " and ".join(", ".join(f"{n} {list(s)}" for n, s in one.items()) for one in sizes[:2])
        raise UnsupportedError(
            f"the data have several sizes ({shown}), and no graph of MegEngine's operators serves them all: {why}; "
            "pack data of one size into each file"
        )

    def _as_open_as_possible(self, cases: Sequence[Mapping[str, Array]]) -> Bundle:
        """Return the bundle whose sizes are left open as the file leaves them, where it stays right at others."""
        open_axes = list(self.open_axes)
        while open_axes:
            varying = {
                n: tuple(
                    None if any((n, i) in axes for axes in open_axes) else a for i, a in enumerate(shape)
                )
                for n, shape in self.shapes.items()
                if not n.endswith(EXPECT)
            }
            bundle = self._opened(varying)
            if not isinstance(bundle, Bundle):
                break
            fixed = [axes for axes in open_axes if not self._holds_with(bundle, axes)]
            if not fixed:
                return self._proven(bundle, cases, self.shapes, varying)
            open_axes = [axes for axes in open_axes if axes not in fixed]
        return self._at(
            {n: self._shape(n, v) for n, v in (cases[0] if cases else {}).items() if n in self.shapes}
        )

    def _opened(self, varying: Mapping[str, tuple[int | None, ...]]) -> Bundle | str:
        """Return the bundle with open sizes, or why there is none.

        Args:
            varying: the sizes of inputs, None where they are open.
        """
        elsewhere = [
            {
                n: tuple(_other(self.shapes[n][i], k) if a is None else a for i, a in enumerate(s))
                for n, s in varying.items()
            }
            for k in _ELSEWHERE
        ]
        try:
            graph, notes = self._recorded(self.shapes, elsewhere)
        except EngineError as e:
            return str(e)
        graph.fixed_shapes = {n: s for n, s in varying.items() if s}
        return self._with(graph, notes)

    def _holds_with(self, bundle: Bundle, axes: Sequence[tuple[str, int]]) -> bool:
        """Return whether a bundle computes what the model does where some axes are longer."""
        for factor, more in ((1, 1), (2, 0)):
            longer = {
                n: tuple(factor * a + more if (n, i) in axes else a for i, a in enumerate(s))
                for n, s in self.shapes.items()
                if not n.endswith(EXPECT)
            }
            feeds = at_sizes(random_inputs(self.bundle), longer)
            try:
                proof = proved(self.bundle, bundle, [feeds], drawn=False)
            except ProofError:
                return False
            if proof.compared:
                return True
        return False

    def _proven(
        self,
        bundle: Bundle,
        cases: Sequence[Mapping[str, Array]],
        shapes: Mapping[str, Shape],
        varying: Mapping[str, tuple[int | None, ...]] | None = None,
    ) -> Bundle:
        """Compare a bundle for a file with the model; what was not compared stands in its record.

        Args:
            varying: see `_opened`; open sizes are compared at several.

        Raises:
            ProofError: they differ.
        """
        feeds = cases or [at_sizes(random_inputs(self.bundle), shapes)]
        proof = proved(
            self.bundle,
            bundle,
            feeds,
            sizes=[{n: tuple(k if a is None else a for a in s) for n, s in varying.items()} for k in _SEVERAL]
            if varying
            else (),
            may_refuse=True,
            what="the graph for a .mge file",
            others=_others(self.source),
        )
        if proof.left:
            record = bundle.record if isinstance(bundle.record, Mapping) else {"record": 1}
            bundle.record = {**record, "not_proven": [*proof.left]}
        return bundle


def _others(source: OnnxFile) -> list[Other]:
    """Return ONNX Runtime on the file itself, where it is installed."""
    if source.folder is not None or (runtime := truth.beside(source.location, source.constants)) is None:
        return []
    name, run, stop = runtime
    return [Other(name, "the source", run, stop)]


def _other(size: int, factor: float) -> int:
    """Return another size; of several no product or quotient is the same, and equal ones stay equal."""
    return int(size * factor) + 1


class HeldTensor(StoredTensor):
    """A stored value whose bytes in the file are not numpy's, held as an array."""

    def __init__(self, dtype: DType, value: Array, name: str | None) -> None:
        super().__init__(dtype, value.shape, name)
        self.array = value

    def value(self) -> Array:
        """Return the array."""
        return self.array

    def with_value(self, value: Array) -> StoredTensor:
        """Return a tensor of the same type that holds another value, rounded to it, without a name."""
        kind = kind_of_dtype(self.dtype)
        coded = from_codes(to_codes(value, kind).tobytes(), kind, value.shape) if kind in CODED else value
        return HeldTensor(self.dtype, coded, None)

    def copied(self) -> StoredTensor:
        """Copy the tensor over the same array."""
        return HeldTensor(self.dtype, self.array, self.name)


def tensor_of(value: Array, dtype: DType, name: str) -> StoredTensor:
    """Return a stored value: over its bytes where they are those of a file, else over the array."""
    if dtype.np.kind == "O" or dtype.bits != value.itemsize * 8 or not value.flags.c_contiguous:
        return HeldTensor(dtype, value, name)
    return StoredTensor(dtype, value.shape, name, value.reshape(-1).view(np.uint8))
