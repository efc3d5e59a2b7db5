"""Bundles: a graph together with inputs to feed and values that its checks, AssertEqual operators, expect."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from ..base.errors import FormatError
from ..base.files import FileWatch
from ..base.registry import resolve
from ..graph import Graph, Opr, Var
from ..graph.composite import holds_composites
from ..graph.dtypes import Array, DType
from ..graph.params import AssertEqual
from ..ops.catalog import select, types
from ..ops.op import Trait
from .cases import EXPECT, FileValue, Testcase

FORWARDING = types(Trait.FORWARDS) | select(lambda op: op.family == "typecvt")
"""Operators that forward their input, at most converted."""


@dataclass(frozen=True)
class Check:
    """One AssertEqual operator: `get` must agree with `expect` within `maxerr`.

    The operator passes when its third input, `err`, is in [0, maxerr]; dumps compute it in the graph as
    ``max(|expect - get| / max(1, min(|expect|, |get|)))``.
    """

    name: str
    opr: Opr
    expect: Var
    get: Var
    err: Var
    maxerr: float
    verbose: bool


def checks_of(graph: Graph) -> list[Check]:
    """List the checks that the graph's outputs depend on, in the order of the outputs."""
    order: dict[int, Opr] = {}
    behind = _Behind()
    for out in graph.outputs:
        opr = behind(out.owner)
        if opr.type == "AssertEqual":
            order.setdefault(id(opr), opr)
    for opr in graph.needed():
        if opr.type == "AssertEqual":
            order.setdefault(id(opr), opr)
    checks: dict[str, Check] = {}
    unique = _Unique(checks)
    for opr in order.values():
        expect, get, err = opr.inputs
        source = behind(expect.owner).outputs[0].name or ""
        name = unique(source[: -len(EXPECT)] if source.endswith(EXPECT) else get.label)
        param = opr.get(AssertEqual)
        checks[name] = Check(name, opr, expect, get, err, param.maxerr, param.verbose)
    return list(checks.values())


def outputs_of(graph: Graph) -> dict[str, Var]:
    """Return the outputs by name, in the graph's order: what checks look at, and outputs without a check."""
    by_name: dict[str, Var] = {}
    names: dict[int, str] = {}
    for check in checks_of(graph):
        by_name[check.name] = _converted(check)
        names[id(check.opr)] = check.name
    behind, unique = _Behind(), _Unique(by_name)
    order: dict[str, None] = {}
    for var in graph.outputs:
        name = names.get(id(behind(var.owner)))
        if name is None and behind(var.owner).type != "AssertEqual":
            by_name[name := unique(var.label)] = var
        if name is not None:
            order.setdefault(name)
    return {n: by_name[n] for n in (*order, *(n for n in by_name if n not in order))}


def _converted(check: Check) -> Var:
    """Return what the model computes: before the conversion where a check converts both values alike."""
    expect, get = check.expect.owner, check.get.owner
    alike = expect.type == get.type == "TypeCvtV2" and expect.params == get.params
    return get.inputs[0] if alike and expect.inputs[0].owner.type == "Host2DeviceCopy" else check.get


class _Behind:
    """Looks through conversions and copies for the operator that they forward."""

    def __init__(self) -> None:
        self.known: dict[int, Opr] = {}

    def __call__(self, opr: Opr) -> Opr:
        passed = []
        while opr.type in FORWARDING and opr.inputs and id(opr) not in self.known:
            passed.append(id(opr))
            opr = opr.inputs[0].owner
        source = self.known.get(id(opr), opr)
        self.known.update(dict.fromkeys(passed, source))
        return source


class _Unique:
    """Gives names that are not yet keys of `used`: a taken ``y`` becomes ``y#2``."""

    def __init__(self, used: Mapping[str, object]) -> None:
        self.used = used
        self.count: dict[str, int] = {}

    def __call__(self, base: str) -> str:
        name = base
        while name in self.used:
            n = self.count[base] = self.count.get(base, 1) + 1
            name = f"{base}#{n}"
        return name


_SHOWN = 8
"""Maximum inputs and outputs in the text of a bundle."""


class SourceFile(Protocol):
    """The file that a graph was made from, for engines that run such files as they are.

    What has a value here is that of a file which has nothing of the kind.

    Attributes:
        format: what it is: ``onnx``, ``pt2``.
        location: its path, or its bytes where it has none.
        graph: what was made of it; a bundle with another graph no longer stands for this file.
        inputs: the names of its inputs, without those that it has a value for.
        outputs: the data types of its outputs by name, None if the file does not say.
        constants: values that stand for inputs, by name.
        scalars: the inputs without axes.
        nodes: how many operators it has.
        tensors: the names of the values that its operators make, outside of branches and loops.
        folder: where data outside the file is, None if the location says that.
        replaced: the inputs that the file has a value for, and which are fed all the same.
    """

    format: str
    location: str | bytes
    graph: Graph
    inputs: Sequence[str]
    outputs: Mapping[str, DType | None]
    constants: Mapping[str, FileValue] = MappingProxyType({})
    scalars: frozenset[str]
    nodes: int
    tensors: frozenset[str] = frozenset()
    folder: str | None = None
    replaced: Collection[str] = ()

    def maxerr(self, name: str) -> float:
        """Return the tolerance of an output."""
        ...

    def asking(self, names: Sequence[str]) -> SourceFile:
        """Return the same file with some of its `tensors` as further outputs."""
        return self

    def terms(self, name: str) -> str:
        """Return the terms, as policies have them, by which a rule of the file judges single elements of an output."""
        return ""

    def error(self, name: str, expect: Array, get: Array) -> float | None:
        """Return what is compared with the tolerance; None for MegEngine's own measure."""
        return None


