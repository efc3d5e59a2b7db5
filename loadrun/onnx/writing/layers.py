"""Matrix products, normalizations, recurrent networks, resizing."""

import numpy as np

from ...graph import Opr, Var, params as P
from ...graph.dtypes import Array, DType
from ...ops.formulas import FORMULAS
from ...ops.shape import axis_of
from ..tensors import ElemType
from .emitter import Dim, UnsupportedOprError
from .formulas import in_other_layout, kernel_of, packed_product, written
from .writer import OnnxWriter, elem_of, translation


@translation("MatrixMulV2", "BatchedMatrixMulV2")
def matrix_mul(w: OnnxWriter, opr: Opr) -> str:
    """Emit MatMul; for 8-bit integers MatMulInteger."""
    p = opr.get(P.MatrixMul)
    a, b = opr.inputs
    if p.format != P.MatrixMulFormat.DEFAULT:
        return written(w, opr, packed_product, stored=True)[0]
    x, y = operand(w, a, p.transposeA), operand(w, b, p.transposeB)
    first, second, target = w.dtype(a), w.dtype(b), w.dtype(opr.outputs[0])
    if first.name == "Float16" or first.is_wide:
        return w.op("MatMul", x, y)
    if first.is_float:
        return w.stored(w.op("MatMul", x, y), target)
    if first.name == "Int16" or w.opset < 10:
        whole = [w.centred(v, t, ElemType.INT32) for v, t in ((x, first), (y, second))]
        return w.cast(w.op("MatMul", *whole), elem_of(target))
    (x, zero), (y, other) = unsigned(w, x, first), unsigned(w, y, second)
    out = w.op("MatMulInteger", x, y, zero, other)
    return out if target.np == np.int32 else w.cast(out, elem_of(target))


def operand(w: OnnxWriter, var: Var, turn: bool) -> str:
    """Return the matrices in a variable, turned if asked for."""
    rank = w.rank(var)
    if not turn:
        return w.name(var)
    value = w.value(var)
    if value is not None:
        return w.derived(var, "transposed", np.ascontiguousarray(value.swapaxes(-1, -2)))
    return w.transpose(w.name(var), [*range(rank - 2), rank - 1, rank - 2])


def unsigned(w: OnnxWriter, x: str, dtype: DType) -> tuple[str, str]:
    """Convert stored 8-bit integers to uint8 with a zero point.

    ONNX Runtime's products of uint8 with int8 saturate on processors without the right instructions; those of
    uint8 with uint8 never do.
    """
    if dtype.np == np.uint8:
        return x, w.const(np.uint8(dtype.zero_point))
    stored = w.initializers[x].value if x in w.initializers else None
    if stored is not None:
        key = f"{x}:unsigned"
        if key not in w.initializers:
            w.const((stored.astype(np.int16) + 128).astype(np.uint8), key)
        return key, w.const(np.uint8(128))
    wide = w.op("Add", w.cast(x, ElemType.INT32), w.const(np.int32(128)))
    return w.cast(wide, ElemType.UINT8), w.const(np.uint8(128))


@translation("Softmax")
def softmax(w: OnnxWriter, opr: Opr) -> str:
    """Emit Softmax."""
    (x,) = opr.inputs
    rank = w.rank(x)
    return w.stored(w.softmax(w.float(x), axis_of(opr.get(P.Softmax).axis, rank), rank), w.dtype(x))


@translation("LRN")
def lrn(w: OnnxWriter, opr: Opr) -> str:
    """Emit LRN, whose alpha is divided by the size of the window."""
    p, (x,) = opr.get(P.LRN), opr.inputs
    if p.n > 2 * (w.shape(x)[1] or 2**30):
        size = 2 * w.fixed(x, [1])[0] + 1
    else:
        size = int(p.n)
    out = w.op("LRN", w.float(x), size=size, alpha=float(p.alpha * size), beta=float(p.beta), bias=float(p.k))
    return w.stored(out, w.dtype(x))


