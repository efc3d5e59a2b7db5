"""Testcases and bundles: a graph together with inputs to feed and values that its checks expect."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol, overload

import numpy as np

from .base.errors import FormatError
from .base.files import FileWatch
from .base.registry import resolve
from .graph import Graph, Opr, Var
from .graph.composite import holds_composites
from .graph.dtypes import Array, DType
from .graph.params import AssertEqual
from .ops.catalog import select, types
from .ops.op import Trait

_SHOWN = 8
"""Maximum inputs and outputs in the text of a bundle."""

FileValue = Array | Sequence["FileValue"] | Mapping[object, object] | None
"""A value that a model's own file may take or return: an array of any type, even text, a sequence, a map, or None."""

EXPECT = ":expect"
"""Ending of the graph inputs that carry expected values."""
FORWARDING = types(Trait.FORWARDS) | select(lambda op: op.family == "typecvt")
"""Operators that forward their input, at most converted."""
NamedRuntime = tuple[str, Callable[[Mapping[str, Array]], Mapping[str, Array]]]


def spread(values: Mapping[str, FileValue]) -> dict[str, FileValue]:
    """Give the values of each output that is a sequence names of their own, as graphs do.

    >>> sorted(spread({"x": [1], "s:expect": [2, 3]}))
    ['s.0:expect', 's.1:expect', 'x']
    """
    spread_out: dict[str, FileValue] = {}
    for name, value in values.items():
        if name.endswith(EXPECT) and isinstance(value, list):
            output = name.removesuffix(EXPECT)
            spread_out.update((f"{output}.{i}{EXPECT}", v) for i, v in enumerate(value))
        else:
            spread_out[name] = value
    return spread_out