@dataclass(eq=False)
class FileFacts:
    """What reading a file found about the file itself.

    Attributes:
        size: bytes that this dump (with its testcases) takes in the file.
        is_container: whether the file has the testcase header (even with no testcase).
        trailing: bytes after this dump that belong to no dump.
        warnings: what MegEngine would only warn of, such as a newer format version.
        tail: what shows that the file's end is not what was written: rubbish, a broken dump, testcases that the
            header does not announce.
        missed: what the file holds to be compared that no testcase here tells of.
        watches: return whether the files that the weights are views of are still as they were.
        model: the bytes of the dump without its testcases; None for what is no dump.
    """

    size: int = 0
    is_container: bool = False
    trailing: int = 0
    warnings: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    watches: tuple[FileWatch, ...] = ()
    model: memoryview | None = None


@dataclass(eq=False)
class ModelSource:
    """What a model was made of, and how graphs are made from it; a .mge file has none of it.

    Attributes:
        file: the file that the graph was made from, where engines can run that.
        refusal: why the graph holds only the inputs, where the file's operators cannot be expressed.
        sized: gives the bundle for the sizes of some arrays by input name, where a graph is made for each set of sizes
            (`Bundle.for_data`); None if one graph serves all.
        refuses: raises an InputError for sizes of arrays, by input name, that the file does not declare.
        guarded: gives this model for a file: a graph of MegEngine's operators that refuses sizes for which it does not
            hold; see `Bundle.lasting`.
        lower: gives this model with a graph of MegEngine's operators at the sizes of some data, where the graph has
            composite ones; see `Bundle.lowered`. The others are whether it is for a file, and whether sizes stay open.
        open_inputs: inputs with sizes that the file leaves open, so that theirs here are one choice among many.
        taken: a sentence on the sizes that the graph was made for, where neither the file nor data tell them.
        expressible: gives the graph of what can be expressed of a file with a `refusal`, None if it is not known.
    """

    file: SourceFile | None = None
    refusal: str | None = None
    sized: Callable[[Mapping[str, Array]], Bundle] | None = None
    refuses: Callable[[Mapping[str, Array]], None] | None = None
    guarded: Callable[[], Bundle] | None = None
    lower: Callable[[Sequence[Mapping[str, Array]], bool, bool], Bundle] | None = None
    open_inputs: frozenset[str] = frozenset()
    taken: str | None = None
    expressible: Callable[[], Graph] | None = None


