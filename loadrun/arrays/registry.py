"""Which lowering stands for which numpy function; every chapter registers its own when it is imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

__all__ = [
    "FAMILY",
    "FUNCTIONS",
    "GIVE_ARRAYS",
    "METHODS",
    "SIGNATURES",
    "UFUNCS",
    "load_chapters",
    "lowers",
    "name_of",
    "registered",
    "table",
    "ufunc",
]

F = TypeVar("F", bound=Callable[..., Any])
_FAMILIES = (
    "arithmetic",
    "math",
    "logic",
    "reductions",
    "nan",
    "sorting",
    "manipulation",
    "joining",
    "selection",
    "products",
    "linalg",
    "einsum",
    "creation",
    "series",
    "statistics",
    "miscellaneous",
)
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
GIVE_ARRAYS: set[Any] = set()
"""The functions that give arrays where others give scalars."""
SIGNATURES: dict[Any, inspect.Signature] = {}
FAMILY: dict[Any, str] = {}
UFUNCS: dict[np.ufunc, tuple[Callable[..., Any], str, str]] = {}
_TABLE: list[tuple[str, Sequence[str], str]] = []
METHODS: dict[tuple[np.ufunc, str], Callable[..., Any]] = {}


def lowers(*names: str, arrays: bool = False) -> Callable[[F], F]:
    """Register a lowering for numpy functions of these names (``concatenate``, ``linalg.inv``).

    Names that this version of numpy does not have are skipped.

    Args:
        names: the functions.
        arrays: whether they give arrays without axes, which can be assigned to, where most give numpy's scalars.
    """

    def register(func: F) -> F:
        _TABLE.append((func.__module__.rpartition(".")[2], names, func.__doc__ or ""))
        for name in names:
            target: Any = np
            for part in name.split("."):
                target = getattr(target, part, None)
            if target is None:
                continue
            FUNCTIONS[target] = func
            if arrays:
                GIVE_ARRAYS.add(target)
            SIGNATURES[target] = inspect.signature(func)
            FAMILY[target] = func.__module__.rpartition(".")[2]
        return func

    return register


def ufunc(*names: str, loop: str = "auto", method: str = "", uint16: str = "int32") -> Callable[[F], F]:
    """Register what a ufunc computes on tensors of one dtype, or one of its methods.

    Args:
        names: the ufuncs.
        loop: the dtype in which it computes: "auto" is the result's where that is a float, else the operands'
            common one; "common" always the common one, "bool" the truth of the operands, "given" the operands as
            they are.
        method: a method of the ufunc, whose arguments the lowering takes as they are.
        uint16: the dtype that stands for uint16, which MegEngine's elementwise kernels do not know: int16 where
            only the low bits count and int32 would not hold the result.
    """

    def register(func: F) -> F:
        _TABLE.append(
            (
                func.__module__.rpartition(".")[2],
                [n + "." * bool(method) + method for n in names],
                func.__doc__ or "",
            )
        )
        for name in names:
            target = getattr(np, name, None)
            if not isinstance(target, np.ufunc):
                continue
            if method:
                METHODS[target, method] = func
            else:
                UFUNCS[target] = func, loop, uint16
            FAMILY.setdefault(target, func.__module__.rpartition(".")[2])
        return func

    return register


@cache
def load_chapters() -> None:
    """Import all chapters, which takes a while: not before a numpy function meets a tensor."""
    for family in _FAMILIES:
        import_module(f"{__package__}.{family}")


def registered() -> dict[str, list[str]]:
    """Return names of the lowered numpy functions, by family."""
    load_chapters()
    result: dict[str, list[str]] = {f: [] for f in _FAMILIES}
    for target, family in FAMILY.items():
        result[family].append(name_of(target))
    for (target, method), _ in METHODS.items():
        result[FAMILY[target]].append(f"{name_of(target)}.{method}")
    return {f: sorted(set(names)) for f, names in result.items()}


def table() -> list[tuple[str, Sequence[str], str]]:
    """List family, names and description of every lowering, also of names that this version of numpy lacks."""
    load_chapters()
    return sorted(_TABLE, key=lambda row: _FAMILIES.index(row[0]))


def name_of(target: Any) -> str:
    """Return the name of a numpy function in user code.

    >>> name_of(np.linalg.inv), name_of(np.add)
    ('np.linalg.inv', 'np.add')
    """
    module = getattr(target, "__module__", None) or "numpy"
    prefix = "np.linalg" if module.startswith("numpy.linalg") else "np"
    return f"{prefix}.{target.__name__}"
