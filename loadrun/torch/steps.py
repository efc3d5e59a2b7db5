"""Recurrent layers while torch exports them: shapes without going through the steps, whose number may then differ."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)
_aten = torch.ops.aten
_OPERATORS = (_aten.lstm.input, _aten.gru.input, _aten.rnn_tanh.input, _aten.rnn_relu.input)


@contextmanager
def any_number_of_steps() -> Iterator[None]:
    """Let torch infer what recurrent layers give from their arguments' shapes.

    Torch's own rule is their decomposition into steps, which fixes how many there are; here their lowering does so,
    where MegEngine has no operator for whole sequences.
    """
    kept = {op: dict(op.py_kernels) for op in _OPERATORS}
    try:
        for op in _OPERATORS:
            kernel = op.py_kernels.get(_KEYS[0]) or op.decompose
            for key in _KEYS:
                op.py_kernels[key] = partial(_inferred, kernel)
            op._dispatch_cache.clear()
        yield
    finally:
        for op, kernels in kept.items():
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


def _inferred(kernel: Callable[..., Any], x: Any, states: Any, params: Any, *rest: Any) -> Any:
    """Return empty results, or for real tensors what the operator itself gives."""
    state_list: Sequence[Any] = states if isinstance(states, (list, tuple)) else (states,)
    if type(x) in (torch.Tensor, torch.nn.Parameter):
        return kernel(x, states, params, *rest)
    torch._check(x.shape[-1] == params[0].shape[1])
    both = rest[4]
    y = x.new_empty((*x.shape[:-1], state_list[0].shape[-1] * (2 if both else 1)))
    return y, *(h.new_empty(h.shape) for h in state_list)