@dataclass(eq=False)
class Bundle:
    """A model and its testcases: the contents of one file, or of one dump in it.

    Attributes:
        graph: the model, with its AssertEqual checks if it has any.
        testcases: the embedded testcases, decoded on access.
        path: where it was read from, or "<bytes>".
        record: what loadrun keeps after the testcases, where MegEngine looks at nothing: the raw bytes as they were
            read, or what is to be written there; see `loadrun.dump.record`.
        scalars: inputs and outputs without axes, which the graph holds with one; a .mge file has none.
        facts: what was found about the file itself; its own copy.
        source: what the model was made of; its own copy.
    """

    graph: Graph
    testcases: Sequence[Testcase] = ()
    path: str = "<bytes>"
    record: memoryview | Mapping[str, object] | None = None
    scalars: frozenset[str] = frozenset()
    facts: FileFacts = field(default_factory=FileFacts)
    source: ModelSource = field(default_factory=ModelSource)

    def __post_init__(self) -> None:
        """Take copies of both records, so that what is set in them is set in no other bundle."""
        self.facts, self.source = replace(self.facts), replace(self.source)

    def __repr__(self) -> str:
        """Return a short summary of the file; `loadrun info` shows more.

        >>> import loadrun
        >>> loadrun.load("fixtures/nets/mlp.mge")
        Bundle('fixtures/nets/mlp.mge': 28 operators, 3 testcases, 1 check
          data: float32 [1, 20] -> out)
        """
        counts = [
            f"{n} {what if n == 1 else what + 's'}"
            for n, what in (
                (sum(not o.tensors for o in self.graph.oprs), "operator"),
                (len(self.testcases), "testcase"),
                (len(self.checks), "check"),
            )
        ]
        fed = [
            f"{v.name}: {t.dtype.text} {'?' if t.shape is None else list(t.shape)}"
            for v in self.inputs[:_SHOWN]
            for t in v.owner.tensors[:1]
        ]
        names = [*self.outputs][:_SHOWN]
        fed += ["..."] if len(self.inputs) > _SHOWN else []
        names += ["..."] if len(self.outputs) > _SHOWN else []
        return f"Bundle({self.path!r}: {', '.join(counts)}\n  {', '.join(fed)} -> {', '.join(names)})"

    @property
    def warnings(self) -> list[str]:
        """What MegEngine would only warn of, and what of the file could not be read in full."""
        return self.facts.warnings

    @property
    def defects(self) -> list[str]:
        """List signs that the file is not as it was written."""
        return self.facts.tail

    @property
    def file(self) -> SourceFile | None:
        """The file that the graph was made from, None if there is none or the graph has been replaced."""
        file = self.source.file
        return file if file is not None and file.graph is self.graph else None

    @property
    def holds_objects(self) -> bool:
        """Whether inputs or outputs are no arrays of numbers: text, sequences, maps, optional values."""
        ends = (
            *(v.owner.tensors[0].dtype for v in self.graph.inputs),
            *(v.dtype for v in self.graph.outputs),
        )
        return any(d is not None and d.np.kind == "O" for d in ends)

    def for_data(self, arrays: Mapping[str, Array]) -> Bundle:
        """Give the bundle whose graph is made for the sizes of some data: this one, or another of the same model.

        Args:
            arrays: values by input name, expected values (``<name>:expect``) among them; what is left out has the size
                that it has here.

        Raises:
            UnsupportedError: at these sizes the model cannot be expressed.
            InputError: an array has another number of axes than the input that it is for, or a size that the file does
                not declare.
        """
        if self.source.refuses is not None:
            self.source.refuses(arrays)
        if self.source.sized is None:
            return self
        sized = self.source.sized(arrays)
        sized.source.refuses = self.source.refuses
        return sized

    @property
    def at_all_sizes(self) -> bool:
        """Whether its graph, or one that it makes, runs at sizes that the file does not declare."""
        return self.source.sized is not None or self.source.lower is not None

    def lasting(self, data: Sequence[Mapping[str, Array]] = (), *, open_sizes: bool = False) -> Bundle:
        """Return this bundle for a file, which holds one graph: it refuses sizes for which it does not hold.

        Args:
            data: inputs that it is to run with, by name; by default those of the testcases.
            open_sizes: whether sizes that its source leaves open stay so, as far as that holds; else those do in which
                the data differ.
        """
        if open_sizes and self.source.lower is not None and self.file is not None:
            lowered = self.source.lower(data, True, True)
        else:
            lowered = self._lowered(data, True)
        written = lowered if lowered.source.guarded is None else lowered.source.guarded()
        if written.testcases is self.testcases or self.holds_objects:
            return written
        # Testcases may have been edited.
        return replace(written, testcases=self.testcases)

    def lowered(self) -> Bundle:
        """Return this bundle with a graph of MegEngine's operators alone: what passes rewrite and other engines run."""
        return self._lowered((), False)

    def _lowered(self, data: Sequence[Mapping[str, Array]], lasting: bool) -> Bundle:
        if self.source.lower is not None and self.file is not None:
            return self.source.lower(data, lasting, False)
        if holds_composites(self.graph):
            lower: Callable[[Bundle], Bundle] = resolve("loadrun.onnx.exporting:lowered")
            return lower(self)
        return self

    def require_unchanged(self) -> None:
        """Check, before mapped weights are read, that the file did not change.

        Raises:
            FormatError: it did. A mapped file that was cut short would kill the process.
        """
        for watch in self.facts.watches:
            if watch.changed():
                raise FormatError(
                    "the file was written to while it was in use; load it again, or with copy=True to keep "
                    "what it held",
                    path=self.path if watch.path == os.path.abspath(self.path) else watch.path,
                )

    @property
    def inputs(self) -> list[Var]:
        """The model inputs without the expected values, in the order of what the model was made of, else by name."""
        order = {name: i for i, name in enumerate(self.input_order)}
        inputs = [v for v in self.fed if not (v.name or "").endswith(EXPECT)]
        return sorted(inputs, key=lambda v: order.get(v.name or "", len(order)))

    @property
    def input_order(self) -> tuple[str, ...]:
        """Names of inputs in the order of what the model was made of; empty if that is not known."""
        return self.graph.input_order

    @property
    def fixed_shapes(self) -> Mapping[str, tuple[int | None, ...]]:
        """Sizes of inputs for which alone the model is right; see `loadrun.graph.Graph`."""
        return self.graph.fixed_shapes

    @property
    def fed(self) -> list[Var]:
        """All inputs of the graph, sorted by name: those of the model, and the expected values."""
        return self.graph.inputs

    @property
    def checks(self) -> list[Check]:
        """The AssertEqual checks of the graph."""
        return checks_of(self.graph)

    @property
    def outputs(self) -> dict[str, Var]:
        """The model outputs by name, in the graph's order: what checks look at, and outputs without a check."""
        return outputs_of(self.graph)