@dataclass(frozen=True, eq=False)
class Testcase:
    """One set of arrays to feed: model inputs and, for every checked output, ``<name>:expect``.

    Attributes:
        arrays: values by graph input name, in storage dtype.
        dtypes: the data type stored with each value.
        provenance: where captured values come from (engine, seed, versions, time); a testcase that was read has
            it in its bundle's record.
        intermediates: statistics of the intermediate values, for the record (`loadrun.verify.pack.intermediates`).
        faults: why outputs fail whatever is computed, by name: their expected value is of another type, or there is no
            such output.
        left_out: which of the values that were expected these arrays do not hold, where some were cut off.
        steps: further steps of a scenario: arrays by name, without those inputs that `states` feeds. Expected values
            stand where there is something to compare.
        states: which output of a step feeds which input of the next one, by input name.
        file_values: the same values as the model's own file has them (int64, text, sequences), for engines that run
            that file; None if there are none. A testcase with other arrays made of this one has none.

    >>> import numpy as np
    >>> case = Testcase({"x": np.ones(2, "f4"), "y:expect": np.zeros(2, "f4")})
    >>> [*case.inputs], [*case.expects]
    (['x'], ['y'])
    """

    __test__ = False

    arrays: dict[str, Array]
    dtypes: dict[str, DType] = field(default_factory=dict)
    provenance: Mapping[str, object] = field(default_factory=dict)
    intermediates: Sequence[Sequence[float | None]] = ()
    left_out: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    steps: Sequence[Mapping[str, Array]] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    _file_values: Mapping[str, FileValue] | None = field(default=None, init=False)

    def __repr__(self) -> str:
        """Return names, types and sizes of inputs and expected values; the values are in `arrays`.

        >>> import numpy as np
        >>> Testcase({"x": np.ones((2, 3), "f4"), "y:expect": np.zeros(2, "f4")})
        Testcase(x: float32 [2, 3], y:expect: float32 [2])
        """
        shown = [f"{n}: {a.dtype} {list(a.shape)}" for n, a in self.arrays.items()]
        more = [f"{len(self.steps)} more steps"] if self.steps else []
        return f"Testcase({', '.join(shown + more)})"

    @property
    def file_values(self) -> Mapping[str, FileValue] | None:
        """The same values as the model's own file has them, None once other arrays were put in place."""
        return None if isinstance(self.arrays, _WatchedArrays) and self.arrays.edited else self._file_values

    def with_file_values(self, values: Mapping[str, FileValue] | None) -> Testcase:
        """Return the same testcase with its values as the model's own file has them."""
        case = replace(self)
        object.__setattr__(case, "_file_values", values)
        return case

    def miscounted(self, outputs: Iterable[str]) -> dict[str, str]:
        """Say which values of a file's sequences and optional outputs a graph's outputs lack or have too many."""
        faults: dict[str, str] = {}
        names, file_values = list(outputs), self.file_values or {}
        for name, values in file_values.items():
            output = name.removesuffix(EXPECT)
            if output == name:
                continue
            if values is None and output in names:
                faults[output] = "no value is expected, but the model returns one"
            elif isinstance(values, np.ndarray) and values.dtype.kind not in "OSU" and output not in names:
                faults[output] = "the model returns no such value"
            items = [] if values is None else values
            if not isinstance(items, list) or not all(
                isinstance(v, np.ndarray) and v.dtype != object for v in items
            ):
                continue
            wanted = {f"{output}.{i}" for i in range(len(items))}
            form = re.compile(re.escape(output) + r"\.\d+")
            computed = {n for n in names if form.fullmatch(n) and n + EXPECT not in file_values}
            faults.update(dict.fromkeys(computed - wanted, "there is no expected value"))
            faults.update(dict.fromkeys(wanted - computed, "the model returns no such value"))
        return faults

    def misranked(self, scalars: Collection[str]) -> dict[str, str]:
        """Say which outputs of one number have no axes where one is expected, or the other way round.

        A graph holds both alike, so what tells them apart are the values that the model's own file has.

        Args:
            scalars: names of the outputs that have no axes.

        >>> import numpy as np
        >>> case = Testcase({}).with_file_values({"y:expect": np.zeros(1, "f4")})
        >>> case.misranked({"y"}), case.misranked(set())
        ({'y': 'its expected value has shape [1], the computed one []'}, {})
        """
        faults = {}
        for name, value in (self.file_values or {}).items():
            output = name.removesuffix(EXPECT)
            if output == name or not isinstance(value, np.ndarray) or value.size != 1 or value.ndim > 1:
                continue
            if (value.ndim == 0) != (output in scalars):
                shapes = ([], [1])[:: 1 if value.ndim == 0 else -1]
                faults[output] = f"its expected value has shape {shapes[0]}, the computed one {shapes[1]}"
        return faults

    @property
    def each_step(self) -> Iterator[Mapping[str, Array]]:
        """What its steps hold, one after another; a testcase that is no scenario is its only step."""
        return chain((self.arrays,), self.steps)

    @property
    def inputs(self) -> dict[str, Array]:
        """The model inputs without the expected values, in a dict of their own: what is edited is `arrays`."""
        return {k: v for k, v in self.arrays.items() if not k.endswith(EXPECT)}

    @property
    def expects(self) -> dict[str, Array]:
        """The expected values by output name, in a dict of their own."""
        return {k[: -len(EXPECT)]: v for k, v in self.arrays.items() if k.endswith(EXPECT)}


class _WatchedArrays(dict[str, Array]):
    """Arrays of a testcase that was decoded: read-only ones, and what is put in their place is kept.

    Args:
        arrays: what was decoded.
        keep: called with these arrays before a change.

    Attributes:
        edited: whether they are no longer what the file has.
    """

    def __init__(self, arrays: Mapping[str, Array], keep: Callable[[_WatchedArrays], None]) -> None:
        super().__init__((n, a.view()) for n, a in arrays.items())
        for array in self.values():
            array.flags.writeable = False
        self._keep = keep
        self.edited = False

    def _changed(self) -> None:
        self.edited = True
        self._keep(self)

    def __setitem__(self, name: str, value: Array) -> None:
        self._changed()
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self._changed()
        super().__delitem__(name)

    def update(self, other: Mapping[str, Array], /) -> None:  # type: ignore[override]
        self._changed()
        super().update(other)

    def pop(self, name: str, *default: Array) -> Array:  # type: ignore[override]
        self._changed()
        return super().pop(name, *default)

    def __reduce__(self) -> tuple[type, tuple[dict[str, Array]]]:
        return dict, (dict(self),)


