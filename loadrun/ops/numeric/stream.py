"""Random numbers as MegEngine's CPU kernels draw them: xoroshiro128+, its state from a seed by splitmix64.

Source of semantics: MegEngine ``dnn/src/naive/rng/opr_impl.cpp``.
"""

from __future__ import annotations

import os
from copy import deepcopy
from functools import cache
from math import prod

import numpy as np

from ...graph import Opr
from ...graph.dtypes import Array

_WORD = (1 << 64) - 1
_AT_ONCE = 256
"""How many numbers are drawn together where they are read one by one."""


class Stream:
    """Random numbers, the same for a seed; every kind of operator has a sequence of its own, as in MegEngine.

    Args:
        seed: where all sequences start, by default a random number.

    >>> Stream(3).uniform("UniformRNGV1", (2,)).tolist()
    [0.18625617027282715, 0.9449045658111572]
    """

    def __init__(self, seed: int | None = None) -> None:
        self._seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed & _WORD
        self._sequences: dict[str, _Xoroshiro] = {}
        self._placed = 0
        self._ready: dict[str, list[np.float32]] = {}

    def of(self, opr: Opr) -> Stream:
        """Return what an operator draws from: this stream, unless it was made by a source of its own."""
        seed: Stream | Draw | None = opr.params[0].__dict__.get("source") if opr.params else None
        return self if seed is None else seed.stream()

    def stream(self) -> Stream:
        """Return the stream itself, as `Draw.stream` gives one."""
        return self

    def next(self) -> Draw:
        """Return the next draw alone."""
        self._placed += 1
        return Draw(self, self._seed, self._placed)

    def bits(self, kind: str, n: int) -> Array:
        """Return the next `n` numbers of a kind of operator, uint64."""
        if kind not in self._sequences:
            self._sequences[kind] = _Xoroshiro(self._seed)
        return self._sequences[kind].take(n)

    def uniform(self, kind: str, shape: tuple[int, ...], digits: int = 23) -> Array:
        """Return float32 numbers in (0, 1] that are multiples of ``2**-digits``."""
        high = self.bits(kind, prod(shape)) >> np.uint64(64 - digits)
        return (1 - high.astype(np.float32) * np.float32(2.0**-digits)).reshape(shape)

    def normal(self, kind: str, shape: tuple[int, ...], mean: float, std: float, digits: int = 23) -> Array:
        """Return normally distributed float32 numbers, two of each pair of uniform ones (Box and Muller)."""
        n = prod(shape)
        first, second = self.uniform(kind, ((n + 1) // 2, 2), digits).T
        radius = np.float32(std) * np.sqrt(-2 * np.log(first))
        angle = (2 * np.pi * second.astype(np.float64)).astype(np.float32)
        pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1) + np.float32(mean)
        return pairs.reshape(-1)[:n].reshape(shape)

    def permutation(self, kind: str, n: int) -> Array:
        """Return the numbers below `n` in random order, int64 (Fisher and Yates, which is a loop by nature)."""
        order = list(range(n))
        places = np.arange(n - 1, 0, -1, dtype=np.uint64)
        others = (self.bits(kind, len(places)) & np.uint64(_WORD >> 1)) % (places + np.uint64(1))
        for i, j in zip(places.tolist(), others.tolist(), strict=True):
            order[i], order[j] = order[j], order[i]
        return np.array(order, np.int64)

    def single(self, kind: str) -> np.float32:
        """Return the next uniform number of a kind of operator, in (0, 1]."""
        ready = self._ready.setdefault(kind, [])
        if not ready:
            ready.extend(self.uniform(kind, (_AT_ONCE,))[::-1])
        return ready.pop()


class OperatorStreams:
    """The random numbers of a graph's runs: each operator has a stream, which its own seed starts, as in MegEngine.

    Args:
        seed: is added to the seeds of the operators; those of the file hold for 0.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._streams: dict[int, tuple[Opr, Stream]] = {}

    def of(self, opr: Opr) -> Stream:
        """Return what an operator draws from."""
        if id(opr) not in self._streams:
            seed = getattr(opr.params[0], "seed", 0) if opr.params else 0
            self._streams[id(opr)] = opr, Stream(self._seed + seed)
        return self._streams[id(opr)][1]


class FirstDraws(OperatorStreams):
    """The random numbers of operators while they are recorded: those of the graph's runs.

    Args:
        eager: what operators draw from that have a source of their own.
        seeded: whether all others go on with it as well, since a seed was set, as in MegEngine.
    """

    def __init__(self, eager: Stream, seeded: bool) -> None:
        super().__init__()
        self._eager, self._seeded = eager, seeded

    def of(self, opr: Opr) -> Stream:
        """Return what an operator draws from."""
        shared = self._seeded or any("source" in p.__dict__ for p in opr.params)
        return self._eager.of(opr) if shared else super().of(opr)


RandomNumbers = Stream | OperatorStreams
"""What the random operators of a run draw from."""


class Draw:
    """One draw of a stream, which later calls repeat; equal to the draw in that place of an equal stream."""

    def __init__(self, source: Stream, seed: int, place: int) -> None:
        self._source = source
        self._before: Stream | None = None
        self._key = seed, place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Draw) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def stream(self) -> Stream:
        """Return what an operator draws from: the stream at first, then what it was before."""
        if self._before is None:
            self._before = deepcopy(self._source)
            return self._source
        return deepcopy(self._before)


class _Xoroshiro:
    """The generator, many numbers at a time.

    Its step is linear over the field of two elements, so that a matrix leads from any state to one far ahead: the
    sequence is cut into pieces of equal length, which all advance at once.
    """

    def __init__(self, seed: int) -> None:
        self._state = np.array([[_splitmix(seed, 1)], [_splitmix(seed, 2)]], np.uint64)

    def take(self, n: int) -> Array:
        """Return the next `n` numbers."""
        power = (max(n - 1, 0).bit_length() + 1) // 2
        length = 1 << power
        states = _bits(self._state)
        while len(states) * length < n:
            states = np.concatenate([states, states @ _ahead(power) % 2])
            power += 1
        low, high = _words(states)
        piece, place = divmod(n, length)
        drawn = np.empty((length, len(states)), np.uint64)
        for i in range(length):
            if i == place and piece < len(states):
                self._state = np.array([[low[piece]], [high[piece]]])
            drawn[i] = low + high
            low, high = _step(low, high)
        if piece == len(states):
            self._state = np.array([[low[-1]], [high[-1]]])
        return drawn.T.reshape(-1)[:n]


def _splitmix(seed: int, place: int) -> int:
    """Return the number at a place of the sequence that turns a seed into a state."""
    z = (seed + place * 0x9E3779B97F4A7C15) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def _step(low: Array, high: Array) -> tuple[Array, Array]:
    """Return the states that follow."""
    mixed = low ^ high
    return _rotated(low, 55) ^ mixed ^ (mixed << np.uint64(14)), _rotated(mixed, 36)


def _rotated(x: Array, by: int) -> Array:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


def _bits(words: Array) -> Array:
    """Return states [2, n] as their bits, float32 [n, 128], which BLAS multiplies exactly."""
    raw = np.ascontiguousarray(words.T).astype("<u8").view(np.uint8)
    return np.unpackbits(raw, axis=1, bitorder="little").astype(np.float32)


def _words(bits: Array) -> Array:
    return np.packbits(bits.astype(np.uint8), axis=1, bitorder="little").view("<u8").astype(np.uint64).T


@cache
def _ahead(power: int) -> Array:
    """Return the matrix that leads ``2**power`` steps ahead, for rows of bits."""
    if power:
        half = _ahead(power - 1)
        return half @ half % 2
    return _bits(np.stack(_step(*_words(np.eye(128, dtype=np.float32)))))
