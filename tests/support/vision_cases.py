"""Image operators with seeded inputs, whose outputs by real MegEngine are recorded in fixtures/ops/*/recorded.npz."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from loadrun.graph import Graph, StoredTensor
from loadrun.graph.dtypes import Array, DType, encode
from loadrun.graph.params import (
    BorderMode,
    Convolution3DFormat,
    CvtColor,
    CvtColorMode,
    DctChannelSelect,
    DctFastImpl,
    Format,
    GaussianBlur,
    InterpolationMode,
    Record,
    Remap,
    Resize,
    Resize3D,
    Rotate,
    WarpAffine,
    WarpPerspective,
)

F32, F16, U8, I8, I32 = (DType(n) for n in ("Float32", "Float16", "Uint8", "Int8", "Int32"))
Q8 = DType("QuantizedS8", 0.25)
QU8 = DType("Quantized8Asymm", 0.5, 120)
Q4 = DType("QuantizedS4", 0.5)
QU4 = DType("Quantized4Asymm", 0.5, 7)
BORDERS = tuple(BorderMode)[:5]


@dataclass
class Case:
    """One operator on constant inputs; `broken` says why the real runtime's numbers are garbage."""

    name: str
    type: str
    param: Record
    inputs: Sequence[tuple[DType, Array]]
    output_dtype: DType | None = None
    broken: str = ""

    def graph(self) -> Graph:
        g = Graph()
        ins = [
            g.add(
                # The masks of DctChannelSelect must be immutable.
                "SharedDeviceTensor" if i == 0 else "ImmutableTensor",
                tensors=[StoredTensor(d, a.shape, f"in{i}", encode(a, d))],
                names=[f"in{i}"],
            )[0]
            for i, (d, a) in enumerate(self.inputs)
        ]
        g.outputs = g.add(self.type, self.param, inputs=ins, names=["out"], output_dtype=self.output_dtype)
        g.header.original_ids = [g.outputs[0].id]
        return g


def image(name: str, dtype: DType, shape: Sequence[int]) -> tuple[DType, Array]:
    rng = np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)
    if dtype.is_float:
        return dtype, rng.standard_normal(shape).astype(dtype.np)
    if dtype.bits == 4:
        low, high = dtype.range
        return dtype, rng.randint(low, high + 1, shape).astype(dtype.np)
    info = np.iinfo(dtype.np)
    return dtype, rng.randint(info.min, info.max + 1, shape).astype(dtype.np)


def ints(*values: int) -> tuple[DType, Array]:
    return I32, np.array(values, np.int32)


def floats(values: object, dtype: DType = F32) -> tuple[DType, Array]:
    return dtype, np.array(values, dtype.np)


_PACK = {Format.NCHW4: 4, Format.NCHW44: 4, Format.NCHW88: 8, Format.NCHW64: 64}


