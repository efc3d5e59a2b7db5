"""Tables of the operators and functions that loadrun knows, from the code that computes them."""

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import Flag
from typing import NamedTuple

from ..arrays.registry import table as numpy_lowerings
from ..base.errors import UnsupportedError, UsageError
from ..onnx.operators import HOMES, VERSIONS
from ..onnx.writing import TRANSLATIONS, reason
from ..ops.catalog import CATALOG
from ..ops.elemwise.table import ROWS, ModeTrait, Row
from ..ops.op import Op, Trait
from ..ops.registry import WITHOUT_KERNEL, implementation


class OperatorTable(NamedTuple):
    """One table.

    Attributes:
        title: what it lists.
        headers: the names of the columns.
        rows: the cells.
        note: a sentence about all rows, "" if there is none.
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def operator_tables(of: str) -> list[OperatorTable]:
    """Return the tables of one kind of operators.

    Args:
        of: ``megengine`` (what a dump holds), ``onnx`` (read), ``onnx-written``, ``numpy`` or ``torch`` (traced).

    Raises:
        UsageError: torch's operators are asked for, and torch is not installed.
    """
    return _TABLES[of]()


def _megengine() -> list[OperatorTable]:
    headers = ("operator", "class", "inputs", "runs", "traits")
    families: dict[str, list[Op]] = defaultdict(list)
    for op in CATALOG.values():
        if op.category != "composite":
            families[op.category].append(op)
    tables = []
    for category, ops in families.items():
        why = WITHOUT_KERNEL.get(category, "")
        rows = [
            (op.name, op.class_name, op.inputs.replace("|", "/"), _yes(_runs(op)), _declared(op))
            for op in ops
        ]
        title = category.replace("_", " ").capitalize()
        tables.append(OperatorTable(title, headers, rows, f"Why one is not run: {why}." if why else ""))
    modes = ("mode", "inputs", "takes", "float64 formula", "operations", "traits")
    note = "What Elemwise computes. Modes that take none of the three are modes of ElemwiseMultiType alone."
    return [
        *tables,
        _legend("Traits of operators", Trait),
        OperatorTable("Elementwise modes", modes, [_mode(row) for row in ROWS.values()], note),
        _legend("Traits of modes", ModeTrait),
    ]


def _runs(op: Op) -> bool:
    """Return whether the reference engine has a kernel."""
    try:
        implementation(op.name)
    except UnsupportedError:
        return False
    return True


def _declared(op: Op) -> str:
    """Return what the catalog line says besides the wire facts."""
    more = [_words(op.traits)] if op.traits else []
    if op.float32_inputs:
        more.append("float32 inputs " + ", ".join(map(str, op.float32_inputs)))
    more += ["float64 formula"] * bool(op.wide)
    return "; ".join(more)


def _mode(row: Row) -> tuple[str, ...]:
    kinds = (("float", row.real), ("integers", row.whole), ("Bool", row.truth))
    takes = ", ".join(name for name, function in kinds if function is not None)
    wide = _yes(row.wide is not None)
    return row.mode.name, str(row.arity), takes, wide, str(row.flops), _words(row.traits)


def _words(traits: Flag) -> str:
    """Return the names of traits as words."""
    return ", ".join(_word(t.name) for t in type(traits) if t in traits and t.value and t.name)


def _word(name: str) -> str:
    return name.lower().replace("_", " ")


def _legend(title: str, kind: type[Flag]) -> OperatorTable:
    """Return what traits mean, from their class."""
    text = re.sub(r"\n {12}", " ", kind.__doc__ or "")
    meanings = re.findall(r"^        ([A-Z_0-9]+): (.+)$", text, re.MULTILINE)
    return OperatorTable(title, ("trait", "meaning"), [(_word(name), what) for name, what in meanings])


def _yes(truth: bool) -> str:
    return "yes" if truth else ""


def _onnx() -> list[OperatorTable]:
    domains: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for domain, name in HOMES:
        versions = sorted({d.since for d in VERSIONS.get((domain, name), [])})
        domains[domain].append((name, ", ".join(map(str, versions))))
    return [
        OperatorTable(
            domain or "ai.onnx",
            ("operator", "versions of the operator set with a definition of its own"),
            sorted(rows, key=lambda row: row[0].lower()),
        )
        for domain, rows in sorted(domains.items())
    ]


def _onnx_written() -> list[OperatorTable]:
    rows = [(op.name, _translation(op)) for op in CATALOG.values() if op.category != "composite"]
    return [OperatorTable("Operators written as ONNX", ("operator", "written as"), rows)]


def _translation(op: Op) -> str:
    how = TRANSLATIONS.get(op.name)
    if how is None:
        return f"not: {reason(op.name)}"
    if op.category == "io" and how.__name__ == "stored":
        return "a graph input" if op.name == "Host2DeviceCopy" else "an initializer"
    return _first_line(how).rstrip(".")


def _first_line(function: Callable[..., object]) -> str:
    return (function.__doc__ or "").strip().splitlines()[0].strip()


def _numpy() -> list[OperatorTable]:
    families: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for family, names, doc in numpy_lowerings():
        # The method of very many ufuncs.
        shown = [f"<ufunc>{names[0][names[0].index('.') :]}"] if len(names) > 8 else names
        families[family].append((", ".join(shown), doc.strip().splitlines()[0].strip()))
    return [
        OperatorTable(family.capitalize(), ("numpy", "what it does"), rows)
        for family, rows in families.items()
    ]


def _torch() -> list[OperatorTable]:
    try:
        from ..torch.registry import lowerings  # optional

        rows = [(target, lowering.family) for target, lowering in lowerings()]
    except ImportError as e:
        raise UsageError(f"torch's operators are listed where torch is installed: {e}") from None
    return [OperatorTable("Operators lowered as a whole", ("operator", "family"), rows)]


_TABLES: dict[str, Callable[[], list[OperatorTable]]] = {
    "megengine": _megengine,
    "onnx": _onnx,
    "onnx-written": _onnx_written,
    "numpy": _numpy,
    "torch": _torch,
}
