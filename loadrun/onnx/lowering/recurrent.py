"""RNN, GRU and LSTM; those that are no operator of MegEngine are unrolled over a sequence whose length is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...build import emit as e
from ...build.layers.recurrent import gru_state
from ...graph import params as P
from ...tensors import Tensor
from ...tensors.access import dtype_of, static_shape
from ...tensors.convert import TracedInt
from ..call import CONTRIB, NodeCall, lower
from ..values import UnsupportedNodeError
from . import M, cast, const_like, folded, of_length, refused_if, transposed
from .functions import activation
from .indexing import reversed_sequences
from .linalg import exact_product, matmul
from .quantization import dynamic
from .recurrent_whole import direction_of, whole_layer

__all__: list[str] = []

_LT = P.ElemwiseMultiTypeMode.LT
Step = Callable[[Tensor, "list[Tensor]"], "list[Tensor]"]


class _Cell:
    """One direction of a recurrent operator.

    Attributes:
        w, r: weights (I, G * H) and (H, G * H), transposed for products from the right.
        wb, rb: biases (G * H), None if there are none.
        functions: the activations in order.
    """

    def __init__(
        self, c: NodeCall, direction: int, gates: int, functions: list[Callable[[Tensor], Tensor]]
    ) -> None:
        self.hidden = c.number("hidden_size") or static_shape(c.t(2))[2]
        self.w, self.r = (_transposed_weights(folded(e.real, c.t(i)), direction) for i in (1, 2))
        self.wb = self.rb = None
        if c.has(3):
            whole = folded(
                lambda b: e.subtensor(b, [(0, None, None, None, direction)]), folded(e.real, c.t(3))
            )
            n = gates * self.hidden
            self.wb = folded(lambda b: e.subtensor(b, [(0, None, n, None, None)]), whole)
            self.rb = folded(lambda b: e.subtensor(b, [(0, n, None, None, None)]), whole)
        self.functions = functions
        bound = c.real("clip") if "clip" in c.attributes else None
        if bound is not None:
            if not bound > 0:
                raise UnsupportedNodeError(f"its clip is {bound:g}, expected more than 0")
            # ONNX Runtime bounds what enters the gates, not the cell of an LSTM.
            self.functions = [_bounded(f, bound) for f in functions[:2]] + functions[2:]

    def part(self, x: Tensor, i: int) -> Tensor:
        """Return one gate's slice of (..., G * H)."""
        h = self.hidden
        return e.subtensor(x, [(x.ndim - 1, i * h, (i + 1) * h, None, None)])

    def product(self, x: Tensor, w: Tensor) -> Tensor:
        """Multiply inputs or states by their weight."""
        return matmul(x, w)

    def input_gates(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Compute the contribution of all steps' inputs to the gates: (T, N, G * H)."""
        y = self.product(x, self.w)
        return y if self.wb is None else e.elem(M.ADD, y, self.wb)

    def carried(self, h: Tensor) -> Tensor:
        """Compute the contribution of the state: (N, G * H)."""
        y = self.product(h, self.r)
        return y if self.rb is None else e.elem(M.ADD, y, self.rb)


class _DynamicCell(_Cell):
    """A cell with 8-bit weights.

    All inputs are quantized by their range, and the states of a step by theirs, as ONNX Runtime does on one thread; on
    several it takes the states of a batch in parts, and the last digits depend on their number.
    """

    def __init__(
        self, c: NodeCall, direction: int, gates: int, functions: list[Callable[[Tensor], Tensor]]
    ) -> None:
        super().__init__(c, direction, gates, functions)
        # These weights are stored as they are multiplied: (directions, I, G * H).
        self.w, self.r = (_of_direction(c.t(i), direction) for i in (1, 2))
        self.hidden = c.number("hidden_size") or static_shape(self.r)[0]
        self.scales = {
            id(w): tuple(None if not c.has(i) else _of_direction(c.t(i), direction) for i in places)
            for w, places in ((self.w, (8, 9)), (self.r, (10, 11)))
        }

    def input_gates(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        """Compute the contribution of the inputs; steps beyond the longest sequence do not widen the range."""
        if lengths is not None:
            longest = e.reduce(lengths, P.ReduceMode.MAX, [0, 1])
            steps = e.reshape(e.arange(x.shape[0]), (-1, 1, 1))
            x = e.where(e.compare(_LT, steps, longest), x, const_like(0.0, x))
        return super().input_gates(x, lengths)

    def product(self, x: Tensor, w: Tensor) -> Tensor:
        """Multiply as 8-bit numbers and return float32."""
        y, scale, zero = dynamic(x)
        factor, w_zero = self.scales[id(w)]
        assert factor is not None
        total = exact_product(y, w, zero, w_zero)
        return e.elem(M.MUL, cast(total, "float32"), e.elem(M.MUL, scale, factor))


def _of_direction(x: Tensor, direction: int) -> Tensor:
    return folded(lambda v: e.subtensor(v, [(0, None, None, None, direction)]), x)


def _transposed_weights(w: Tensor, direction: int) -> Tensor:
    return folded(lambda v: transposed(e.subtensor(v, [(0, None, None, None, direction)]), (1, 0)), w)


def _bounded(f: Callable[[Tensor], Tensor], bound: float) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        return f(e.elem(M.MIN, const_like(bound, x), e.elem(M.MAX, const_like(-bound, x), x)))

    return run


def _functions(c: NodeCall, defaults: list[str], directions: int) -> list[list[Callable[[Tensor], Tensor]]]:
    names = c.texts("activations") or defaults * directions
    alphas, betas = c.floats("activation_alpha") or [], c.floats("activation_beta") or []
    with_alpha = {"leakyrelu", "thresholdedrelu", "elu", "hardsigmoid", "affine", "scaledtanh"}
    with_beta = {"hardsigmoid", "affine", "scaledtanh"}
    result = []
    for name in names:
        key = name.lower()
        alpha = alphas.pop(0) if key in with_alpha and alphas else None
        beta = betas.pop(0) if key in with_beta and betas else None
        open_alpha = alpha is None and key in ("affine", "scaledtanh", "thresholdedrelu")
        if open_alpha or (beta is None and key == "scaledtanh"):
            raise UnsupportedNodeError(
                f"its activation {name} has no activation_{'alpha' if open_alpha else 'beta'}, which "
                "ONNX Runtime takes as 0 and others do not; set it"
            )
        result.append(_activation_of(name, alpha, beta))
    n = len(defaults)
    return [result[i * n : (i + 1) * n] for i in range(directions)]


def _activation_of(name: str, alpha: float | None, beta: float | None) -> Callable[[Tensor], Tensor]:
    return lambda x: activation(name, x, alpha, beta)


@lower("DynamicQuantizeLSTM", domain=CONTRIB)
def _dynamic_lstm(c: NodeCall) -> tuple[Tensor, ...]:
    c.op = "LSTM"
    return _unrolled(c, _DynamicCell)


@lower("RNN", "GRU", "LSTM")
def _recurrent(c: NodeCall) -> tuple[Tensor, ...]:
    result = whole_layer(c)
    return _unrolled(c, _Cell) if result is None else result


def _unrolled(c: NodeCall, kind_of_cell: type[_Cell]) -> tuple[Tensor, ...]:
    gates, defaults = {
        "RNN": (1, ["Tanh"]),
        "GRU": (3, ["Sigmoid", "Tanh"]),
        "LSTM": (4, ["Sigmoid", "Tanh", "Tanh"]),
    }[c.op]
    kind = dtype_of(c.t(0))
    x = e.real(c.t(0))
    batch_first = c.flag("layout")
    if batch_first:
        x = transposed(x, (1, 0, 2))
    direction = direction_of(c)
    count = 2 if direction == "bidirectional" else 1
    steps = static_shape(x)[0]
    if steps > 1024 or not steps:
        raise UnsupportedNodeError(f"a sequence of {steps} steps; 1 to 1024 can be unrolled")
    if isinstance(x.shape[0], TracedInt):
        x = of_length(x, 0)
        c.importer.note(
            f"{c.op} was unrolled for sequences of {steps} steps; input_shapes gives other lengths"
        )
    outputs, states = [], []
    lengths = _lengths(c, steps) if c.has(4) else None
    for d, functions in enumerate(_functions(c, defaults, count)):
        cell = kind_of_cell(c, d, gates, functions)
        step = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}[c.op](c, cell, d)
        backward = direction == "reverse" or d == 1
        # States are quantized together step by step, and the last elements of all sequences are the first step.
        aligned = lengths if backward and kind_of_cell is _DynamicCell else None
        fed = x if aligned is None else reversed_sequences(x, aligned, 1, 0)
        rows, last = _run(c, fed, cell, step, d, lengths, backward and aligned is None, batch_first)
        whole = e.concat([e.add_axes(r, [0]) for r in rows], 0)
        outputs.append(
            e.add_axes(whole if aligned is None else reversed_sequences(whole, aligned, 1, 0), [1])
        )
        states.append([e.add_axes(s, [0]) for s in last])
    y = e.concat(outputs, 1)
    lasts = [e.concat(list(s), 0) for s in zip(*states, strict=True)]
    if batch_first:
        y = transposed(y, (2, 0, 1, 3))
        lasts = [transposed(s, (1, 0, 2)) for s in lasts]
    return tuple(cast(v, kind) for v in (y, *lasts))


def _lengths(c: NodeCall, steps: int) -> Tensor:
    """Return how long the sequences are, none longer than all steps."""

    def wrong(n: Tensor) -> Tensor:
        least, most = const_like(0, n), const_like(steps, n)
        return e.elem(M.OR, e.compare(_LT, n, least), e.compare(_LT, most, n))

    lengths = folded(lambda n: cast(n, "int32"), c.t(4))
    return refused_if(lengths, folded(wrong, lengths), f"its sequence_lens are not all 0 to {steps}")


def _initial(c: NodeCall, i: int, d: int, x: Tensor, cell: _Cell, batch_first: bool) -> Tensor:
    if not c.has(i):
        return e.full(const_like(0.0, x), (x.shape[1], cell.hidden))
    states = cast(c.t(i), dtype_of(x))
    return e.subtensor(states, [(1 if batch_first else 0, None, None, None, d)])


def _run(
    c: NodeCall,
    x: Tensor,
    cell: _Cell,
    step: Step,
    d: int,
    lengths: Tensor | None,
    backward: bool,
    batch_first: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Run all steps; return their outputs in order of time, and the last state."""
    count = static_shape(x)[0]
    state = [_initial(c, 5, d, x, cell, batch_first)]
    if c.op == "LSTM":
        state.append(_initial(c, 6, d, x, cell, batch_first))
    lengths = e.add_axes(lengths, [1]) if lengths is not None else None
    whole = cell.input_gates(x, lengths)
    rows: list[Tensor] = []
    for t in range(count - 1, -1, -1) if backward else range(count):
        # Where the states of a batch are quantized together, an ended sequence counts as zeros, as in ONNX Runtime.
        carried = state if backward or not rows else [rows[-1], *state[1:]]
        new = step(e.subtensor(whole, [(0, None, None, None, t)]), carried)
        row = new[0]
        if lengths is not None:
            # Beyond its length a sequence has no output, and its state stays.
            active = e.compare(_LT, const_like(t, lengths), lengths)
            new = [e.where(active, n, o) for n, o in zip(new, state, strict=True)]
            row = e.where(active, row, const_like(0.0, row))
        state = new
        rows.append(row)
    if lengths is not None:
        # ONNX leaves open what an empty sequence leaves behind; ONNX Runtime zeros, not what it began with.
        some = e.compare(_LT, const_like(0, lengths), lengths)
        state = [e.where(some, s, const_like(0.0, s)) for s in state]
    return (rows[::-1] if backward else rows), state


def _rnn(c: NodeCall, cell: _Cell, d: int) -> Step:
    (f,) = cell.functions
    return lambda gates, state: [f(e.elem(M.ADD, gates, cell.carried(state[0])))]


def _gru(c: NodeCall, cell: _Cell, d: int) -> Step:
    f, g = cell.functions
    after = c.flag("linear_before_reset")

    def step(gates: Tensor, state: list[Tensor]) -> list[Tensor]:
        h = state[0]
        carried = cell.carried(h)
        fed = [cell.part(gates, i) for i in range(3)]
        parts = [cell.part(carried, i) for i in range(3 if after else 2)]
        if after:
            return [gru_state(h, fed, parts, f, g)]
        z, r = (f(e.elem(M.ADD, a, b)) for a, b in zip(fed, parts, strict=False))
        last = folded(lambda w: cell.part(w, 2), cell.r)
        inner = matmul(e.elem(M.MUL, r, h), last)
        if cell.rb is not None:
            inner = e.elem(M.ADD, inner, folded(lambda b: cell.part(b, 2), cell.rb))
        n = g(e.elem(M.ADD, fed[2], inner))
        return [e.elem(M.ADD, n, e.elem(M.MUL, z, e.elem(M.SUB, h, n)))]

    return step


def _lstm(c: NodeCall, cell: _Cell, d: int) -> Step:
    f, g, h_of = cell.functions
    peeps: Sequence[Tensor] = []
    if c.has(7):
        whole = folded(lambda p: e.subtensor(p, [(0, None, None, None, d)]), folded(e.real, c.t(7)))
        peeps = [folded(lambda p, k=k: cell.part(p, k), whole) for k in range(3)]
    coupled = c.flag("input_forget")

    def step(gates: Tensor, state: list[Tensor]) -> list[Tensor]:
        h, old = state
        total = e.elem(M.ADD, gates, cell.carried(h))
        i, o, forget, new = (cell.part(total, k) for k in range(4))
        if peeps:
            i = e.elem(M.ADD, i, e.elem(M.MUL, peeps[0], old))
            forget = e.elem(M.ADD, forget, e.elem(M.MUL, peeps[2], old))
        i = f(i)
        forget = e.elem(M.SUB, const_like(1.0, i), i) if coupled else f(forget)
        now = e.elem(M.ADD, e.elem(M.MUL, forget, old), e.elem(M.MUL, i, g(new)))
        if peeps:
            o = e.elem(M.ADD, o, e.elem(M.MUL, peeps[1], now))
        return [e.elem(M.MUL, f(o), h_of(now)), now]

    return step
