"""Recurrent networks (MegEngine's ``module/rnn.py``)."""

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from ...graph import params as P
from ...layers.geometry import member
from ...tensors import Parameter, Tensor, TensorLike, apply, as_tensor
from ...tensors.access import static_shape
from .. import functional as F
from . import init
from .module import Module

__all__ = ["LSTM", "RNN", "LSTMCell", "RNNCell"]


class _Drawn(Module):
    """Parameters that are drawn evenly from ``1 / sqrt(hidden_size)`` around 0."""

    hidden_size: int

    def reset_parameters(self) -> None:
        """Draw all parameters again."""
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)


class RNNCellBase(_Drawn):
    """Base of the cells.

    Args:
        input_size: size of the input's last axis.
        hidden_size: size of the state's last axis.
        bias: whether the biases are learned.
        num_chunks: how many gates a cell has.

    Attributes:
        weight_ih: (gates, input_size), where gates is ``num_chunks * hidden_size``.
        weight_hh: (gates, hidden_size).
        bias_ih: (gates,); a buffer of zeros without `bias`, as is the next.
        bias_hh: (gates,).
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        self.gate_hidden_size = gates = num_chunks * hidden_size
        kind = Parameter if bias else Tensor
        self.weight_ih = Parameter(np.zeros((gates, input_size), np.float32))
        self.weight_hh = Parameter(np.zeros((gates, hidden_size), np.float32))
        self.bias_ih = kind(np.zeros(gates, np.float32))
        self.bias_hh = kind(np.zeros(gates, np.float32))
        self.reset_parameters()

    def _zeros(self, input: Any, size: int) -> Tensor:
        return F.zeros((input.shape[0], size))

    def _inputs(self, input: TensorLike, h: Any) -> list[Tensor]:
        return [as_tensor(input), self.weight_ih, self.bias_ih, as_tensor(h), self.weight_hh, self.bias_hh]


class RNNCell(RNNCellBase):
    """``act(weight_ih @ x + bias_ih + weight_hh @ h + bias_hh)``.

    Args:
        input_size: size of x.
        hidden_size: size of h.
        bias: whether there are biases.
        nonlinearity: "tanh", "relu" or "identity".

    >>> RNNCell(3, 2)(Tensor(np.zeros((4, 3)))).shape
    (4, 2)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, num_chunks=1)

    def forward(self, input: TensorLike, hx: TensorLike | None = None) -> Tensor:
        """Take input (N, input_size) and state (N, hidden_size), by default 0, to the new state."""
        h = self._zeros(input, self.gate_hidden_size) if hx is None else hx
        param = P.RNNCell(nonlineMode=member(P.RNNCellNonlineMode, self.nonlinearity, "nonlinearity"))
        return apply("RNNCellForward", param, inputs=self._inputs(input, h))[0]


