"""The record of an operator in the catalog: its facts in files, and the traits that other packages go by."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache, cached_property
from struct import unpack_from

from ..graph import Opr
from ..graph.params import Record

SEED = 20160701
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_M = 2**64 - 1


def _rotl(x: int, r: int) -> int:
    return (x << r | x >> (64 - r)) & _M


def _round(acc: int, lane: int) -> int:
    return _rotl((acc + lane * _P2) & _M, 31) * _P1 & _M


def xxh64(data: bytes, seed: int = 0) -> int:
    """Compute the 64-bit xxHash of some bytes.

    >>> hex(xxh64(b""))
    '0xef46db3751d8e999'
    """
    n, pos = len(data), 0
    if n >= 32:
        acc = [(seed + _P1 + _P2) & _M, (seed + _P2) & _M, seed, (seed - _P1) & _M]
        while pos + 32 <= n:
            acc = [_round(a, lane) for a, lane in zip(acc, unpack_from("<4Q", data, pos), strict=True)]
            pos += 32
        h = sum(_rotl(a, r) for a, r in zip(acc, (1, 7, 12, 18), strict=True)) & _M
        for a in acc:
            h = ((h ^ _round(0, a)) * _P1 + _P4) & _M
    else:
        h = (seed + _P5) & _M
    h = (h + n) & _M
    while pos + 8 <= n:
        h = (_rotl(h ^ _round(0, unpack_from("<Q", data, pos)[0]), 27) * _P1 + _P4) & _M
        pos += 8
    if pos + 4 <= n:
        h = (_rotl(h ^ unpack_from("<I", data, pos)[0] * _P1 & _M, 23) * _P2 + _P3) & _M
        pos += 4
    for byte in data[pos:]:
        h = _rotl(h ^ byte * _P5 & _M, 11) * _P1 & _M
    h = (h ^ h >> 33) * _P2 & _M
    h = (h ^ h >> 29) * _P3 & _M
    return h ^ h >> 32


def type_id(name: str) -> int:
    """Return the id of a registered name with its closing zero byte: FBS v1 (MGBC) files and opr_version 2.

    >>> type_id("ImmutableTensor")
    6977527550664090289
    """
    return xxh64(name.encode() + b"\0", SEED) or 1


@cache
def unversioned(name: str) -> str:
    """Return a name less one trailing ``V<digit>``."""
    return re.sub(r"V\d$", "", name)


def unversioned_id(name: str) -> int:
    """Return the id of a name less its version: MGBS files and opr_version 1.

    >>> unversioned_id("ReduceV2") == unversioned_id("Reduce")
    True
    """
    return xxh64(unversioned(name).encode(), SEED) or 1


class Trait(Flag):
    """A property of an operator, whatever its parameters and inputs; each catalog line names those it has.

    Attributes:
        ELEMENTWISE: an output element depends on the input elements of its place alone, so that layouts do not
            matter and scalars give a scalar.
        FORWARDS: gives its input as it is.
        MOVES: only moves numbers, and its kernel takes any dtype.
        CHANNELWISE: computes each channel of images by itself.
        VIEW: the result shares memory with an input (the first; each mark its own).
        CONTIGUOUS: such a view is contiguous where its input is.
        IN_PLACE: the result is written into a dying input of its shape and dtype.
        INTO_FIRST: the result is written into the first input, where that is dying.
        CONSTANT: holds values of the file that nothing changes.
        EFFECTS: does or reads something besides its inputs, so that it is neither left out nor made one with another.
        RANDOM: equal inputs may give other results next time; its kernel draws from `Call.stream`.
        INFERRED: static inference computes it from inputs known before data is fed: the arithmetic of shapes.
        SHAPE_ONLY: looks at the shapes of its inputs, never at their values.
        TAKES_SIZES: some of its inputs are sizes or places, or it joins them.
        LINEAR: a matrix product or a convolution: linear in each of its inputs.
        FLOAT32_ONLY: stays as it is when a graph is converted to float16.
        NO_WORKSPACE: MegEngine's operator owns no variable for scratch memory, whose dtype is Byte.
        LIMITED: the first such operator of a file brings a constant along in MegEngine, the limit of scratch memory.
        REARRANGES: gives every element of its input once, in another shape or order.
        COMPLEX: moves complex numbers as pairs of real ones.
        FOLDED: MegEngine's traces compute it where its inputs are constants.
        DATA_SHAPED: MegEngine does not know the shape of its result before it runs.
        PACKED: MegEngine's layout passes convert it: data, filter, then bias and residual if there are any.
        COUNTED: its outputs are numbered in names even where there is one.
        GENERIC: its kernel computes in the dtype of its arrays, whichever that is.
        VERSION_2: written with opr_version 2, and the name without its version.
        LATER: MegEngine 1.13.0 does not know it yet.
    """

    NONE = 0
    ELEMENTWISE = auto()
    FORWARDS = auto()
    MOVES = auto()
    CHANNELWISE = auto()
    VIEW = auto()
    CONTIGUOUS = auto()
    IN_PLACE = auto()
    INTO_FIRST = auto()
    CONSTANT = auto()
    EFFECTS = auto()
    RANDOM = auto()
    INFERRED = auto()
    SHAPE_ONLY = auto()
    TAKES_SIZES = auto()
    LINEAR = auto()
    FLOAT32_ONLY = auto()
    NO_WORKSPACE = auto()
    LIMITED = auto()
    REARRANGES = auto()
    COMPLEX = auto()
    FOLDED = auto()
    DATA_SHAPED = auto()
    PACKED = auto()
    COUNTED = auto()
    GENERIC = auto()
    VERSION_2 = auto()
    LATER = auto()


@dataclass(frozen=True, eq=False)
class Op:
    """Everything that is declared of one operator, but for its kernel.

    Attributes:
        name: registered name; v1 files and opr_version 1 identify the operator by it.
        category: io, inference, quantization, rng, backward, training, control_flow, utility,
            debug or vendor.
        family: module of `loadrun.ops` that holds the kernel, "" when there is none.
        params: parameter records in file order.
        inputs: roles of the inputs (``?`` optional, ``...`` repeated).
        outputs: number of variables in a file, or what counts them.
        cls: the name of MegEngine's C++ class, "" where that is the registered name without its version.
        traits: see `Trait`.
        wide: the float64 formula as "module.function" of `loadrun.ops.formulas`, "" where there is none.
        float32_inputs: inputs that stay float32 when a graph is converted to float16.
        all_outputs: how many outputs MegEngine's operator has, where a file may name fewer; else 0.
        title: what MegEngine's binding calls it, "" where that is the registered name without a version.

    >>> from loadrun.ops.catalog import CATALOG
    >>> conv = CATALOG["ConvolutionV2"]
    >>> conv.class_name, Trait.LINEAR in conv.traits, conv.wide
    ('ConvolutionForward', True, 'windows.convolution')
    """

    name: str
    category: str
    family: str
    params: tuple[type[Record], ...] = ()
    inputs: str = ""
    outputs: int | Callable[[Opr], int] = 1
    cls: str = ""
    traits: Trait = Trait.NONE
    wide: str = ""
    float32_inputs: tuple[int, ...] = ()
    all_outputs: int = 0
    title: str = ""

    def n_outputs(self, opr: Opr) -> int:
        """Return how many variables this operator owns in a file."""
        return self.outputs(opr) if callable(self.outputs) else self.outputs

    @property
    def class_name(self) -> str:
        """The name of MegEngine's C++ class, which its messages and ``strip_info_file`` use."""
        return self.cls or unversioned(self.name)

    @property
    def conditional(self) -> bool:
        """True if it is part of conditional execution."""
        return self.category == "control_flow"

    @cached_property
    def pure(self) -> bool:
        """True if it can be run here, gives the same for the same inputs and does nothing else."""
        odd = self.conditional or self.category == "vendor" or not self.family
        return not odd and not self.traits & (Trait.EFFECTS | Trait.RANDOM)

    @cached_property
    def id_v1(self) -> int:
        """Type id in FBS v1 files with magic MGBC."""
        return type_id(self.name)

    @cached_property
    def id_mgbs(self) -> int:
        """Type id in MGBS files and of opr_version 1."""
        return unversioned_id(self.name)

    @cached_property
    def id_v2(self) -> int | None:
        """Type id of opr_version 2, None when the operator has only version 1."""
        return type_id(unversioned(self.name)) if Trait.VERSION_2 in self.traits else None
