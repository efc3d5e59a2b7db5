"""What torch itself computes for a trace: results for a call's arguments, and testcases that expect them."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..base.errors import EngineError
from ..compare.tolerances import error_between
from ..graph.dtypes import Array
from ..testcase import EXPECT, Bundle, Testcase
from ..tracing.naming import input_names
from ..verify.pack.capture import Recorder
from .quiet import quiet
from .registry import UnsupportedCallError
from .values import ndarray, no_numbers, of_numpy


def outputs_of(traced: Any, flat: Sequence[Any], module: Any = None, *, anew: bool = True) -> list[Array]:
    """Return torch's results for the leaves of a call's arguments, as arrays of the graph's dtypes.

    Args:
        traced: a trace.
        flat: the leaves.
        module: what torch runs, that which was traced by default.
        anew: whether attributes that the call changes, as by sizes, are as before in the next one; buffers always are.

    Raises:
        EngineError: the module failed, or returned another structure than when it was traced.
    """
    function = traced.module if module is None else module
    copies = [v.detach().clone() if isinstance(v, torch.Tensor) else copy.deepcopy(v) for v in flat]
    changes = any(s.kind.name == "BUFFER_MUTATION" for s in traced.program.graph_signature.output_specs)
    # A compiled one has no attributes that sizes change, and its copy is compiled anew.
    compiled = isinstance(traced.original, (torch.fx.GraphModule, torch.jit.ScriptModule))
    if (
        module is None
        and isinstance(traced.original, torch.nn.Module)
        and (changes or (anew and not compiled))
    ):
        owner = _copied(traced.original, changes)
        function = owner if function is traced.original else getattr(owner, function.__name__)
    args, kwargs = pytree.tree_unflatten(copies, traced.program.call_spec.in_spec)
    try:
        with torch.no_grad(), quiet():
            outputs = function(*args, **kwargs)
    except Exception as error:
        _check_weights(traced)
        raise EngineError(f"torch: {type(error).__name__}: {str(error).strip()[:300]}") from error
    leaves, spec = pytree.tree_flatten(outputs)
    if len(leaves) != len(traced.signature.user_outputs()):
        raise EngineError(
            f"torch returned {spec}, but {traced.program.call_spec.out_spec} when it was traced"
        )
    arrays = []
    fakes = traced.signature.output_fakes()
    for leaf, output, fake in zip(leaves, traced.signature.user_outputs(), fakes, strict=True):
        if hasattr(output.arg, "value"):
            continue
        if isinstance(leaf, torch.Tensor) and (why := no_numbers(leaf)):
            raise EngineError(f"torch's result is {why}")
        if isinstance(leaf, torch.Tensor) and isinstance(fake, torch.Tensor) and leaf.dtype != fake.dtype:
            _check_weights(traced)
            raise EngineError(
                f"torch: the module gives {str(leaf.dtype)[6:]} where torch's exported program gives "
                f"{str(fake.dtype)[6:]}, as attention in mixed precision does, which has a path of its own outside of "
                "training (torch.backends.mha.set_fastpath_enabled(False) turns it off)"
            )
        try:
            value = leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(leaf)
            arrays.append(ndarray(value))
        except UnsupportedCallError as error:
            raise EngineError(f"torch's result: {error}") from error
    return arrays


def _check_weights(traced: Any) -> None:
    """Check that the weights of a module have the dtypes that they were traced with.

    Raises:
        EngineError: one has not, as after `module.double()`.
    """
    if not isinstance(traced.original, torch.nn.Module):
        return
    named = dict(traced.original.named_parameters()) | dict(traced.original.named_buffers())
    about = traced.program.graph_signature
    for node in traced.program.graph.find_nodes(op="placeholder"):
        name = about.inputs_to_parameters.get(node.name) or about.inputs_to_buffers.get(node.name)
        old, new = node.meta.get("val"), named.get(name)
        if isinstance(old, torch.Tensor) and new is not None and new.dtype != old.dtype:
            raise EngineError(
                f"the module's {name} is {str(new.dtype)[6:]}, but it was {str(old.dtype)[6:]} when the module was "
                "traced; trace it again"
            )


def _copied(owner: torch.nn.Module, changes: bool) -> torch.nn.Module:
    """Return a copy of a module; with the same tensors, unless it changes some."""
    shared = {} if changes else {id(t): t for t in (*owner.parameters(), *owner.buffers())}
    with quiet():
        try:
            return copy.deepcopy(owner, shared)
        except (RuntimeError, TypeError):
            # Some hold what cannot be copied, a lock or a result.
            if changes:
                raise
            return owner


class TorchRecorder(Recorder):
    """Captures testcases whose expected values are torch's, and keeps the reference engine's errors."""

    def __init__(self, model: Bundle, traced: Any) -> None:
        super().__init__(model)
        self.traced = traced
        self.provenance["engine"] = "torch"
        self.provenance["torch"] = str(torch.__version__)
        self.names = input_names(traced.recording, traced._names)

    def capture(self, inputs: Mapping[str, Array]) -> Testcase:
        """Run the module, and the model beside it."""
        flat = self._arguments(inputs)
        self.traced.check(flat)
        case = super().capture(inputs)
        truth = self.traced.truth(flat)
        arrays = dict(case.arrays)
        errors: dict[str, float] = {}
        for (key, name), value in zip(self._outputs(), truth, strict=True):
            expected = arrays[name + EXPECT]
            stored = np.asarray(value).astype(expected.dtype).reshape(value.shape or (1,))
            errors[name] = error_between(stored, expected)
            self.traced.differences[key] = max(errors[name], self.traced.differences.get(key, 0.0))
            arrays[name + EXPECT] = stored
        about = {**case.provenance, "reference_error": {k: float(f"{v:.3g}") for k, v in errors.items()}}
        return Testcase(arrays, case.dtypes, about)

    def _outputs(self) -> list[tuple[str, str]]:
        """Pair the output names of the trace with those of the model."""
        return list(zip(self.traced._keys, self.bundle.outputs, strict=True))

    def _arguments(self, inputs: Mapping[str, Array]) -> list[Any]:
        """Build the leaves of the module's arguments for a testcase; unused inputs are the example's."""
        places = {key: f"arg_{i}" for i, key in enumerate(self.traced.signature.input_names())}
        flat = []
        for name, example, _ in self.traced.signature.inputs(self.traced._example):
            fed = inputs.get(self.names.get(places.get(name, ""), ""))
            flat.append(example if fed is None else _like(fed, example))
        return flat


def _like(value: Array, example: Any) -> Any:
    """Convert an input of the graph to the type that the module takes there."""
    if not isinstance(example, torch.Tensor):
        return int(value.reshape(-1)[0])
    return of_numpy(value.reshape(()) if example.ndim == 0 else value, example.dtype)