class LSTMCell(RNNCellBase):
    """One step of a long short-term memory; its gates are input, forget, cell and output.

    Args:
        input_size: size of the input.
        hidden_size: size of both states.
        bias: whether there are biases.

    >>> h, c = LSTMCell(3, 2)(Tensor(np.zeros((4, 3))))
    >>> h.shape, c.shape
    ((4, 2), (4, 2))
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4)

    def forward(self, input: Any, hx: Any = None) -> tuple[Tensor, Tensor]:
        """Take input (N, input_size) and states (h, c), each (N, hidden_size), by default 0, to the new states."""
        h, c = [self._zeros(input, self.hidden_size) for _ in range(2)] if hx is None else hx
        inputs = [*self._inputs(input, h), as_tensor(c)]
        new_h, new_c, _ = apply("LSTMCellForward", P.Empty(), inputs=inputs, n=3)
        return new_h, new_c


class RNNBase(_Drawn):
    """Base of the networks: layers of cells, forwards and, if wanted, backwards.

    Args:
        input_size: size of the input.
        hidden_size: size of the states.
        num_layers: number of layers.
        bias: whether there are biases.
        batch_first: the input is (N, L, input_size) instead of (L, N, input_size), the output alike.
        dropout: probability of a zero between layers, in training; there is none on MegEngine's CPU.
        bidirectional: whether each layer runs backwards too.
        proj_size: size to which the hidden state is projected; 0 for no projection, which is all that the CPU does.

    Attributes:
        _flatten_weights: (gates, n), the weights and biases of all layers side by side; they are what is used.
        cells: by layer and direction the cells that a checkpoint of MegEngine holds too; they are not used.

    Raises:
        ValueError: `dropout` is not a probability, or `proj_size` not within 0 and `hidden_size`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0,
        bidirectional: bool = False,
        proj_size: int = 0,
    ) -> None:
        super().__init__()
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be a probability in [0, 1], found {dropout!r}")
        if not 0 <= proj_size < hidden_size:
            raise ValueError(f"proj_size must be 0 or less than hidden_size {hidden_size}, found {proj_size}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.num_directions = 2 if bidirectional else 1
        self.proj_size = proj_size
        self.cells = [
            [self.create_cell(layer) for _ in range(self.num_directions)] for layer in range(num_layers)
        ]
        cells = [cell for layer in self.cells for cell in layer]
        columns = sum(static_shape(c.weight_ih)[1] + static_shape(c.weight_hh)[1] + 2 * bias for c in cells)
        shape = (cells[0].gate_hidden_size, columns)
        self._flatten_weights = Parameter(np.zeros(shape, np.float32))
        self.reset_parameters()

    @abstractmethod
    def create_cell(self, layer: int) -> Any:
        """Return a cell of a layer."""

    @abstractmethod
    def apply_op(self, input: TensorLike, hx: TensorLike) -> tuple[Tensor, Any]:
        """Run all layers."""

    def _input_size(self, layer: int) -> int:
        return self.num_directions * self.hidden_size if layer else self.input_size

    def _settings(self) -> dict[str, Any]:
        return {
            "num_layers": self.num_layers,
            "bidirectional": self.bidirectional,
            "bias": self.bias,
            "hidden_size": self.hidden_size,
            "dropout": self.dropout,
            "fwd_mode": P.BNFwdMode.TRAINING if self.training else P.BNFwdMode.INFERENCE,
        }

    def init_hidden(self, batch_size: Any) -> Any:
        """Return states of zeros."""
        shape = (self.num_directions * self.num_layers, batch_size, self.hidden_size)
        return F.zeros(shape)

    def get_output_from_hidden(self, hx: TensorLike) -> Any:
        """Return the state that is the output."""
        return hx

    def forward(self, input: TensorLike, hx: TensorLike | None = None) -> tuple[Tensor, Any]:
        """Take input (L, N, input_size) and states (directions * layers, N, hidden_size), by default 0.

        Returns:
            the output (L, N, directions * hidden_size) and the last states.
        """
        input = as_tensor(input)
        if self.batch_first:
            input = input.transpose((1, 0, 2))
        if hx is None:
            hx = self.init_hidden(input.shape[1])
        output, h = self.apply_op(input, hx)
        return output.transpose((1, 0, 2)) if self.batch_first else output, h


class RNN(RNNBase):
    """Layers of `RNNCell`.

    Args:
        args: those of MegEngine's RNN: input_size, hidden_size, num_layers=1, bias=True, batch_first=False,
            dropout=0, bidirectional=False, proj_size=0.
        kwargs: the same by name, and ``nonlinearity``, "tanh" by default.

    >>> output, h = RNN(3, 2, num_layers=2)(Tensor(np.zeros((5, 4, 3))))
    >>> output.shape, h.shape
    ((5, 4, 2), (2, 4, 2))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        super().__init__(*args, **kwargs)

    def create_cell(self, layer: int) -> RNNCell:
        """Return a cell of a layer."""
        return RNNCell(self._input_size(layer), self.hidden_size, self.bias, self.nonlinearity)

    def apply_op(self, input: Any, hx: Any) -> tuple[Tensor, Any]:
        """Run all layers."""
        mode = member(P.RNNCellNonlineMode, self.nonlinearity, "nonlinearity")
        param = P.RNN(**self._settings(), nonlineMode=mode)
        output, h, _ = apply("RNNForward", param, inputs=[input, as_tensor(hx), self._flatten_weights], n=3)
        return output, h


class LSTM(RNNBase):
    """Layers of `LSTMCell`; the states are pairs (h, c).

    Args:
        args: those of MegEngine's LSTM: input_size, hidden_size, num_layers=1, bias=True, batch_first=False,
            dropout=0, bidirectional=False, proj_size=0.
        kwargs: the same by name.

    >>> output, (h, c) = LSTM(3, 2, bidirectional=True)(Tensor(np.zeros((5, 4, 3))))
    >>> output.shape, h.shape, c.shape
    ((5, 4, 4), (2, 4, 2), (2, 4, 2))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def create_cell(self, layer: int) -> LSTMCell:
        """Return a cell of a layer."""
        return LSTMCell(self._input_size(layer), self.hidden_size, self.bias)

    def init_hidden(self, batch_size: Any) -> Any:
        """Return both states of zeros."""
        return super().init_hidden(batch_size), super().init_hidden(batch_size)

    def get_output_from_hidden(self, hx: Any) -> Any:
        """Return the state that is the output."""
        return hx[0]

    def apply_op(self, input: Any, hx: Any) -> tuple[Tensor, Any]:
        """Run all layers."""
        param = P.LSTM(**self._settings(), proj_size=self.proj_size)
        inputs = [input, as_tensor(hx[0]), as_tensor(hx[1]), self._flatten_weights]
        output, h, c, _ = apply("LSTMForward", param, inputs=inputs, n=4)
        return output, (h, c)
