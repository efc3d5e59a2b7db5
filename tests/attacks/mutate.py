"""A mutator that knows where a dump keeps its structure: offsets, vtables, lengths and scalar fields.

    python tests/attacks/mutate.py --seconds 60 [--run] [FILE ...]

loads mutants of the files (default: small fixtures) until the time is over. Every mutant must give a graph, which
then must survive writing and reading, or a `FormatError`. With ``--run`` the graphs are executed as well, each in
a child with limited memory and time.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from loadrun.base.errors import FormatError
from loadrun.dump import flat, load_all, loads
from loadrun.dump.flat import Buffer, Table
from loadrun.dump.writer import dump_bytes
from tests.support.fixture_files import FIXTURES, fixture_names

EDGES = (0, 1, 2, 3, 4, 7, 8, 16, 255, 1000, 65535, 2**20, 2**31 - 1, 2**31)
Site = tuple[int, int, str]
"""Position in the file, width in bytes, what lies there."""


@contextmanager
def traced(sites: set[Site], targets: set[int]) -> Iterator[None]:
    """Note every place that the reader takes an offset, a length or a number from."""
    follow, vector, vtable = Buffer.follow, Buffer.vector, Buffer.vtable
    init, at = Table.__init__, Table.at

    def follow_(self: Buffer, pos: int) -> int:
        target = follow(self, pos)
        sites.add((self.base + pos, 4, "offset"))
        sites.add((self.base + target, 4, "length"))
        targets.add(self.base + target)
        return target

    def vector_(self: Buffer, pos: int, width: int) -> tuple[int, int]:
        start, count = vector(self, pos, width)
        if count * width <= 256:
            sites.update((self.base + start + width * i, min(width, 8), "item") for i in range(count))
        return start, count

    def vtable_(self: Buffer, vt: int, pos: int) -> tuple[int, tuple[int, ...]]:
        found = vtable(self, vt, pos)
        (size,) = struct.unpack_from("<H", self.data, vt)
        sites.update((self.base + vt + i, 2, "vtable") for i in range(0, size, 2))
        return found

    def init_(self: Table, buf: Buffer, pos: int, depth: int) -> None:
        init(self, buf, pos, depth)
        sites.add((buf.base + pos, 4, "soffset"))

    def at_(self: Table, slot: int, width: int, align: int = 0) -> int:
        found = at(self, slot, width, align)
        if found:
            sites.add((self.buf.base + found, min(width, 8), "field"))
        return found

    buffer: Any = Buffer
    table: Any = Table
    buffer.follow, buffer.vector, buffer.vtable = follow_, vector_, vtable_
    table.__init__, table.at = init_, at_
    try:
        yield
    finally:
        buffer.follow, buffer.vector, buffer.vtable = follow, vector, vtable
        table.__init__, table.at = init, at


def small_values(data: bytes) -> set[Site]:
    """The words of stored tensors that are small: indices, shapes, scales."""
    whole = np.frombuffer(data, np.uint8)
    sites: set[Site] = set()
    for bundle in load_all(data):
        for opr in bundle.graph.oprs:
            for t in opr.tensors:
                if t.data is not None and 4 <= t.data.size <= 64:
                    start = t.data.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
                    sites.update((start + i, 4, "value") for i in range(0, t.data.size - 3, 4))
    return sites


class Seed:
    """A good file and the places worth changing: all, or those that mean something rather than lead somewhere."""

    def __init__(self, data: bytes, *, meaning: bool = False) -> None:
        self.data = data
        sites: set[Site] = set()
        targets: set[int] = set()
        with traced(sites, targets):
            for bundle in load_all(data):
                for testcase in bundle.testcases:
                    assert testcase.arrays
        sites |= small_values(data)
        if meaning:
            leading = {s[0] for s in sites if s[2] == "offset"}
            sites = {s for s in sites if s[2] in ("field", "item", "value") and s[0] not in leading}
        self.sites = sorted(s for s in sites if s[0] + s[1] <= len(data))
        self.meaning = meaning
        self.targets = sorted(targets)

    def mutant(self, rng: random.Random) -> bytes:
        """A copy with one to four places changed, now and then cut, repeated or extended."""
        data = bytearray(self.data)
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            pos, width, kind = rng.choice(self.sites)
            (old,) = struct.unpack_from({1: "<B", 2: "<H", 4: "<I", 8: "<Q"}.get(width, "<B"), data, pos)
            width = width if width in (1, 2, 4, 8) else 1
            new = self._value(rng, pos, width, kind, old)
            data[pos : pos + width] = (new % 256**width).to_bytes(width, "little")
        action = rng.random()
        if self.meaning:
            return bytes(data)
        if action < 0.02:
            del data[rng.randrange(len(data)) :]
        elif action < 0.04:
            a = rng.randrange(len(data)) & ~3
            b = a + 4 * rng.randrange(1, 20)
            data[a:a] = data[a:b]
        return bytes(data)

    def _value(self, rng: random.Random, pos: int, width: int, kind: str, old: int) -> int:
        top = 256**width
        if self.meaning:
            numbers = (*range(10), 16, 64, 255, 65535, 2**20, 2**31 - 1, 2**31, top - 1, top - 2)
            floats = struct.unpack("<4I", struct.pack("<4f", 1e30, float("nan"), -0.5, 1e-30))
            return rng.choice((rng.choice(numbers), old + rng.choice((-1, 1)), rng.choice(floats)))
        if kind in ("offset", "field") and width == 4 and rng.random() < 0.5:
            return rng.choice(self.targets) - pos
        if kind == "soffset" and rng.random() < 0.5:
            other = rng.choice([s[0] for s in self.sites if s[2] == "vtable"])
            return pos - other
        edge = rng.choice((*EDGES, top - 1, top - 4, top // 2))
        near = old + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8))
        return rng.choice((edge, near, rng.randrange(top), old * 2))


def examine(data: bytes) -> str:
    """Load a mutant and use what came out; anything but a FormatError is raised."""
    try:
        bundles = load_all(data)
    except FormatError:
        return "refused"
    for bundle in bundles:
        assert isinstance(bundle.checks, list)
        assert isinstance(bundle.outputs, dict)
        assert str(bundle.graph) or not bundle.graph.oprs
        with suppress(FormatError):
            for testcase in bundle.testcases:
                assert isinstance(testcase.arrays, dict)
        again = dump_bytes(bundle.graph)
        found = loads(again).graph
        assert str(found) == str(bundle.graph)
        assert dump_bytes(found) == again
    return "loaded"


def seeds(paths: list[str], most: int = 3000) -> list[Path]:
    """The given files, or a spread of small fixtures."""
    if paths:
        return [Path(p) for p in paths]
    small = [p for n in fixture_names() if (p := FIXTURES / n).stat().st_size < most]
    return small[:: max(1, len(small) // 250)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--most", type=int, default=3000, help="largest default seed file in bytes")
    parser.add_argument("--save", default="mutants", help="folder for the mutants that fail")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    pool = [Seed(p.read_bytes(), meaning=args.run) for p in seeds(args.files, args.most)]
    if args.run:
        from tests.attacks.execute import execute as judge
    else:
        judge = examine
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    slowest = 0.0
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        data = rng.choice(pool).mutant(rng)
        start = time.perf_counter()
        try:
            counts[judge(data)] += 1
        except Exception as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            what = f"{type(e).__name__}: {str(e)[:150]} ({Path(last.filename).name}:{last.lineno})"
            key = str(e)[:90] if args.run else f"{type(e).__name__} {Path(last.filename).name}:{last.lineno}"
            counts["fault"] += 1
            faults[key] += 1
            if faults[key] == 1:
                folder = Path(args.save)
                folder.mkdir(exist_ok=True)
                path = folder / f"{sum(faults.values())}.mge"
                path.write_bytes(data)
                print(what, path, flush=True)
        taken = time.perf_counter() - start
        if taken > max(slowest, 2):
            Path(args.save).mkdir(exist_ok=True)
            (Path(args.save) / f"slow_{taken:.1f}.mge").write_bytes(data)
        slowest = max(slowest, taken)
    print(f"{len(pool)} seeds, {dict(counts)}, slowest {slowest:.2f} s, MAX_TABLES {flat.MAX_TABLES}")
    print(dict(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
