"""RNN, GRU and LSTM: the inputs of all steps are multiplied at once, then the steps are taken one by one."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...arrays.names import np
from ...graph.composite import Flag
from ...graph.dtypes import Array
from ...ops.numeric.parallel import replaced
from . import operator
from .activations import activation_of
from .common import one_of, refuse_unless, taking
from .linalg import integer_product, matmul

Function = Callable[[Array], Array]
_HOW: dict[str, Any] = {"direction": "forward", "layout": 0, "output_sequence": 0} | dict.fromkeys(
    ("activation_alpha", "activation_beta", "activations", "clip", "hidden_size")
)
"""Attributes of all layers, and what they are where they are left out."""
_WITH_ALPHA = {"leakyrelu", "thresholdedrelu", "elu", "hardsigmoid", "affine", "scaledtanh"}
_WITH_BETA = {"hardsigmoid", "affine", "scaledtanh"}


class _Cell(NamedTuple):
    """One direction of a layer.

    Attributes:
        gates: what inputs (T, N, I) add to the gates of all steps, (T, N, G * H).
        step: takes the gates of a step and the states, (N, H) each, and returns the new states.
        joint: whether the states of a batch are quantized together; sequences that have ended count as zeros then.
        faster: takes all steps at once, where something does.
    """

    gates: Function
    step: Callable[[Array, list[Array]], list[Array]]
    joint: bool = False
    faster: Callable[[Array, list[Array], bool], tuple[Array, list[Array]]] | None = None


def _functions(
    defaults: Sequence[str],
    directions: int,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    **others: object,
) -> list[list[Function]]:
    """Return the activations of every direction."""
    names, count = activations or [*defaults] * directions, len(defaults)
    refuse_unless(clip is None or clip > 0, f"its clip is {clip or 0:g}, expected more than 0")
    enough = len(names) >= count * directions
    refuse_unless(enough, f"it has {len(names)} activations, expected {count * directions}")
    alphas, betas = list(activation_alpha or ()), list(activation_beta or ())
    result: list[Function] = []
    for i, name in enumerate(names):
        key = name.lower()
        alpha = alphas.pop(0) if key in _WITH_ALPHA and alphas else None
        beta = betas.pop(0) if key in _WITH_BETA and betas else None
        open_alpha = alpha is None and key in ("affine", "scaledtanh", "thresholdedrelu")
        if open_alpha or (beta is None and key == "scaledtanh"):
            raise ValueError(
                f"its activation {name} has no activation_{'alpha' if open_alpha else 'beta'}, which ONNX Runtime "
                "takes as 0 and others do not; set it"
            )
        # ONNX Runtime bounds what enters the gates, not the cell of an LSTM.
        bound = clip if i % count < 2 else None
        f = activation_of(name, alpha, beta)
        result.append(f if bound is None else partial(lambda f, b, x: f(np.clip(x, -b, b)), f, bound))
    return [result[i * count : (i + 1) * count] for i in range(directions)]


def _directions(direction: str, count: int) -> list[bool]:
    """Return for every direction whether it runs backward."""
    known = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    one_of("direction", direction, *known)
    refuse_unless(
        len(known[direction]) == count, f"its direction is {direction}, its weights are for {count}"
    )
    return known[direction]


def _layer(
    x: Array,
    cells: Sequence[_Cell],
    lengths: Array | None,
    initial: Sequence[Array | None],
    hidden: int,
    *,
    direction: str = "forward",
    layout: int = 0,
    **others: object,
) -> tuple[Array, ...]:
    """Run all directions: outputs (T, directions, N, H) and the last states (directions, N, H); or batch first."""
    if layout:
        x = x.swapaxes(0, 1)
        initial = [None if s is None else s.swapaxes(0, 1) for s in initial]
    steps, batch = x.shape[:2]
    if isinstance(lengths, np.ndarray) and not ((lengths >= 0) & (lengths <= steps)).all():
        raise ValueError(f"its sequence_lens are not all 0 to {steps}")
    outputs, lasts = [], []
    for d, (cell, backward) in enumerate(zip(cells, _directions(direction, len(cells)), strict=True)):
        start = [np.zeros((batch, hidden), x.dtype) if s is None else s[d] for s in initial]
        # The last elements of all sequences are the first step where their states are quantized together.
        aligned = lengths if backward and cell.joint else None
        fed = x if aligned is None else _reversed(x, aligned)
        y, last = _run(fed, cell, start, lengths, backward and aligned is None)
        outputs.append(y if aligned is None else _reversed(y, aligned))
        lasts.append(last)
    result = np.stack(outputs, 2 if layout else 1)
    if layout:
        return result.swapaxes(0, 1), *(np.stack(s, 1) for s in zip(*lasts, strict=True))
    return result, *(np.stack(s) for s in zip(*lasts, strict=True))


def _reversed(x: Array, lengths: Array) -> Array:
    """Reverse the beginning of every sequence of (T, N, ...), as long as it is."""
    step = np.arange(x.shape[0])[:, None]
    at = np.where(step < lengths, lengths - 1 - step, step)
    return np.take_along_axis(x, at[:, :, None], 0)


def _run(
    x: Array, cell: _Cell, state: list[Array], lengths: Array | None, backward: bool
) -> tuple[Array, list[Array]]:
    """Run all steps of one direction; return their outputs in order of time, and the last states."""
    if lengths is not None:
        lengths = lengths[:, None]
        if cell.joint:
            # Steps beyond the longest sequence do not widen the range.
            x = np.where(np.arange(x.shape[0])[:, None, None] < lengths.max(initial=0), x, 0)
    whole = cell.gates(x)
    if cell.faster is not None and lengths is None:
        return cell.faster(whole, state, backward)
    rows: list[Array] = []
    for t in range(x.shape[0] - 1, -1, -1) if backward else range(x.shape[0]):
        carried = [rows[-1], *state[1:]] if cell.joint and rows else state
        new = cell.step(whole[t], carried)
        row = new[0]
        if lengths is not None:
            # Beyond its length a sequence has no output, and its state stays.
            active = t < lengths
            new = [np.where(active, n, o) for n, o in zip(new, state, strict=True)]
            row = np.where(active, row, 0)
        state = new
        rows.append(row)
    if lengths is not None:
        # ONNX leaves open what an empty sequence leaves behind; ONNX Runtime zeros, not what it began with.
        state = [np.where(lengths > 0, s, 0) for s in state]
    if not rows:
        return np.zeros((0, *state[0].shape), x.dtype), state
    return np.stack(rows[::-1] if backward else rows), state


def _shapes(states: int) -> Callable[..., list[tuple[int, ...]]]:
    def shapes(
        x: Array,
        w: Array,
        r: Array,
        *rest: Any,
        layout: Flag = 0,
        hidden_size: int | None = None,
        **others: Any,
    ) -> list[tuple[int, ...]]:
        fits = x.ndim == w.ndim == r.ndim == 3
        refuse_unless(fits, f"its input and weights have {x.ndim}, {w.ndim} and {r.ndim} axes, expected 3")
        directions, hidden = len(w), min(r.shape[1:])
        known = hidden_size in (None, 0, hidden)
        refuse_unless(known, f"its hidden_size is {hidden_size}, its weights are for {hidden}")
        _directions(others.get("direction", "forward"), directions)
        if layout:
            return [(*x.shape[:2], directions, hidden), *[(x.shape[0], directions, hidden)] * states]
        return [(x.shape[0], directions, x.shape[1], hidden), *[(directions, x.shape[1], hidden)] * states]

    return shapes


def _biases(b: Array | None, d: int) -> tuple[Array | float, Array | float]:
    """Return what is added to the products of inputs and of states."""
    if b is None:
        return 0.0, 0.0
    half = b.shape[1] // 2
    return b[d, :half], b[d, half:]


def _turned(r: Array) -> Array:
    """Transpose a matrix that every step multiplies by, in memory as products like it."""
    return np.require(r.swapaxes(0, 1), requirements=["C", "A"])


def _fed(w: Array, bias: Array | float, x: Array) -> Array:
    return matmul(x, w.swapaxes(0, 1)) + bias


@operator("RNN", shape=_shapes(1))
@taking(**_HOW)
def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    **how: Any,
) -> tuple[Array, ...]:
    """Run a layer of h = f(x @ w + h @ r + b)."""
    functions = _functions(("Tanh",), len(w), **how)
    cells = []
    for d, (f,) in enumerate(functions):
        of_input, of_state = _biases(b, d)
        step = partial(lambda f, r, gates, state: [f(gates + np.matmul(state[0], r))], f, _turned(r[d]))
        cells.append(_Cell(partial(_fed, w[d], of_input + of_state), step))
    return _layer(x, cells, sequence_lens, [initial_h], r.shape[2], **how)


@operator("GRU", shape=_shapes(1))
@taking(**_HOW)
def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    linear_before_reset: Flag = 0,
    **how: Any,
) -> tuple[Array, ...]:
    """Run a layer whose update and reset gates decide what it keeps."""
    functions = _functions(("Sigmoid", "Tanh"), len(w), **how)
    cells = []
    for d, (f, g) in enumerate(functions):
        of_input, of_state = _biases(b, d)
        step = partial(_gru_step, f, g, _turned(r[d]), of_state, bool(linear_before_reset))
        cells.append(_Cell(partial(_fed, w[d], of_input), step))
    return _layer(x, cells, sequence_lens, [initial_h], r.shape[2], **how)


def _gru_step(
    f: Function, g: Function, r: Array, bias: Array | float, after: bool, gates: Array, state: list[Array]
) -> list[Array]:
    """Compute update and reset, then the new state; the reset is applied before or after the product."""
    h = state[0]
    n = h.shape[1]
    if after:
        carried = np.matmul(h, r) + bias
        both = f(gates[:, : 2 * n] + carried[:, : 2 * n])
        new = g(gates[:, 2 * n :] + both[:, n:] * carried[:, 2 * n :])
    else:
        early, late = (bias, bias) if isinstance(bias, float) else (bias[: 2 * n], bias[2 * n :])
        both = f(gates[:, : 2 * n] + (np.matmul(h, r[:, : 2 * n]) + early))
        new = g(gates[:, 2 * n :] + (np.matmul(both[:, n:] * h, r[:, 2 * n :]) + late))
    return [new + both[:, :n] * (h - new)]


@operator("LSTM", shape=_shapes(2))
@taking(**_HOW)
def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    p: Array | None = None,
    *,
    input_forget: Flag = 0,
    **how: Any,
) -> tuple[Array, ...]:
    """Run a layer with a cell state beside the output; peepholes let it reach the gates."""
    functions = _functions(("Sigmoid", "Tanh", "Tanh"), len(w), **how)
    plain = p is None and not (input_forget or how.get("activations") or how.get("clip"))
    plain = plain and all(a is None or type(a) is np.ndarray for a in (x, w, r, b, initial_h, initial_c))
    faster = (replaced("lstm", x) or _all_steps) if plain else None
    cells = []
    for d, three in enumerate(functions):
        of_input, of_state = _biases(b, d)
        turned = _turned(r[d])
        product = partial(lambda r, h: np.matmul(h, r), turned)
        step = partial(_lstm_step, three, product, None if p is None else p[d], bool(input_forget))
        all_steps = partial(faster, turned) if faster else None
        cells.append(_Cell(partial(_fed, w[d], of_input + of_state), step, faster=all_steps))
    return _layer(x, cells, sequence_lens, [initial_h, initial_c], r.shape[2], **how)


def _all_steps(turned: Array, gates: Array, state: list[Array], backward: bool) -> tuple[Array, list[Array]]:
    """Take all steps of an LSTM with the usual functions, as `_lstm_step` does, in memory that is made once."""
    h, cell = state[0], np.array(state[1])
    n = cell.shape[1]
    out, total = np.empty((len(gates), *h.shape), gates.dtype), np.empty(gates.shape[1:], gates.dtype)
    three, new = total[:, : 3 * n], total[:, 3 * n :]
    enter, leave, keep = three[:, :n], three[:, n : 2 * n], three[:, 2 * n :]
    # An array without axes: numpy converts a number again in every call.
    one = np.ones((), gates.dtype)
    # Local names: to look them up takes 4 to 7 percent of a step.
    add, multiply, tanh, matmul = np.add, np.multiply, np.tanh, np.matmul
    exp, negative, reciprocal = np.exp, np.negative, np.reciprocal
    order = slice(None, None, -1 if backward else 1)
    for given, following in zip(gates[order], out[order], strict=True):
        matmul(h, turned, total)
        add(total, given, total)
        negative(three, three)
        exp(three, three)
        add(three, one, three)
        reciprocal(three, three)
        tanh(new, new)
        multiply(new, enter, new)
        multiply(cell, keep, cell)
        add(cell, new, cell)
        h = following
        tanh(cell, h)
        multiply(h, leave, h)
    return out, [h, cell]


def _lstm_step(
    functions: list[Function],
    product: Function,
    peepholes: Array | None,
    coupled: bool,
    gates: Array,
    state: list[Array],
) -> list[Array]:
    """Compute input, output and forget gate and what may enter the cell, then the new states."""
    f, g, out_of = functions
    h, cell = state
    n = h.shape[1]
    total = gates + product(h)
    new = g(total[:, 3 * n :])
    if peepholes is None:
        joint = f(total[:, : 3 * n])
        enter, leave, keep = joint[:, :n], joint[:, n : 2 * n], joint[:, 2 * n :]
        now = (1 - enter if coupled else keep) * cell + enter * new
        return [leave * out_of(now), now]
    enter = f(total[:, :n] + peepholes[:n] * cell)
    keep = 1 - enter if coupled else f(total[:, 2 * n : 3 * n] + peepholes[2 * n :] * cell)
    now = keep * cell + enter * new
    return [f(total[:, n : 2 * n] + peepholes[n : 2 * n] * now) * out_of(now), now]


# 8-bit weights


@operator("DynamicQuantizeLSTM", domain="com.microsoft", shape=_shapes(2))
@taking(**{n: v for n, v in _HOW.items() if n not in ("layout", "output_sequence")})
def dynamic_lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    sequence_lens: Array | None,
    initial_h: Array | None,
    initial_c: Array | None,
    p: Array | None,
    w_scale: Array,
    w_zero_point: Array,
    r_scale: Array,
    r_zero_point: Array,
    *,
    input_forget: Flag = 0,
    **how: Any,
) -> tuple[Array, ...]:
    """Run an LSTM with weights (directions, I, 4 * H) of 8 bits.

    All inputs are quantized by their range, and the states of a step by theirs, as ONNX Runtime does on one thread; on
    several it takes the states of a batch in parts, and the last digits depend on their number.
    """
    functions = _functions(("Sigmoid", "Tanh", "Tanh"), len(w), **how)
    cells = []
    for d, three in enumerate(functions):
        of_input, of_state = _biases(b, d)
        fed = partial(_quantized_product, w[d], w_scale[d], w_zero_point[d], of_input + of_state)
        carried = partial(_quantized_product, r[d], r_scale[d], r_zero_point[d], 0.0)
        step = partial(_lstm_step, three, carried, None if p is None else p[d], bool(input_forget))
        cells.append(_Cell(fed, step, joint=True))
    return _layer(x, cells, sequence_lens, [initial_h, initial_c], r.shape[1], **how)


def _quantized_product(w: Array, factor: Array, zero: Array, bias: Array | float, x: Array) -> Array:
    """Multiply as 8-bit numbers, of which those on the left are quantized by their range."""
    high, low = np.maximum(x.max(initial=0), 0), np.minimum(x.min(initial=0), 0)
    scale = np.where(high == low, 1, (high - low) / 255).astype(x.dtype)
    start = np.clip(np.rint(-low / scale), 0, 255)
    y = np.clip(np.rint(x / scale) + start, 0, 255).astype(np.uint8)
    total = integer_product(y, w, start.astype(np.uint8), zero)
    return total.astype(x.dtype) * (scale * factor) + bias