def shaped(layout: Format, n: int, c: int, h: int, w: int) -> tuple[int, ...]:
    if layout == Format.NCHW:
        return (n, c, h, w)
    if layout == Format.NHWC:
        return (n, h, w, c)
    if layout == Format.NHWCD4:
        return (n, h, c // 4, w, 4)
    k = _PACK[layout]
    return (n, c // k, h, w, k)


RESIZES = (
    (7, 9, 14, 18),
    (8, 12, 4, 6),
    (7, 9, 5, 13),
    (9, 6, 3, 2),
    (10, 7, 4, 3),
    (5, 20, 9, 40),
    (12, 9, 4, 9),
)


def resize_cases() -> Iterator[Case]:
    M = InterpolationMode

    def one(layout: Format, dtype: DType, c: int, mode: M, size: tuple[int, int, int, int]) -> Case:
        ih, iw, oh, ow = size
        name = f"resize_{layout.name}_{dtype.name}_c{c}_{mode.name}_{ih}x{iw}_{oh}x{ow}".lower()
        x = image(name, dtype, shaped(layout, 2, c, ih, iw))
        return Case(name, "ResizeV2", Resize(imode=mode, format=layout), [x, ints(oh, ow)])

    for size in RESIZES:
        for dtype in (F32, U8):
            for mode in M:
                yield one(Format.NHWC, dtype, 3, mode, size)
                if size in RESIZES[:3]:
                    yield one(Format.NHWC, dtype, 1, mode, size)
                    yield one(Format.NHWC, dtype, 5, mode, size)
        for dtype in (F32, F16, U8, I8, Q8, QU8):
            for mode in (M.NEAREST, M.LINEAR, M.CUBIC):
                if dtype is F32 or size in RESIZES[:3]:
                    yield one(Format.NCHW, dtype, 2, mode, size)
    for size in ((1, 5, 3, 4), (4, 1, 2, 3), (6, 5, 1, 1)):
        for mode in (M.NEAREST, M.LINEAR, M.CUBIC):
            yield one(Format.NCHW, F32, 2, mode, size)
        yield one(Format.NCHW, U8, 2, M.LINEAR, size)
    for size in RESIZES[:3]:
        for mode in (M.NEAREST, M.LINEAR):
            for layout in (Format.NHWCD4, Format.NCHW44, Format.NCHW88):
                for dtype in (F32, F16, Q8):
                    yield one(layout, dtype, 8, mode, size)
            yield one(Format.NCHW4, Q8, 8, mode, size)
        for dtype in (I8, Q8, QU8, F16):
            for c in (3, 4):
                for mode in (M.LINEAR, M.CUBIC):
                    yield one(Format.NHWC, dtype, c, mode, size)
    yield one(Format.NCHW, F32, 2, M.AREA, RESIZES[0])
    for align in (False, True):
        for size3 in ((3, 4, 5, 6, 8, 10), (6, 5, 4, 3, 3, 7), (2, 3, 4, 1, 5, 2)):
            for dtype in (F32, F16):
                name = f"resize3d_{dtype.name}_{align}_{'x'.join(map(str, size3))}".lower()
                x = image(name, dtype, (2, 3, *size3[:3]))
                p = Resize3D(format=Convolution3DFormat.NCDHW, align_corners=align)
                yield Case(name, "Resize3D", p, [x, ints(*size3[3:])])


ROTATE = [[0.9, -0.4, 2.3], [0.35, 0.8, -1.6], [0.01, -0.02, 1.0]]
SCALE = [[0.7, 0, -1.5], [0, 1.3, 0.25], [0, 0, 1.0]]
FAR = [[3.0, 0.5, -20], [-0.7, 2.5, 9], [0, 0.01, 1.0]]


def warp_cases() -> Iterator[Case]:
    M = InterpolationMode

    def perspective(
        layout: Format,
        dtype: DType,
        c: int,
        mode: M,
        border: BorderMode,
        *,
        mats: Sequence[object] = (ROTATE, SCALE, FAR),
        index: Sequence[int] | None = (1, 0, 1),
        images: int = 1,
        mat_dtype: DType = F32,
        out: DType | None = None,
        source: Format | None = None,
        note: str = "",
    ) -> Case:
        name = f"perspective_{layout.name}_{dtype.name}_c{c}_{mode.name}_{border.name}{note}".lower()
        batch = 1 if images > 1 else 2 if index else len(mats)
        shape = shaped(layout if source is None else source, batch, c, 8, 11)
        xs = [image(f"{name}{i}", dtype, shape) for i in range(images)]
        tail = [floats(mats, mat_dtype)] + ([ints(*index)] if index else []) + [ints(9, 10)]
        p = WarpPerspective(imode=mode, bmode=border, format=layout, border_val=3.0)
        broken = ""
        if layout == Format.NCHW and out == F32 != dtype:
            broken = "the fallback kernel writes bytes into the float32 output"
        if mat_dtype is F16 and layout == Format.NCHW:
            broken = "the fallback kernel reads the float16 matrix as float32"
        return Case(name, "WarpPerspectiveV2", p, [*xs, *tail], out, broken)

    for border in BORDERS:
        for dtype in (F32, F16, U8, I8, Q8, QU8):
            yield perspective(Format.NCHW, dtype, 2, M.LINEAR, border)
        for mode in (M.NEAREST, M.LINEAR, M.CUBIC, M.LANCZOS4):
            for dtype in (F32, U8):
                for c in (1, 3):
                    yield perspective(Format.NHWC, dtype, c, mode, border)
        yield perspective(Format.NHWC, F32, 5, M.LINEAR, border)
        yield perspective(Format.NHWC, I8, 3, M.LINEAR, border)
        yield perspective(Format.NCHW4, Q8, 8, M.LINEAR, border)
        for dtype in (F32, F16, Q8, QU8):
            yield perspective(Format.NHWCD4, dtype, 8, M.LINEAR, border, index=None)
        for dtype in (Q4, QU4):
            yield perspective(Format.NCHW64, dtype, 64, M.LINEAR, border, index=None)
            yield perspective(Format.NHWC, dtype, 4, M.LINEAR, border, index=None)
            yield perspective(Format.NCHW, dtype, 2, M.LINEAR, border, index=None)
        for layout in (Format.NCHW, Format.NHWC):
            for dtype in (F32, F16):
                yield perspective(
                    layout, dtype, 3, M.LINEAR, border, images=3, index=(2, 0, 2), note="_multi_idx"
                )
                yield perspective(layout, dtype, 3, M.LINEAR, border, images=3, index=None, note="_multi")
    for border in (BorderMode.CONSTANT, BorderMode.REFLECT):
        for dtype in (U8, QU8):
            for layout, source, c in (
                (Format.NHWC_NCHW, Format.NHWC, 3),
                (Format.NHWC_NCHW4_IC_SMALL, Format.NHWC, 3),
                (Format.NCHW_NCHW4_IC_SMALL, Format.NCHW, 3),
                (Format.NCHW, Format.NCHW, 2),
            ):
                for out in (F32, DType("QuantizedS8", 0.5 if dtype is QU8 else 1.0)):
                    yield perspective(
                        layout, dtype, c, M.LINEAR, border, out=out, source=source, note=f"_{out.name}"
                    )
    yield perspective(Format.NCHW, F16, 2, M.LINEAR, BorderMode.REPLICATE, mat_dtype=F16, note="_mat16")
    yield perspective(Format.NHWC, F32, 2, M.LINEAR, BorderMode.WRAP, index=None, note="_plain")
    yield perspective(
        Format.NCHW,
        F32,
        2,
        M.LINEAR,
        BorderMode.CONSTANT,
        mats=[[[1, 0, 0], [0, 1, 0], [0, 0.5, -1]]] * 3,
        note="_infinite",
    )
    yield from _affine_cases()
    yield from _remap_cases()


def _affine_cases() -> Iterator[Case]:
    M = InterpolationMode

    def affine(layout: Format, dtype: DType, c: int, mode: M, border: BorderMode) -> Case:
        name = f"affine_{layout.name}_{dtype.name}_c{c}_{mode.name}_{border.name}".lower()
        x = image(name, dtype, shaped(layout, 2, c, 9, 11))
        p = WarpAffine(imode=mode, border_mode=border, border_val=5.0, format=layout)
        mats = floats([ROTATE[:2], FAR[:2]], F16 if dtype is F16 else F32)
        return Case(name, "WarpAffineV2", p, [x, mats, ints(10, 13)])

    for border in BORDERS:
        for mode in (M.NEAREST, M.LINEAR, M.CUBIC, M.LANCZOS4):
            for dtype in (F32, U8):
                for c in (1, 2, 3):
                    yield affine(Format.NHWC, dtype, c, mode, border)
        for dtype in (F32, F16, U8, I8, Q8, QU8):
            yield affine(Format.NCHW, dtype, 2, M.LINEAR, border)
            yield affine(Format.NHWC, dtype, 4, M.LINEAR, border)
        for dtype in (F32, Q8):
            yield affine(Format.NHWCD4, dtype, 8, M.LINEAR, border)


def _remap_cases() -> Iterator[Case]:
    for border in BORDERS:
        for mode in (InterpolationMode.NEAREST, InterpolationMode.LINEAR):
            for layout in (Format.NCHW, Format.NHWC, Format.NHWCD4):
                for dtype in (F32, F16, U8, I8, Q8, QU8):
                    if layout == Format.NHWCD4 and dtype not in (F32, QU8):
                        continue
                    name = f"remap_{layout.name}_{dtype.name}_{mode.name}_{border.name}".lower()
                    c = 8 if layout == Format.NHWCD4 else 3
                    x = image(name, dtype, shaped(layout, 2, c, 6, 7))
                    # Quarters make exact halves for NEAREST and for integers.
                    at = np.round(image(name + "map", F32, (2, 5, 9, 2))[1] * 24) / 4 + 3
                    p = Remap(imode=mode, border_type=border, format=layout, scalar=2.5)
                    yield Case(name, "RemapV1", p, [x, (F32, at.astype(np.float32))])


def image_cases() -> Iterator[Case]:
    channels = {"GRAY2RGB": 1, "RGBA2RGB": 4, "RGBA2BGR": 4, "RGBA2GRAY": 4}
    for mode in CvtColorMode:
        for dtype in (U8, F32):
            for h, w in ((6, 2), (12, 50)):
                name = f"color_{mode.name}_{dtype.name}_{w}".lower()
                planes = mode.name[-4:] in ("NV21", "NV12", "YV12", "YU12") or "YCrCb" in mode.name
                c = 1 if planes else channels.get(mode.name, 3)
                x = image(name, dtype, (2, h, w, c))
                yield Case(name, "CvtColor", CvtColor(mode=mode), [x])
    for dtype in (U8, F32, I8, F16, Q8):
        for clockwise in (False, True):
            for c in (1, 3):
                name = f"rotate_{dtype.name}_{clockwise}_{c}".lower()
                x = image(name, dtype, (2, 5, 7, c))
                yield Case(name, "Rotate", Rotate(clockwise=clockwise), [x])
    blurs = (
        (3, 3, 0.0, 0.0),
        (5, 3, 0.0, 0.0),
        (1, 7, 0.0, 0.0),
        (9, 5, 0.0, 0.0),
        (5, 7, 1.2, 0.6),
        (0, 0, 0.9, 0.0),
        (0, 3, 0.7, 1.3),
        (0, 0, 0.4, 2.1),
        (15, 15, 3.0, 0.0),
        (4, 3, 1.0, 1.0),
        (0, 3, 0.0, 0.0),
    )
    for dtype in (U8, F32):
        for border in BorderMode:
            for kh, kw, sx, sy in blurs:
                for c in (1, 3):
                    if border not in (BorderMode.REPLICATE, BorderMode.REFLECT_101) and (kh, kw) not in (
                        (5, 7),
                        (5, 3),
                    ):
                        continue
                    name = f"blur_{dtype.name}_{border.name}_{kh}x{kw}_{sx}_{sy}_{c}".lower()
                    x = image(name, dtype, (2, 9, 13, c))
                    p = GaussianBlur(
                        border_mode=border, kernel_height=kh, kernel_width=kw, sigma_x=sx, sigma_y=sy
                    )
                    yield Case(name, "GaussianBlur", p, [x])
    yield from _dct_cases()


def _dct_cases() -> Iterator[Case]:
    for block in (2, 4, 8):
        for masked in (False, True):
            for layout, out in ((Format.NCHW, F32), (Format.NCHW4, DType("QuantizedS8", 7.5))):
                name = f"dct_{layout.name}_{block}_{masked}".lower()
                x = image(name, U8, (2, 3, 16, 24))
                ins = [x]
                if masked:
                    ins += [
                        ints(0, 4, 8, 12),
                        ints(*(v % (block * block) for v in (0, 1, 9, 8, 3, 2, 17, 5, 0, 0, 63, 33))),
                    ]
                yield Case(
                    name,
                    "DctChannelSelectV1",
                    DctChannelSelect(format=layout, dct_block_size=block),
                    ins,
                    out,
                )
    counts = (14, 9, 9)
    values = [*range(14), *range(9), *range(9)]
    yield Case(
        "dct_fix32",
        "DctChannelSelectV1",
        DctChannelSelect(format=Format.NCHW, fastImpl=DctFastImpl.FIX_32_MASK),
        [image("dct_fix32", U8, (1, 3, 16, 8)), ints(0, *np.cumsum(counts)), ints(*values)],
        F32,
    )


FAMILIES = {"resize": resize_cases, "warp": warp_cases, "image": image_cases}
