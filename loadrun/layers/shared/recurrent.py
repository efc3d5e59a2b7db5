"""Recurrent layers: RNN and LSTM are MegEngine's operators, of a GRU it has the parts."""

from collections.abc import Sequence
from typing import Any

from ...graph import params as P
from ...tensors import Tensor, apply
from .. import emit as e
from ..emit import M


def layers(
    x: Tensor,
    states: Sequence[Tensor],
    weights: Tensor,
    hidden: int,
    *,
    count: int = 1,
    both: bool = False,
    biased: bool = True,
    mode: P.RNNCellNonlineMode = P.RNNCellNonlineMode.TANH,
) -> list[Tensor]:
    """Run layers of an LSTM, or of an RNN if there is one state, over sequences of any length.

    Args:
        x: (steps, N, features), float32.
        states: (layers * directions, N, hidden): hidden, and of an LSTM cell.
        weights: those of all layers and directions side by side: input, hidden, and their biases.
        hidden: the size of a state.
        count: how many layers.
        both: go through the steps in both directions.
        biased: the weights have biases.
        mode: the activation of an RNN.

    Returns:
        (steps, N, hidden * directions), then the last states.
    """
    common: dict[str, Any] = {
        "num_layers": count,
        "bidirectional": both,
        "bias": biased,
        "hidden_size": hidden,
        "fwd_mode": P.BNFwdMode.INFERENCE,
    }
    inputs = [x, *states, weights]
    if len(states) == 2:
        return apply("LSTMForward", P.LSTM(**common), inputs=inputs, n=4, scalar=False)[:3]
    param = P.RNN(**common, nonlineMode=mode)
    return apply("RNNForward", param, inputs=inputs, n=3, scalar=False)[:2]


def gru_state(h: Tensor, fed: Sequence[Tensor], carried: Sequence[Tensor]) -> Tensor:
    """Return the next state of a GRU.

    Args:
        h: the state.
        fed: what the input adds to update gate, reset gate and new state.
        carried: what the state adds to them, to the new one before it is reset.
    """
    update, reset = (e.elem(M.SIGMOID, e.elem(M.ADD, fed[i], carried[i])) for i in (0, 1))
    fresh = e.elem(M.TANH, e.elem(M.ADD, fed[2], e.elem(M.MUL, reset, carried[2])))
    return e.elem(M.ADD, fresh, e.elem(M.MUL, update, e.elem(M.SUB, h, fresh)))
