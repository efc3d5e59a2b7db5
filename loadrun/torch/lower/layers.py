"""Layers that MegEngine has whole operators for: normalizations, attention, recurrent layers."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from ...graph import params as P
from ...layers import emit as e, nn as F
from ...layers.emit import M
from ...layers.products import product
from ...layers.shared import nn as build
from ...layers.shared.sizes import per_channel
from ...tensors import Tensor, TracedNumber
from ...tensors.access import dtype_of, static_shape
from ..call import FxCall, as_array, as_tensor
from ..registry import UnsupportedCallError, aten


def _tensors(call: FxCall, *values: Any) -> list[Any]:
    return [None if v is None else as_tensor(v, call.dtype) for v in values]


def _normalized(call: FxCall, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, eps: float) -> Tensor:
    """Normalize by known statistics."""
    if mean is None or variance is None:
        raise UnsupportedCallError(
            "batch normalization by the batch's own statistics; call .eval() on a module that keeps them"
        )
    x, mean, variance, weight, bias = _tensors(call, x, mean, variance, weight, bias)
    return build.batch_norm(x, mean, variance, weight, bias, eps)


@aten("aten.batch_norm.default", "aten.cudnn_batch_norm.default")
def batch_norm(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    cudnn: bool = False,
) -> Any:
    """Normalize batches by running statistics, or by the batch's own."""
    if training:
        x, weight, bias = _tensors(call, x, weight, bias)
        y, _, _ = build.standardized(e.as_float(x), [i for i in range(x.ndim) if i != 1], eps)
        scales = [None if v is None else per_channel(v, x.ndim) for v in (weight, bias)]
        return build.affine(e.cast(y, call.dtype), *scales)
    return _normalized(call, x, weight, bias, mean, variance, eps)


@aten("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    call: FxCall, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: float, eps: float
) -> Any:
    """Normalize batches by running statistics; the two empty results are not used."""
    result = _normalized(call, x, weight, bias, mean, variance, eps)
    nothing = as_array(np.zeros(0), call.dtype)
    return result, nothing, nothing


