"""What MegEngine 1.13 reads and cannot run on CPUs, although loadrun does."""

from __future__ import annotations

from collections.abc import Callable

from ..graph import Graph, Opr
from ..graph.params import ConvBias, CvtColor, CvtColorMode, Format, Pooling, PoolingMode

_COLOURS = {
    CvtColorMode[name] for name in "RGB2BGR BGR2RGB RGBA2RGB RGBA2BGR RGBA2GRAY YUV2GRAY_NV21".split()
}
"""Conversions of bytes alone."""


def _in_chwn4(opr: Opr, dtype: str) -> bool:
    return any(isinstance(p, ConvBias) and p.format == Format.CHWN4 for p in opr.params)


def _of_float_colours(opr: Opr, dtype: str) -> bool:
    return dtype == "Float32" and any(isinstance(p, CvtColor) and p.mode in _COLOURS for p in opr.params)


def _of_half_maxima(opr: Opr, dtype: str) -> bool:
    # Files of ONNX's and torch's dtypes pool float32.
    return (
        not opr.exact
        and dtype == "Float16"
        and any(isinstance(p, Pooling) and p.mode == PoolingMode.MAX for p in opr.params)
    )


def _of_plain_bytes(opr: Opr, dtype: str) -> bool:
    return dtype == "Int8" and opr.type == "ConvolutionV2"


_KINDS: dict[Callable[[Opr, str], bool], tuple[str, str]] = {
    _in_chwn4: (
        "convolutions in CHWN4, which MegEngine runs on GPUs only",
        "leave out enable_chwn4 for a file that MegEngine runs on CPUs",
    ),
    _of_float_colours: (
        "colour conversions of float images, for which MegEngine has no kernel",
        "convert uint8 images, or index the channels",
    ),
    _of_half_maxima: ("max pooling of float16, which MegEngine computes wrongly", "pool float32"),
    _of_plain_bytes: (
        "convolutions of int8 without a scale, for which MegEngine's kernels fail on x86",
        "use quantized types or float32",
    ),
}


def unavailable(graph: Graph) -> str | None:
    """Say in one sentence what MegEngine cannot run of a graph; None if it runs all."""
    said = []
    for holds, (what, way_out) in _KINDS.items():
        found = [o for o in graph.needed() if o.inputs and holds(o, getattr(o.inputs[0].dtype, "name", ""))]
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            said.append(f"{what} ({found[0].name or found[0].type}{more}): {way_out}")
    return f"the file holds what loadrun runs and MegEngine does not: {'; '.join(said)}" if said else None