@translation("LayerNorm")
def layer_norm(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit LayerNormalization, or compose it before opset 17."""
    p, x = opr.get(P.LayerNorm), opr.inputs[0]
    if w.opset < 17:
        return written(w, opr, FORMULAS[opr.type])
    rank = w.rank(x)
    first = rank - int(p.normalized_dim)
    axes = list(range(first, rank))
    scale = w.float(opr.inputs[1]) if p.affine else w.const(np.ones(w.fixed(x, axes), np.float32))
    bias = w.float(opr.inputs[2]) if p.affine else ""
    out, mean, rstd = w.ops(
        "LayerNormalization", w.float(x), scale, bias, out=3, axis=first, epsilon=float(p.eps)
    )
    return [w.stored(out, w.dtype(x)), w.squeeze(mean, axes), w.squeeze(rstd, axes)]


@translation("InstanceNorm")
def instance_norm(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit InstanceNormalization; compose mean and variance, and what has no weights."""
    p, x = opr.get(P.GroupNorm), opr.inputs[0]
    composed = written(w, opr, FORMULAS[opr.type])
    if not p.affine:
        return composed
    out = w.op("InstanceNormalization", *map(w.float, opr.inputs), epsilon=float(p.eps))
    return [w.stored(out, w.dtype(x)), *composed[1:]]


@translation("BatchNormV1")
def batch_norm(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit BatchNormalization for inference with one number per channel; else compose it."""
    p, (x, *rest) = opr.get(P.BN), opr.inputs
    composed = written(w, opr, FORMULAS[opr.type])
    shape = w.fixed(rest[0])
    per_channel = shape[0] == shape[2] == shape[3] == 1 and shape[1] == w.shape(x)[1]
    if p.fwd_mode != P.BNFwdMode.INFERENCE or not per_channel:
        return composed
    vectors = [w.reshape(w.float(v), [-1]) if w.value(v) is None else _flat(w, v) for v in rest]
    out = w.op("BatchNormalization", w.float(x), *vectors, epsilon=float(p.epsilon))
    return [*composed[:-1], w.stored(out, w.dtype(x))]


def _flat(w: OnnxWriter, var: Var) -> str:
    value = w.value(var)
    assert value is not None
    return w.derived(var, "vector", np.ascontiguousarray(value.reshape(-1).astype(w.floating.numpy)))


_ORDER = {1: [0], 4: [0, 3, 1, 2]}
"""MegEngine's gates input, forget, cell, output in ONNX's order input, output, forget, cell."""

_Mode = P.RNNCellNonlineMode
_ACTIVATIONS = {_Mode.IDENTITY: "Affine", _Mode.RELU: "Relu", _Mode.TANH: "Tanh"}


def _layer_weights(p: P.RNN | P.LSTM, flat: Array, size: int, gates: int) -> list[tuple[Array, Array, Array]]:
    """Split MegEngine's flat weights into ONNX's W, R and B for every layer."""
    directions, hidden = 2 if p.bidirectional else 1, p.hidden_size
    flat, at = flat.reshape(-1).astype(np.float32), 0

    def take(*shape: int) -> Array:
        nonlocal at
        part = flat[at : at + int(np.prod(shape))].reshape(shape)
        at += part.size
        return part.reshape(gates, hidden, *shape[1:])[_ORDER[gates]].reshape(shape)

    layers = []
    width = gates * hidden
    for layer in range(p.num_layers):
        cells = []
        for _ in range(directions):
            of_input = take(width, directions * hidden if layer else size)
            of_hidden = take(width, hidden)
            biases = np.concatenate([take(width), take(width)]) if p.bias else np.zeros(2 * width, np.float32)
            cells.append((of_input, of_hidden, biases))
        stacked = [np.stack(part) for part in zip(*cells, strict=True)]
        layers.append((stacked[0], stacked[1], stacked[2]))
    return layers


@translation("RNNForward", "LSTMForward")
def stack(w: OnnxWriter, opr: Opr) -> list[str]:
    """Emit one RNN or LSTM per layer."""
    is_lstm = opr.type == "LSTMForward"
    p: P.RNN | P.LSTM = opr.get(P.LSTM) if is_lstm else opr.get(P.RNN)
    x, *states, weights = opr.inputs
    directions, gates = 2 if p.bidirectional else 1, 4 if is_lstm else 1
    flat = w.constant(weights, "the weights of a recurrent net")
    size = w.fixed(x, [2])[0]
    attributes: dict[str, object] = {"hidden_size": int(p.hidden_size)}
    if directions == 2:
        attributes["direction"] = "bidirectional"
    if isinstance(p, P.RNN):
        attributes["activations"] = [_ACTIVATIONS[p.nonlineMode]] * directions
        if p.nonlineMode == _Mode.IDENTITY:
            attributes["activation_alpha"] = [1.0] * directions
            attributes["activation_beta"] = [0.0] * directions
    layer = w.float(x)
    if p.num_layers < 1:
        raise UnsupportedOprError("no layers")
    # The first states of every layer.
    parts = [w.split(w.float(s), [directions] * p.num_layers, 0) for s in states]
    last: list[list[str]] = [[] for _ in states]
    for number, (of_input, of_hidden, biases) in enumerate(_layer_weights(p, flat, size, gates)):
        operands = [
            w.derived(weights, f"{number}{k}", v)
            for k, v in zip("WRB", (of_input, of_hidden, biases), strict=True)
        ]
        out, *ends = w.ops(
            "LSTM" if is_lstm else "RNN",
            layer,
            *operands,
            "",
            *(part[number] for part in parts),
            out=1 + len(states),
            **attributes,  # type: ignore[arg-type]
        )
        for finals, end in zip(last, ends, strict=True):
            finals.append(end)
        # [time, directions, batch, hidden] becomes [time, batch, directions * hidden].
        if directions == 1:
            layer = w.squeeze(out, [1])
            continue
        turned = w.transpose(out, [0, 2, 1, 3])
        layer = w.reshape(turned, [w.dim(x, 0), w.dim(x, 1), directions * int(p.hidden_size)])
    outs = [layer, *(h[0] if len(h) == 1 else w.op("Concat", *h, axis=0) for h in last)]
    return [w.stored(v, w.dtype(o)) for v, o in zip(outs, opr.outputs, strict=False)]


_MODE = {
    P.InterpolationMode.NEAREST: "nearest",
    P.InterpolationMode.LINEAR: "linear",
    P.InterpolationMode.CUBIC: "cubic",
}


def store(w: OnnxWriter, x: str, dtype: DType) -> str:
    """Convert float32 results to the stored type of image operators: integers round halves away from zero."""
    if dtype.is_float:
        return w.stored(x, dtype)
    whole = w.round_away(x)
    if dtype.np == np.int8:
        return w.cast(w.cast(whole, ElemType.INT32), ElemType.INT8)
    low, high = dtype.range if dtype.is_quantized else (0, 255)
    return w.cast(w.clip(whole, float(low), float(high)), elem_of(dtype))


@translation("ResizeV2")
def resize(w: OnnxWriter, opr: Opr) -> str:
    """Resize; what OpenCV computes otherwise (area, Lanczos) by weighing pixels along both axes."""
    p, x = opr.get(P.Resize), opr.inputs[0]
    shape = w.example(x)
    if p.format not in (P.Format.NCHW, P.Format.NHWC):
        return in_other_layout(w, opr, p.format)
    packed = p.format == P.Format.NHWC
    dtype, mode = w.dtype(x), p.imode
    if packed:
        like_cv = shape[3] in (1, 3) and dtype.name in ("Float32", "Uint8")
        if not like_cv and mode != P.InterpolationMode.NEAREST:
            mode = P.InterpolationMode.LINEAR
        if like_cv and mode != P.InterpolationMode.NEAREST:
            fixed = None not in (*w.shape(x)[1:3], *w.shape(opr.outputs[0])[1:3])
            if mode not in _MODE or (mode == P.InterpolationMode.CUBIC and fixed):
                return written(w, opr, kernel_of, stored=True)[0]
            if dtype.name == "Uint8":
                w.note(
                    opr,
                    "8-bit images are blended in floats, OpenCV does so in 11-bit fixed point: one step may differ",
                )
    data = w.name(x) if dtype.np == np.float32 else w.cast(w.name(x), ElemType.FLOAT)
    data = w.transpose(data, [0, 3, 1, 2]) if packed else data
    n, c = w.dim(x, 0), w.dim(x, 3 if packed else 1)
    places = {"coordinate_transformation_mode": "half_pixel"}
    if mode == P.InterpolationMode.NEAREST:
        places = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    sizes = [n, c, *w.split_dims(opr.inputs[1])]
    if mode == P.InterpolationMode.CUBIC:
        out = _resize(w, data, sizes, "cubic", **places, cubic_coeff_a=-0.75)
    else:
        out = _resize(w, data, sizes, _MODE[mode], **places)
    if packed and dtype.name == "Uint8" and mode == P.InterpolationMode.LINEAR and shape[3] in (1, 3):
        out = w.op("Floor", w.op("Add", out, w.f32(1e-4)))
    out = store(w, out, dtype) if dtype.np != np.float32 or dtype.name == "BFloat16" else out
    return w.transpose(out, [0, 2, 3, 1]) if packed else out


def _resize(w: OnnxWriter, x: str, dims: list[Dim], mode: str, **attributes: str | float) -> str:
    nothing = "" if w.opset >= 13 else w.const(np.zeros(0, np.float32))
    return w.op("Resize", x, nothing, nothing, w.vector(dims), mode=mode, **attributes)


@translation("Resize3D")
def resize_3d(w: OnnxWriter, opr: Opr) -> str:
    """Resize of volumes."""
    p, (x, target) = opr.get(P.Resize3D), opr.inputs
    dims = [*w.dims(x)[:2], *w.split_dims(target)]
    mode = "align_corners" if p.align_corners else "half_pixel"
    out = _resize(w, w.float(x), dims, "linear", coordinate_transformation_mode=mode)
    return w.stored(out, w.dtype(x))
