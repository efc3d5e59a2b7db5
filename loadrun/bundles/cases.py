"""Testcases: arrays to feed, and the values that checks expect of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

import numpy as np

from ..graph.dtypes import Array, DType

FileValue = Array | Sequence["FileValue"] | Mapping[object, object] | None
"""A value that a model's own file may take or return: an array of any type, even text, a sequence, a map, or None."""

EXPECT = ":expect"
"""Ending of the graph inputs that carry expected values."""


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
        faults: why outputs fail whatever is computed, by name: their expected value is of another type, or there is no
            such output.
        left_out: which of the values that were expected these arrays do not hold, where some were cut off.
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
    left_out: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    _file_values: Mapping[str, FileValue] | None = field(default=None, init=False)

    def __repr__(self) -> str:
        """Return names, types and sizes of inputs and expected values; the values are in `arrays`.

        >>> import numpy as np
        >>> Testcase({"x": np.ones((2, 3), "f4"), "y:expect": np.zeros(2, "f4")})
        Testcase(x: float32 [2, 3], y:expect: float32 [2])
        """
        shown = ", ".join(f"{n}: {a.dtype} {list(a.shape)}" for n, a in self.arrays.items())
        return f"Testcase({shown})"

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
