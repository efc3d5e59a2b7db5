"""The memory format of a tensor: what MegEngine's ``Tensor.format`` says, and which operators keep it.

Values and shapes are the same in every format; loadrun computes on plain NCHW. So that code written for MegEngine
finds what it would find there, each result is said to be in the format in which MegEngine would hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.errors import EngineError, UsageRuntimeError
from ..ops.catalog import select, types
from ..ops.op import Trait

__all__ = ["DEFAULT", "FORMATS", "checked", "fits", "format_of", "in_use", "used"]

DEFAULT = "default"
FORMATS = (DEFAULT, "nchw", "nhwc")
_JOINS = select(lambda op: op.family == "elemwise.modes") | {"Concat"}
"""The result is in the format of any input that is not in the default one."""
_PICTURES = select(lambda op: op.inputs == "src target_shape")
"""The same as `_KEEPS`, for results of 4 dimensions alone."""
_KEEPS = types(Trait.KEEPS_FORMAT)
"""The result is in the format of the first input, as long as it has the axes of an image or a weight."""
_used = False


def in_use() -> bool:
    """Return whether any tensor was ever in another format than the default one."""
    return _used


def checked(format: Any, ndim: int, current: str | None = None) -> str:
    """Return the format of a tensor that is to be made with so many axes, of one that has the format `current`.

    Raises:
        UsageError: there is no such format, the given tensor has another, or only images and their weights can be
            in it.
    """
    if format not in FORMATS:
        raise UsageRuntimeError(
            f"the format of a tensor must be one of {', '.join(map(repr, FORMATS))}, found {format!r}"
        )
    if current is not None and current != format:
        raise UsageRuntimeError(
            f"a tensor in the format {current!r} keeps it, found format={format!r}; assign to its attribute .format, "
            "or create the tensor from x.numpy()"
        )
    if format == "nhwc" and ndim not in (4, 5):
        raise UsageRuntimeError(
            f"only tensors of 4 and 5 dimensions can be in the format 'nhwc', found {ndim}; leave the format out"
        )
    return str(format)


def used(format: str) -> str:
    """Return the format that a tensor takes on, noted as one that is in use."""
    global _used
    _used = _used or format != DEFAULT
    return format


def fits(type: str, format: str, ndim: int) -> bool:
    """Return whether a result of an operator has the axes for a format."""
    return format == "nchw" or ndim == 4 or (ndim == 5 and type not in _PICTURES)


def format_of(type: str, inputs: Sequence[str]) -> str:
    """Return the format of an operator's results, as far as they have the axes for it (`fits`).

    Args:
        type: the operator.
        inputs: the formats of its inputs.

    Raises:
        EngineError: MegEngine refuses to apply the operator to inputs of these formats.
    """
    result = {*inputs} - {DEFAULT}
    if not result:
        return DEFAULT
    if type in _JOINS:
        if len(result) > 1:
            raise EngineError(
                f"{type} takes inputs of one format, found 'nchw' and 'nhwc'; assign to one's "
                "attribute .format, or create the tensors without a format"
            )
        return result.pop()
    if type == "ConvolutionV2" and (inputs[0] == "nhwc") != (inputs[1] == "nhwc"):
        raise EngineError(
            f"a convolution takes an image and a weight of one format, found {inputs[0]!r} and "
            f"{inputs[1]!r}; assign to one's attribute .format"
        )
    return inputs[0] if type in _KEEPS else DEFAULT