@aten("aten.layer_norm.default")
def layer_norm(
    call: FxCall,
    x: Any,
    shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Any:
    """Apply MegEngine's LayerNorm."""
    return native_layer_norm(call, x, shape, weight, bias, eps)[0]


@aten("aten.native_layer_norm.default")
def native_layer_norm(call: FxCall, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """Normalize over the last axes; return mean and inverse deviation too."""
    x, weight, bias = _tensors(call, x, weight, bias)
    fixed = None if any(isinstance(n, TracedNumber) for n in shape) else shape
    return build.layer_norm(x, x.ndim - len(shape), weight, bias, eps, fixed)


@aten("aten.rms_norm.default")
def rms_norm(call: FxCall, x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """Divide by the root of the mean square of the last axes."""
    x, weight = _tensors(call, x, weight)
    eps = float(np.finfo(call.dtype).eps) if eps is None else eps
    return build.rms_norm(x, range(x.ndim - len(shape), x.ndim), weight, eps)


@aten("aten.group_norm.default")
def group_norm(
    call: FxCall,
    x: Any,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn: bool = True,
) -> Any:
    """Apply MegEngine's GroupNorm."""
    x, weight, bias = _tensors(call, x, weight, bias)
    return build.group_norm(x, groups, weight, bias, eps)


@aten("aten.instance_norm.default")
def instance_norm(
    call: FxCall,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    by_input: bool,
    momentum: float,
    eps: float,
    cudnn: bool = False,
) -> Any:
    """Normalize every channel of every image, or all by running statistics."""
    if not by_input:
        return _normalized(call, x, weight, bias, mean, variance, eps)
    x, weight, bias = _tensors(call, x, weight, bias)
    return build.group_norm(x, 0, weight, bias, eps)


def _shared_heads(x: Tensor, times: int) -> Tensor:
    """Return (..., H, S, D) with every head as many times as query heads share it."""
    if times == 1:
        return x
    *lead, h, s, d = x.shape
    wide = e.broadcast(e.add_axes(x, [x.ndim - 2]), (*lead, h, times, s, d))
    return e.reshape(wide, (*lead, h * times, s, d))


def _mask_bias(allowed: Tensor, like: Tensor) -> Tensor:
    """Return what a mask of keys that may be seen adds to the scores: 0, or -inf where it is False."""
    return e.folded(lambda mask: e.where(mask, e.number(0.0, like), e.number(-np.inf, like)), allowed)


@aten("aten.scaled_dot_product_attention.default")
def attention(
    call: FxCall,
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute ``softmax(query @ key.T * scale + mask) @ value``."""
    if dropout:
        raise UnsupportedCallError("attention with dropout; call .eval() first")
    q, k, v = (e.as_float(as_tensor(x)) for x in (query, key, value))
    if enable_gqa:
        heads, fewer = call.static([call.shape_of(0)[-3], call.shape_of(1)[-3]], "the number of heads")
        k, v = (_shared_heads(x, heads // fewer) for x in (k, v))
    if scale is None and not isinstance(call.shape_of(0)[-1], int):
        q, scale = as_tensor(as_array(q) / np.sqrt(as_array(as_array(q).shape[-1], dtype_of(q).np))), 1.0
    elif scale is None:
        scale = float(call.shape_of(0)[-1]) ** -0.5
    last = k.ndim - 1
    turned = e.permute(k, (*range(last - 1), last, last - 1))
    scores = product(e.elem(M.MUL, q, e.number(float(scale), q)), turned)
    biases = []
    if causal:
        rows = e.add_axes(e.arange(q.shape[-2]), [1])
        seen = e.compare(P.ElemwiseMultiTypeMode.LEQ, e.arange(k.shape[-2]), rows)
        biases.append(_mask_bias(seen, q))
    if mask is not None:
        boolean = not call.fakes[3].dtype.is_floating_point
        added = _mask_bias(as_tensor(mask, "bool"), q) if boolean else e.cast(as_tensor(mask), dtype_of(q))
        biases.append(added)
    if biases:
        scores = e.elem(M.ADD, scores, reduce(partial(e.elem, M.ADD), biases))
    # A query that a mask lets see nothing gives zeros in torch.
    return e.cast(product(build.softmax(scores, scores.ndim - 1, guard=mask is not None), v), call.dtype)


_Weights = Sequence[Sequence[Any]]


def _cells(params: Sequence[Any], layers: int, both: bool) -> list[list[Tensor]]:
    """Group the weights of every layer and direction: input, hidden, the two biases and the projection if any."""
    count = layers * (2 if both else 1)
    each = len(params) // count
    return [[as_tensor(p) for p in params[i * each : (i + 1) * each]] for i in range(count)]


def _flat(cells: _Weights) -> Tensor:
    """Pack all weights side by side, as MegEngine's operators take them."""
    return e.concat([e.flat(w) for cell in cells for w in cell], 0)


def _time_and_batch_swapped(x: Any) -> Any:
    return e.permute(as_tensor(x), (1, 0, 2))


def _checked(
    biased: bool, layers: int, dropout: float, train: bool, both: bool, batch_first: bool
) -> tuple[bool, int, bool, bool]:
    """Return what matters of the options of a recurrent layer; dropout does not."""
    if train and dropout:
        raise UnsupportedCallError("dropout between layers in training; call .eval() first")
    return biased, layers, both, batch_first


def _laid_out(call: FxCall, batch_first: bool, x: Any, *states: Any) -> tuple[Any, ...]:
    """Return whether there is no batch, the input (steps, N, features) and the states (layers, N, hidden)."""
    x, *tensors = map(as_tensor, (x, *states))
    if len(call.shape_of(0)) == 2:
        return True, *(e.add_axes(v, [1]) for v in (x, *tensors))
    return False, _time_and_batch_swapped(x) if batch_first else x, *tensors


@aten("aten.lstm.input")
def lstm(call: FxCall, x: Any, states: Any, params: Any, *how: Any) -> Any:
    """Apply MegEngine's LSTM."""
    biased, layers, both, batch_first = _checked(*how)
    single, x, h, c = _laid_out(call, batch_first, x, *states)
    cells = _cells(params, layers, both)
    if len(cells[0]) > (4 if biased else 2):
        length = _length(call, batch_first, single, "an LSTM with projections")
        y, *states = _unrolled(x, (h, c), cells, 2 if both else 1, length, _projected_step)
        return _given_back(y, states, single, batch_first)
    hidden = int(static_shape(cells[0][1])[1])
    y, *states = build.layers(x, (h, c), _flat(cells), hidden, count=layers, both=both, biased=biased)
    return _given_back(y, states, single, batch_first)


def _given_back(y: Tensor, states: Sequence[Tensor], single: bool, batch_first: bool) -> Any:
    if single:
        return (e.drop_axes(y, [1]), *(e.drop_axes(s, [1]) for s in states))
    return (_time_and_batch_swapped(y) if batch_first else y, *states)


@aten("aten.rnn_tanh.input", "aten.rnn_relu.input")
def rnn(call: FxCall, x: Any, state: Any, params: Any, *how: Any) -> Any:
    """Apply MegEngine's RNN."""
    biased, layers, both, batch_first = _checked(*how)
    single, x, h = _laid_out(call, batch_first, x, state)
    cells = _cells(params, layers, both)
    kind = P.RNNCellNonlineMode.TANH if "tanh" in str(call.node.target) else P.RNNCellNonlineMode.RELU
    hidden = int(static_shape(cells[0][1])[1])
    y, *states = build.layers(
        x, (h,), _flat(cells), hidden, count=layers, both=both, biased=biased, mode=kind
    )
    return _given_back(y, states, single, batch_first)


@aten("aten.gru.input")
def gru(call: FxCall, x: Any, state: Any, params: Any, *how: Any) -> Any:
    """Unroll a gated recurrent unit: MegEngine has none, so every step is in the graph."""
    _, layers, both, batch_first = _checked(*how)
    single, x, h = _laid_out(call, batch_first, x, state)
    length = _length(call, batch_first, single, "a GRU")
    cells = _cells(params, layers, both)
    y, last = _unrolled(x, (h,), cells, 2 if both else 1, length, _gru_step)
    return _given_back(y, (last,), single, batch_first)


def _length(call: FxCall, batch_first: bool, single: bool, what: str) -> int:
    shape = call.shape_of(0)
    places = shape[1:2] if batch_first and not single else shape[:1]
    return call.static(places, f"the number of steps of {what}")[0]


def _unrolled(
    x: Tensor,
    states: Sequence[Tensor],
    cells: _Weights,
    directions: int,
    length: int,
    step: Callable[[Any, Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]],
) -> list[Tensor]:
    """Record every step of all layers.

    Args:
        x: (steps, N, features).
        states: (layers * directions, N, ...) each.
        cells: the weights of each layer and direction.
        directions: 2 if every layer goes through the steps backwards, too.
        length: the number of steps.
        step: the next states of the gates that the input adds to, the states, and the weights but that of the input.

    Returns:
        the first state at every step, of both directions side by side, then the last states.
    """
    layer = x
    last: list[list[Tensor]] = [[] for _ in states]
    for first in range(0, len(cells), directions):
        outs = []
        for d in range(directions):
            weight, *rest = cells[first + d]
            fed = as_array(F.linear(layer, weight, rest[1] if len(rest) > 2 else None))
            now: Sequence[Tensor] = [as_tensor(as_array(s)[first + d]) for s in states]
            kept: dict[int, Tensor] = {}
            for t in range(length - 1, -1, -1) if d else range(length):
                now = step(fed[t], now, rest)
                kept[t] = e.add_axes(now[0], [0])
            for ends, value in zip(last, now, strict=True):
                ends.append(e.add_axes(as_tensor(value), [0]))
            outs.append(e.concat([kept[t] for t in range(length)], 0))
        layer = e.concat(outs, 2)
    return [layer, *(e.concat(ends, 0) for ends in last)]


def _projected_step(fed: Any, states: Sequence[Tensor], rest: Sequence[Tensor]) -> list[Tensor]:
    """Compute the new states of an LSTM from the input's gates (N, 4 * hidden): input, forget, cell, output."""
    h, c = states
    gates = fed + as_array(F.linear(h, rest[0], rest[2] if len(rest) > 2 else None))
    n = int(static_shape(rest[-1])[1])
    i, f, g, o = (as_tensor(gates[..., k * n : (k + 1) * n]) for k in range(4))
    new = as_array(F.sigmoid(f)) * as_array(c) + as_array(F.sigmoid(i)) * as_array(F.tanh(g))
    return [F.linear(as_tensor(as_array(F.sigmoid(o)) * np.tanh(new)), rest[-1], None), as_tensor(new)]


def _gru_step(fed: Any, states: Sequence[Tensor], rest: Sequence[Tensor]) -> list[Tensor]:
    """Compute the new state from the input's gates (N, 3 * hidden): reset, update, new."""
    gates = as_array(F.linear(states[0], rest[0], rest[2] if len(rest) > 1 else None))
    n = int(static_shape(rest[0])[1])
    input_gates, carried = ([as_tensor(v[..., i * n : (i + 1) * n]) for i in (1, 0, 2)] for v in (fed, gates))
    update, reset = (F.sigmoid(e.elem(M.ADD, input_gates[i], carried[i])) for i in (0, 1))
    fresh = F.tanh(e.elem(M.ADD, input_gates[2], e.elem(M.MUL, reset, carried[2])))
    return [e.elem(M.ADD, fresh, e.elem(M.MUL, update, e.elem(M.SUB, states[0], fresh)))]
