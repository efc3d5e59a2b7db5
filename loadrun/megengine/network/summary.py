"""How large a dumped network is and what it computes, operator by operator.

Source of semantics: MegEngine ``tools/network_visualize.py`` and ``utils/network_node.py``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, BinaryIO

from ...base.errors import UsageError, UsageRuntimeError
from ...graph.dtypes import Array
from ..module.costs import (
    enable_receptive_field,
    get_op_stats,
    preprocess_receptive_field,
    register_flops,
    register_receptive_field,
)
from ..module.stats import get_activation_stats, get_param_stats, stats_details, summed, total_stats
from .classes import CLASSES
from .compiling import compute
from .network import Network
from .nodes import OpNode, VarNode
from .providers import ConstOpBase

__all__ = ["visualize"]

_ELEMWISE = (CLASSES["Elemwise"], CLASSES["ElemwiseMultiType"])
_CONV = (CLASSES["ConvolutionForward"], CLASSES["ConvBiasForward"])


@register_flops(*_ELEMWISE)
def flops_elemwise(opnode: OpNode, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> int:
    """Operations of an elementwise operator: one an element."""
    return prod(outputs[0].shape)


@register_flops(CLASSES["MatrixMul"], CLASSES["BatchedMatrixMul"])
def flops_matmul(opnode: OpNode, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> int:
    """Operations of a matrix product, by the last axis of the first factor."""
    return prod(outputs[0].shape) * int(inputs[0].shape[-1])


@register_flops(*_CONV)
def flops_conv(opnode: OpNode, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> float:
    """Operations of a convolution: each output element sums over its window, and the bias."""
    weight = inputs[1].shape
    channels = weight[2] if len(weight) == 5 else weight[1]
    bias = isinstance(opnode, CLASSES["ConvBiasForward"])
    return prod(outputs[0].shape) * (float(channels * weight[-1] * weight[-2]) + bias)


@register_receptive_field(*_CONV)
def receptive_field(opnode: Any, inputs: Sequence[VarNode], outputs: Sequence[VarNode]) -> tuple[Any, Any]:
    """Receptive field and stride of a convolution, from those of what comes in."""
    field, stride = preprocess_receptive_field(opnode, inputs, outputs)
    window = inputs[1].shape[-2:]
    opnode._rf = tuple(k * s + f - s for k, s, f in zip(window, stride, field, strict=True))
    own = (opnode.params["stride_h"], opnode.params["stride_w"])
    opnode._stride = tuple(a * b for a, b in zip(own, stride, strict=True))
    return opnode._rf, opnode._stride


def visualize(
    model_path: str | os.PathLike[str] | BinaryIO | bytes,
    log_path: str | None = None,
    input: Array | None = None,
    inp_dict: Mapping[str, Array] | None = None,
    cal_params: bool = True,
    cal_flops: bool = True,
    cal_activations: bool = True,
    logging_to_stdout: bool = True,
    bar_length_max: int = 20,
) -> tuple[total_stats, stats_details]:
    """Count parameters, operations and activations of a dumped network, with batch size 1.

    Args:
        model_path: the dump.
        log_path: where MegEngine writes files for TensorBoard; refused, as none are written.
        input: the value of the only input, for the means of activations.
        inp_dict: the values of inputs by name, instead.
        cal_params, cal_flops, cal_activations: what to count.
        logging_to_stdout: log the tables too, not the sums alone.
        bar_length_max: length of the longest bar.

    Returns:
        sums and rows.

    Raises:
        UsageError: `log_path`, or values that do not fit the inputs.

    >>> from loadrun.base.logger import set_log_level
    >>> before = set_log_level("ERROR")
    >>> visualize("fixtures/nets/mlp.mge")[0].param_dims
    2028
    >>> _ = set_log_level(before)
    """
    if log_path:
        raise UsageError(
            "no files are written for TensorBoard; leave log_path out, and the tables are logged"
        )
    net = Network.load(model_path)
    net.reset_batch_size(1)
    has_inputs = input is not None or inp_dict is not None
    if has_inputs:
        net.replace_vars(_constants(net, input, inp_dict))
    enable_receptive_field()
    oprs = net.all_oprs
    rows = stats_details([], [], [])
    values = _values(net) if has_inputs else {}
    for opr in oprs:
        _count(opr, rows, (cal_params, cal_flops, cal_activations), values)
    about = {"#ops": len(oprs), "#params": len(rows.params)}
    return summed(
        rows, (cal_params, cal_flops, cal_activations), logging_to_stdout, bar_length_max, has_inputs, about
    )


def _constants(
    net: Network, value: Array | None, values: Mapping[str, Array] | None
) -> dict[VarNode, VarNode]:
    """Return constants by the inputs that they replace."""
    if values is None:
        if len(net.input_vars) != 1:
            names = ", ".join(v.name for v in net.input_vars)
            raise UsageError(f"the network has {len(net.input_vars)} inputs ({names}); give inp_dict")
        values = {net.input_vars[0].name: value} if value is not None else {}
    missing = [v.name for v in net.input_vars if v.name not in values]
    if missing:
        raise UsageError(f"no value is given for {', '.join(missing)}")
    return {v: net.make_const(values[v.name], name=v.name) for v in net.input_vars}


def _values(net: Network) -> dict[int, Array]:
    """Return the values of all first outputs."""
    variables = [o.outputs[0] for o in net.all_oprs]
    return {id(v): a for v, a in zip(variables, compute(variables, {}), strict=True)}


class _Shown:
    """A variable with its value, for its mean."""

    def __init__(self, var: VarNode, value: Array) -> None:
        self.shape, self.dtype = var.shape, var.dtype
        self._value = value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self._value if dtype is None else self._value.astype(dtype)


def _count(
    opr: OpNode, rows: stats_details, wanted: tuple[bool, bool, bool], values: dict[int, Array]
) -> None:
    """Add what is to be said of an operator."""
    about = {"name": opr.name, "class_name": opr.type}
    out = opr.outputs[-1] if opr.class_name == "BatchNormForward" else opr.outputs[0]
    if out.shape is None:
        raise UsageRuntimeError(f"the shape of {out.name} depends on the data; give the inputs")
    if wanted[1]:
        row = get_op_stats(opr, opr.inputs, opr.outputs)
        if row is not None:
            rows.flops.append(row | about)
    if wanted[2]:
        value = values.get(id(opr.outputs[0]))
        shown: Any = out if value is None else _Shown(out, value)
        rows.activations.append(get_activation_stats(shown, has_input=value is not None) | about)
    if wanted[0] and isinstance(opr, ConstOpBase):
        rows.params.append(get_param_stats(_Shown(out, opr.numpy())) | {"name": opr.name})
