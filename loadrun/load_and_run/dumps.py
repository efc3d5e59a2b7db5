"""Values of variables in load_and_run's files: ``--bin_io_dump``, ``--bin_out_dump``, ``--io_dump``.

A binary file holds one variable; `loadrun.verify.diff.stored` reads it and says what its bytes mean. A folder of
``--bin_io_dump`` has a file for each variable that is executed, called by its number in hexadecimal, a folder of
``--bin_out_dump`` has ``runR-varN`` for each output of each run.
"""

import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from ..base.writing import growing
from ..graph import Opr, Var
from ..graph.dtypes import Array, DType, encode
from ..verify.diff.stored import TYPE_NUMBERS
from .plan import ExecutionPlan, host_inputs

_AXES = 7
_NUMBERS = {name: number for number, name in TYPE_NUMBERS.items()}
_SHOWN = 5


def binary(text: str, array: Array, dtype: DType) -> bytes:
    """Return the bytes of a file of a binary dump.

    Args:
        text: how the variable is printed.
        array: its value in storage form.
        dtype: its type.

    >>> import numpy as np
    >>> binary("var=x", np.ones((2, 3), "f4"), DType("Float32"))[:20].hex()
    '0500000000000000070000000200000003000000'
    """
    data = text.encode("utf-8", "replace")
    shape = [*array.shape, *[0] * (_AXES - array.ndim)]
    return struct.pack("<3I7I", len(data), _NUMBERS[dtype.name], _AXES, *shape) + data + _raw(array, dtype)


def _raw(array: Array, dtype: DType) -> bytes:
    return bytes(encode(np.ascontiguousarray(array), dtype))


class BinaryDump:
    """Writes every variable to a separate file, as ``--bin_io_dump DIR`` does; each run overwrites the last.

    Raises:
        UsageError: the folder does not exist.
    """

    def __init__(self, folder: str | os.PathLike[str], plan: ExecutionPlan) -> None:
        self.folder = _folder(folder)
        self.plan = plan

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Write the outputs of an operator."""
        for var, array in zip(opr.outputs, outputs, strict=True):
            text = f"var={self.plan.info(var)} owner_opr_inputs={self.plan.infos(opr)}"
            path = self.folder / f"{self.plan.numbers.var(var)[0]:06x}"
            _write(path, binary(text, array, _dtype(var)))

    def end(self) -> None:
        """Note that a run ended."""


class OutputDump:
    """Writes the outputs of every run, as ``--bin_out_dump DIR`` does.

    Raises:
        UsageError: the folder does not exist.
    """

    def __init__(self, folder: str | os.PathLike[str], plan: ExecutionPlan) -> None:
        self.folder = _folder(folder)
        self.plan = plan
        self.run = 0
        self._outputs = {v.id for v in plan.graph.outputs}

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Write those outputs of an operator that are outputs of the model."""
        for var, array in zip(opr.outputs, outputs, strict=True):
            if var.id in self._outputs:
                loaded = self.plan.loaded
                # MegEngine writes two different spaces here and in --bin_io_dump.
                text = f"var={self.plan.info(var, loaded)} owner_opr_inputs= {self.plan.infos(opr, loaded)}"
                path = self.folder / f"run{self.run}-var{loaded.var(var)[0]}"
                _write(path, binary(text, array, _dtype(var)))

    def end(self) -> None:
        """Note that a run ended."""
        self.run += 1


class TextDump:
    """Prints every variable with the first of its numbers, as ``--io_dump FILE`` does."""

    def __init__(self, out: TextIO, plan: ExecutionPlan) -> None:
        self.out = out
        self.plan = plan
        self._heads: dict[int, str] = {}
        self._blocks: dict[int, str] = {}

    def __call__(self, opr: Opr, outputs: Sequence[Array]) -> None:
        """Note the outputs of an operator."""
        plan = self.plan
        owner = plan.numbers.oprs[opr.id]
        lines = []
        for var, array in zip(opr.outputs, outputs, strict=True):
            self._heads[var.id] = numbers(array)
            n, name = plan.numbers.var(var)
            lines.append(
                f"var{n} produced: name={name} layout={plan.layout(var)} "
                f"owner_opr={owner.name}{{{owner.cls}}} opr{owner.id}\n deps:\n"
            )
            lines += [self._dependency(opr, i, v) for i, v in enumerate(plan.numbers.inputs(opr))]
            lines.append(f" val: {self._heads[var.id]}{_statistics(array)} {plan.storage(var)}\n")
        self._blocks[opr.id] = "".join(lines)

    def _dependency(self, opr: Opr, i: int, var: Var) -> str:
        plan = self.plan
        n = plan.numbers.var(var)[0]
        if i in host_inputs(opr):
            value = plan.known.values.get(var.id)
            known = "d" if value is None else "s"
            shown = "<invalid>" if value is None else numbers(value)
            return f"  [i{i}]var{n}:  <host value[{known}]> {shown} {plan.storage(var)}\n"
        return f"  [i{i}]var{n}: {self._heads.get(var.id, '<invalid>')} {plan.storage(var)}\n"

    def end(self) -> None:
        """End a run: write what was noted, in the order in which MegEngine executes."""
        for opr in self.plan.order:
            self.out.write(self._blocks.pop(opr.id, ""))
        self.out.flush()
        self._blocks.clear()
        self._heads.clear()


def numbers(array: Array) -> str:
    """Format the first numbers of an array, as MegEngine prints them.

    >>> import numpy as np
    >>> numbers(np.array([1, 2.5, 1e-9, 4, 5, 6], "f4"))
    '[1, 2.5, 1e-09, 4, 5, ...]'
    """
    flat = array.reshape(-1)[: _SHOWN + 1] if array.flags.c_contiguous else _first(array)
    shown = [number(float(n), 4) for n in flat[:_SHOWN]]
    return "[" + ", ".join([*shown, *(["..."] if len(flat) > _SHOWN else [])]) + "]"


def _first(array: Array) -> Array:
    """Return the first elements of an array without a copy of all of it."""
    return np.array([array.flat[i] for i in range(min(array.size, _SHOWN + 1))])


def number(value: float, digits: int) -> str:
    """Format a number as C's %g prints it."""
    if math.isnan(value):
        return "-nan" if math.copysign(1, value) < 0 else "nan"
    return f"{value:.{digits}g}"


def _statistics(array: Array) -> str:
    """Smallest, largest, mean, root of the mean square and deviation; float64 sums as there."""
    if not array.size:
        return ""
    real = array.astype(np.float64, copy=False)
    total, squares, n = float(real.sum()), float(np.square(real).sum()), array.size
    text = (
        f"min={number(float(real.min()), 3)} max={number(float(real.max()), 3)} "
        f"mean={number(total / n, 3)} l2={number(math.sqrt(squares / n), 3)}"
    )
    if n == 1:
        return f"{text} sd=N/A"
    spread = (squares * n - total * total) / (n * (n - 1))
    return f"{text} sd={number(math.sqrt(max(spread, 0.0)) if not math.isnan(spread) else spread, 3)}"


def _folder(name: str | os.PathLike[str]) -> Path:
    """Return a folder, which is made where it is not there; MegEngine's tool writes nothing then."""
    path = Path(name)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _dtype(var: Var) -> DType:
    return var.dtype or DType("Float32")


def _write(path: Path, data: bytes) -> None:
    with growing(path) as f:
        f.write(data)
