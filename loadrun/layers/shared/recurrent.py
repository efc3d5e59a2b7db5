"""Recurrent layers: RNN and LSTM are MegEngine's operators, of a GRU it has the parts."""

from collections.abc import Sequence
from typing import Any

from ...graph import params as P
from ...tensors import Tensor, apply


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
