"""The lowerings of numpy's functions; every chapter registers its own when it is imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..base.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])
_FAMILIES = tuple(
    """
    arithmetic math logic reductions sorting manipulation joining selection linalg creation
    """.split()
)
_TABLE: list[tuple[str, Sequence[str], str]] = []


class FunctionLowering(NamedTuple):
    """The lowering of a function of numpy.

    Attributes:
        function: the lowering, which takes numpy's parameters.
        signature: that of the lowering.
        arrays: whether it gives arrays where others give scalars.
        family: the chapter.
    """

    function: Callable[..., Any]
    signature: inspect.Signature
    arrays: bool
    family: str


class UfuncLowering(NamedTuple):
    """The lowering of a ufunc, or of a method of one; `ufunc` says what the fields mean."""

    function: Callable[..., Any]
    loop: str
    uint16: str
    family: str


_HOMES = [f"{__package__}.{family}" for family in _FAMILIES]
FUNCTIONS: Registry[Any, FunctionLowering] = Registry("lowering of numpy's functions", _HOMES)
UFUNCS: Registry[np.ufunc, UfuncLowering] = Registry("lowering of ufuncs", _HOMES)
METHODS: Registry[tuple[np.ufunc, str], UfuncLowering] = Registry("lowering of methods of ufuncs", _HOMES)


def lowers(*names: str, arrays: bool = False) -> Callable[[F], F]:
    """Register a lowering for numpy functions of these names (``concatenate``, ``linalg.inv``).

    Names that this version of numpy does not have are skipped.

    Args:
        names: the functions.
        arrays: whether they give arrays without axes, which can be assigned to, where most give numpy's scalars.
    """

    def register(func: F) -> F:
        _TABLE.append((_family(func), names, func.__doc__ or ""))
        how = FunctionLowering(func, inspect.signature(func), arrays, _family(func))
        # Names of one function, such as concat and concatenate, stand for it once.
        for target in dict.fromkeys(_numpy_function(name) for name in names):
            if target is not None:
                FUNCTIONS.add(target, how)
        return func

    return register


def _family(func: Callable[..., Any]) -> str:
    return func.__module__.rpartition(".")[2]


def _numpy_function(name: str) -> Any:
    """Return what numpy has by a name, None if this version lacks it."""
    target: Any = np
    for part in name.split("."):
        target = getattr(target, part, None)
    return target


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
        shown = [f"{n}.{method}" if method else n for n in names]
        _TABLE.append((_family(func), shown, func.__doc__ or ""))
        how = UfuncLowering(func, loop, uint16, _family(func))
        for target in dict.fromkeys(_numpy_function(name) for name in names):
            if isinstance(target, np.ufunc) and method:
                METHODS.add((target, method), how)
            elif isinstance(target, np.ufunc):
                UFUNCS.add(target, how)
        return func

    return register


def names() -> Iterator[tuple[str, str]]:
    """Yield family and name of each lowered function, ufunc and method of a ufunc."""
    yield from ((how.family, name_of(target)) for target, how in FUNCTIONS.items())
    yield from ((how.family, name_of(target)) for target, how in UFUNCS.items())
    yield from ((how.family, f"{name_of(target)}.{method}") for (target, method), how in METHODS.items())


def registered() -> dict[str, list[str]]:
    """Return names of the lowered numpy functions, by family."""
    result: dict[str, set[str]] = {f: set() for f in _FAMILIES}
    for family, name in names():
        result[family].add(name)
    return {f: sorted(members) for f, members in result.items()}


def table() -> list[tuple[str, Sequence[str], str]]:
    """List family, names and description of every lowering, also of names that this version of numpy lacks."""
    FUNCTIONS.load()
    return sorted(_TABLE, key=lambda row: _FAMILIES.index(row[0]))


def name_of(target: Any) -> str:
    """Return the name of a numpy function in user code.

    >>> name_of(np.linalg.inv), name_of(np.add)
    ('np.linalg.inv', 'np.add')
    """
    module = getattr(target, "__module__", None) or "numpy"
    prefix = "np.linalg" if module.startswith("numpy.linalg") else "np"
    return f"{prefix}.{target.__name__}"