class LazyTestcases(Sequence[Testcase]):
    """Testcases decoded on demand, so that memory does not grow with their number.

    Their arrays are read-only, since what is written to them would not be there the next time. A testcase in whose
    `Testcase.arrays` another array is put is kept.

    >>> import loadrun
    >>> cases = loadrun.load("fixtures/nets/mlp.mge").testcases
    >>> before = cases[0].arrays["data"]
    >>> cases[0].arrays["data"] = before * 2
    >>> bool((cases[0].arrays["data"] == before * 2).all()), before.flags.writeable
    (True, False)

    Args:
        read: gives the testcase of a number.
        numbers: which ones there are.

    Attributes:
        before: called before each is read.
    """

    def __init__(self, read: Callable[[int], Testcase], numbers: Sequence[int]) -> None:
        self._read = read
        self._numbers = numbers
        self._edited: dict[int, Testcase] = {}
        self.before: Callable[[], None] | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> Testcase: ...
    @overload
    def __getitem__(self, index: slice) -> LazyTestcases: ...
    def __getitem__(self, index: int | slice) -> Testcase | LazyTestcases:
        if isinstance(index, slice):
            part = LazyTestcases(self._read, self._numbers[index])
            part.before, part._edited = self.before, self._edited
            return part
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no testcase {index}; there are {len(self)}")
        return self._checked(self._numbers[index])

    def __iter__(self) -> Iterator[Testcase]:
        return map(self._checked, self._numbers)

    def _checked(self, number: int) -> Testcase:
        if self.before is not None:
            self.before()
        if number in self._edited:
            return self._edited[number]
        case = self._read(number)

        # It does not hold the testcase that it is in: a circle would live until garbage is collected.
        def keep(arrays: _WatchedArrays) -> None:
            self._edited[number] = replace(case, arrays=arrays)

        return replace(case, arrays=_WatchedArrays(case.arrays, keep)).with_file_values(case.file_values)


class SourceFile(Protocol):
    """The file that a graph was made from, for engines that run such files as they are.

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
    constants: Mapping[str, FileValue]
    scalars: frozenset[str]
    nodes: int
    tensors: frozenset[str]
    folder: str | None
    replaced: Collection[str]

    def maxerr(self, name: str) -> float:
        """Return the tolerance of an output."""
        ...

    def asking(self, names: Sequence[str]) -> SourceFile:
        """Return the same file with some of its `tensors` as further outputs."""
        ...

    def terms(self, name: str) -> str:
        """Return the terms, as policies have them, by which a rule of the file judges single elements of an output."""
        ...

    def changes(self, other: SourceFile) -> list[str]:
        """Describe what this file has otherwise than another one of its format, without running either."""
        ...

    def error(self, name: str, expect: Array, get: Array) -> float | None:
        """Return what is compared with the tolerance; None for MegEngine's own measure."""
        ...


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
        scenarios: how many further steps testcases have, by number; others have none.
    """

    size: int = 0
    is_container: bool = False
    trailing: int = 0
    warnings: list[str] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    watches: tuple[FileWatch, ...] = ()
    model: memoryview | None = None
    scenarios: Mapping[int, int] = field(default_factory=dict)


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
        witness: gives the name of a runtime that runs the file as it is, and a function from inputs to outputs by name;
            None if it is not installed.
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
    witness: Callable[[], NamedRuntime | None] | None = None


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
        by_name: dict[str, Var] = {}
        names: dict[int, str] = {}
        for check in self.checks:
            by_name[check.name] = _converted(check)
            names[id(check.opr)] = check.name
        behind, unique = _Behind(), _Unique(by_name)
        order: dict[str, None] = {}
        for var in self.graph.outputs:
            name = names.get(id(behind(var.owner)))
            if name is None and behind(var.owner).type != "AssertEqual":
                by_name[name := unique(var.label)] = var
            if name is not None:
                order.setdefault(name)
        return {n: by_name[n] for n in (*order, *(n for n in by_name if n not in order))}


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
