"""Testcases and bundles: a graph together with inputs to feed and values that its checks expect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from .dtypes import Array, DType
from .graph import Graph, Opr, Var

__all__ = ["EXPECT", "Bundle", "Check", "LazyTestcases", "Testcase", "checks_of"]

EXPECT = ":expect"
"""Ending of the graph inputs that carry expected values."""


@dataclass(frozen=True)
class Testcase:
    """One set of arrays to feed: model inputs and, for every checked output, ``<name>:expect``.

    Attributes:
        arrays: values by graph input name, in storage dtype.
        dtypes: the data type stored with each value.
    """

    __test__ = False

    arrays: dict[str, Array]
    dtypes: dict[str, DType] = field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, Array]:
        """The model inputs alone."""
        return {k: v for k, v in self.arrays.items() if not k.endswith(EXPECT)}

    @property
    def expects(self) -> dict[str, Array]:
        """The expected values by output name."""
        return {k[: -len(EXPECT)]: v for k, v in self.arrays.items() if k.endswith(EXPECT)}


class LazyTestcases(Sequence[Testcase]):
    """Testcases that are decoded when they are asked for, so that memory does not grow with their number."""

    def __init__(self, readers: Sequence[Callable[[], Testcase]] = ()) -> None:
        self._readers = readers

    def __len__(self) -> int:
        return len(self._readers)

    @overload
    def __getitem__(self, index: int) -> Testcase: ...
    @overload
    def __getitem__(self, index: slice) -> LazyTestcases: ...
    def __getitem__(self, index: int | slice) -> Testcase | LazyTestcases:
        if isinstance(index, slice):
            return LazyTestcases(self._readers[index])
        return self._readers[index]()

    def __iter__(self) -> Iterator[Testcase]:
        return (read() for read in self._readers)


@dataclass(eq=False)
class Bundle:
    """What one .mge file holds.

    Attributes:
        graph: the model, with its AssertEqual checks if it has any.
        testcases: the embedded testcases, decoded on access.
        path: where it was read from, or "<bytes>".
        size: bytes that this dump (with its testcases) takes in the file.
        is_container: whether the file has the testcase header (even with no testcase).
        trailing: bytes behind this dump that belong to no dump.
        warnings: what MegEngine would only warn of, such as a newer format version.
    """

    graph: Graph
    testcases: Sequence[Testcase] = ()
    path: str = "<bytes>"
    size: int = 0
    is_container: bool = False
    trailing: int = 0
    warnings: list[str] = field(default_factory=list)

    @property
    def inputs(self) -> list[Var]:
        """The model inputs, sorted by name, without the expected values."""
        return [v for v in self.graph.inputs if not (v.name or "").endswith(EXPECT)]

    @property
    def checks(self) -> list[Check]:
        """The AssertEqual checks of the graph."""
        return checks_of(self.graph)

    @property
    def outputs(self) -> dict[str, Var]:
        """The model outputs by name: what the checks look at, then outputs without a check."""
        found: dict[str, Var] = {}
        for check in self.checks:
            found[check.name] = check.get
        for var in self.graph.outputs:
            if _checked(var) is None:
                _add_unique(found, var.label, var)
        return found


@dataclass(frozen=True)
class Check:
    """One AssertEqual operator: `get` must agree with `expect` within `maxerr`.

    The operator passes when its third input, `err`, lies in [0, maxerr]; dumps compute it in the graph as
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
    """The checks that the graph's outputs depend on, in the order of the outputs."""
    order: dict[int, Opr] = {}
    for out in graph.outputs:
        opr = _checked(out)
        if opr is not None:
            order.setdefault(id(opr), opr)
    for opr in graph.needed():
        if opr.type == "AssertEqual":
            order.setdefault(id(opr), opr)
    found: list[Check] = []
    names: set[str] = set()
    for opr in order.values():
        expect, get, err = opr.inputs
        name = _check_name(expect) or get.label
        while name in names:
            name += "'"
        names.add(name)
        param = opr.param
        found.append(Check(name, opr, expect, get, err, float(param.maxerr), bool(param.verbose)))  # type: ignore[attr-defined]
    return found


def _checked(var: Var) -> Opr | None:
    """The AssertEqual that an output stands for, directly or behind a dtype conversion."""
    opr = var.owner
    while opr.type in ("TypeCvtV2", "Identity", "Copy") and opr.inputs:
        opr = opr.inputs[0].owner
    return opr if opr.type == "AssertEqual" else None


def _check_name(expect: Var) -> str | None:
    opr = expect.owner
    while opr.type in ("TypeCvtV2", "Identity", "Copy") and opr.inputs:
        opr = opr.inputs[0].owner
    name = opr.outputs[0].name or ""
    return name[: -len(EXPECT)] if name.endswith(EXPECT) else None


def _add_unique(found: dict[str, Var], name: str, var: Var) -> None:
    base, n = name, 1
    while name in found:
        n += 1
        name = f"{base}#{n}"
    found[name] = var
