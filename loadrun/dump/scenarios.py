"""Further steps of testcases, which stand after the testcases of a dump, where MegEngine looks at nothing.

There stand the 8 bytes of `STEPS_MAGIC`, the length of the rest as u64, the length of an index as u64, the index, and
one FlatBuffer a step, of the form that testcases have. The index is a JSON object: for every testcase with further
steps its number, its states, and for each step the length of its FlatBuffer and the names of its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from struct import pack, unpack_from
from typing import Any, overload

from ..base.errors import FormatError
from ..base.registry import late
from ..base.schema import anything, integer, items, mapping, record, text
from ..base.writing import scratch
from ..compare.record import STEPS_MAGIC
from ..graph import StoredTensor
from ..graph.dtypes import Array
from ..testcase import Bundle, LazyTestcases, Testcase

with late(__name__):
    import hashlib
    import json

_HEAD = 24
_MOST = 1 << 32
_Step = tuple[int, list[str]]
Parse = Callable[[memoryview], Sequence[StoredTensor]]


class ScenarioWriter:
    """Collects further steps while testcases are written, outside of memory.

    Args:
        build: gives the bytes of the tensors of some values, by name.
    """

    def __init__(self, build: Callable[[Testcase, Sequence[str]], bytes]) -> None:
        self._build = build
        self._index: dict[int, dict[str, object]] = {}
        self.file = scratch()

    def add(self, number: int, case: Testcase) -> str | None:
        """Note the further steps of a testcase; return their digest, None if there are none."""
        if not case.steps:
            return None

        steps = []
        digest = hashlib.blake2b(digest_size=16)
        for arrays in case.steps:
            data = self._build(Testcase(dict(arrays), case.dtypes), list(arrays))
            self.file.write(data)
            digest.update(data)
            steps.append([len(data), list(arrays)])
        self._index[number] = {"states": dict(case.states), "steps": steps}
        return digest.hexdigest()

    def parts(self) -> Iterator[bytes]:
        """Yield what stands after the testcases, piece by piece; nothing where no testcase has further steps."""
        if not self._index:
            return

        index = json.dumps(self._index, separators=(",", ":")).encode()
        yield STEPS_MAGIC + pack("<QQ", 8 + len(index) + self.file.tell(), len(index)) + index
        self.file.seek(0)
        while part := self.file.read(1 << 20):
            yield part

    def close(self) -> None:
        """Delete the temporary file."""
        self.file.close()


def scenarios_at(data: memoryview) -> memoryview:
    """Return the steps that some bytes begin with, whole.

    Raises:
        FormatError: they are cut off.
    """
    length = unpack_from("<Q", data, 8)[0] if len(data) >= _HEAD else _MOST**2
    if not 8 <= length <= len(data) - 16:
        raise FormatError("the steps after the testcases are cut off")
    return data[: 16 + length]


def attach(bundle: Bundle, block: memoryview, parse: Parse) -> None:
    """Attach the further steps to the testcases of a dump; they are decoded on demand.

    Args:
        bundle: what was read of the dump.
        block: what `scenarios_at` returned.
        parse: gives the tensors in some bytes.

    Raises:
        FormatError: the index is damaged, or does not fit the dump.
    """
    index = _index(block, len(bundle.testcases))
    names = {v.name for v in bundle.inputs}
    for states, _, _ in index.values():
        for name in states.keys() - names:
            raise FormatError(f"{_WHERE}: a state feeds {name!r}, which is not an input of the model")
    plain = bundle.testcases

    def read(number: int) -> Testcase:
        if number not in index:
            return plain[number]
        states, steps, start = index[number]
        return replace(plain[number], steps=_Steps(block, start, steps, parse), states=states)

    bundle.testcases = LazyTestcases(read, range(len(plain)))
    bundle.facts.scenarios = {number: len(steps) for number, (_, steps, _) in index.items()}


def steps_digest(case: Testcase) -> str | None:
    """Return the digest of the further steps of a testcase that was read; None if it has none."""
    return case.steps.digest() if isinstance(case.steps, _Steps) else None


_WHERE = "the steps after the testcases"
_ENTRY = record({"states": mapping(text), "steps": items(items(anything, 2, 2))})


def _index(block: memoryview, total: int) -> dict[int, tuple[dict[str, str], list[_Step], int]]:
    """Read the index: states, steps and the offset of the first step, by the testcase's number."""
    (size,) = unpack_from("<Q", block, 16)
    if size > len(block) - _HEAD:
        raise FormatError(f"{_WHERE} claim an index of {size} bytes, but there are {len(block) - _HEAD}")
    try:
        data: Any = json.loads(bytes(block[_HEAD : _HEAD + size]))
    except (ValueError, RecursionError):
        data = None
    at = _HEAD + size
    index = {}
    for key, entry in mapping(_ENTRY)(data, _WHERE).items():
        number = integer(0, total - 1)(int(key) if key.isdecimal() else key, _WHERE)
        states: dict[str, str] = entry["states"]
        steps: list[_Step] = []
        start = at
        for length, names in entry["steps"]:
            steps.append((integer(0, len(block) - at)(length, _WHERE), items(text)(names, _WHERE)))
            at += steps[-1][0]
        index[number] = states, steps, start
    if at != len(block):
        raise FormatError(f"{_WHERE}: the index claims {at} bytes, but there are {len(block)}")
    return index


class _Steps(Sequence[Mapping[str, Array]]):
    """Steps that are decoded on demand."""

    def __init__(self, block: memoryview, start: int, steps: Sequence[_Step], parse: Parse) -> None:
        self._block, self._parse = block, parse
        self._names = [names for _, names in steps]
        self._edges = [start]
        for length, _ in steps:
            self._edges.append(self._edges[-1] + length)

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Array]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Array]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Array] | Sequence[Mapping[str, Array]]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        names, i = self._names[index], range(len(self))[index]
        tensors = self._parse(self._block[self._edges[i] : self._edges[i + 1]])
        if len(tensors) != len(names):
            raise FormatError(f"{_WHERE}: step {i + 1} has {len(names)} names for {len(tensors)} tensors")
        return {n: t.value() for n, t in zip(names, tensors, strict=True)}

    def digest(self) -> str:
        """Hash the bytes."""
        return hashlib.blake2b(self._block[self._edges[0] : self._edges[-1]], digest_size=16).hexdigest()
