"""PyTorch as an engine: the operators of the written model on torch's kernels, one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base.errors import EngineError, LoadRunError, UsageError
from ..base.records import dataclass
from ..engines import TRANSLATED, Engine, FileEngine, Setup
from ..engines.executed import Executed
from ..graph import Graph, Var
from ..graph.dtypes import Array
from ..onnx.messages import AttributeProto, GraphProto, NodeProto, read_model
from ..onnx.tensors import array
from ..testcase import SourceFile
from .runtime import NotTaken, missing
from .torch_running import TorchProfile, torch_threads
from .translated import Translated

__all__ = ["Torch", "check_argument", "make_engine", "open_file"]

_FLOAT, _INT, _TEXT, _TENSOR, _GRAPH, _FLOATS, _INTS, _TEXTS = 1, 2, 3, 4, 5, 6, 7, 8


def make_engine(graph: Graph, targets: Sequence[Var], setup: Setup) -> Engine:
    """PyTorch on the processor."""
    check_argument(setup.argument)
    return Translated(Torch(profile=setup.profile), graph, targets, setup)


def open_file(source: SourceFile, setup: Setup) -> FileEngine:
    """PyTorch for an exported program as it is."""
    check_argument(setup.argument)
    from .torch_program import TorchProgram  # optional

    return TorchProgram(source, profile=setup.profile)


def check_argument(argument: str) -> None:
    """Check the argument of the engine, which can only be ``translated``.

    Raises:
        UsageError: it is another one.
    """
    if argument not in ("", TRANSLATED):
        raise UsageError(
            f"the engine torch takes nothing after a colon but {TRANSLATED}, found {argument!r}; it computes on "
            "the CPU. onnxruntime:CUDA and other execution providers compute on a GPU"
        )


class Torch:
    """Makes programs of torch's kernels.

    Raises:
        UsageError: torch is not installed.
    """

    name = "torch"
    provider = "cpu"
    arithmetic = "float32"
    opset = 20

    def __init__(self, *, profile: bool = False) -> None:
        try:
            import torch  # optional
        except ImportError as e:
            raise missing("torch", "torch", e) from None
        self.version = str(torch.__version__)
        self._profile = profile

    def load(self, model: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> _TorchSession:
        """Prepare a model; see `Runtime.load`."""
        read = read_model(memoryview(model))
        assert read.graph is not None
        return _TorchSession(_Block(read.graph), inputs, outputs, profile=self._profile)


@dataclass(frozen=True)
class _Step:
    """One node: what executes it, its inputs and outputs."""

    call: Callable[..., Any]
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dying: tuple[str, ...]


class _Block:
    """A graph of a model: constants and steps.

    Raises:
        NotTaken: an operator has no kernel.
    """

    def __init__(self, graph: GraphProto) -> None:
        import torch  # optional

        self.constants = {t.name: torch.from_numpy(_owned(array(t))) for t in graph.initializers}
        self.outputs = [o.name for o in graph.outputs]
        self.steps: list[_Step] = []
        kept = {*self.constants, *self.outputs, *(i.name for i in graph.inputs)}
        last = {n: i for i, node in enumerate(graph.nodes) for n in _names_read(node)}
        own = {n for node in graph.nodes for n in node.outputs}
        for i, node in enumerate(graph.nodes):
            gone = tuple(n for n in _names_read(node) if last[n] == i and n in own and n not in kept)
            self.steps.append(self._step(node, gone))

    def _step(self, node: NodeProto, gone: tuple[str, ...]) -> _Step:
        from .torch_kernels import KERNELS, Node  # optional

        if node.op == "If":
            branches = {a.name: _Block(a.g) for a in node.attributes if a.g is not None}
            return _Step(_if(branches), "If", tuple(node.inputs), tuple(node.outputs), gone)
        kernel = KERNELS.get(node.op)
        if kernel is None or node.domain not in ("", "ai.onnx"):
            raise NotTaken(f"there is no kernel of torch for ONNX's {node.op}")
        what = Node(node.op, {a.name: _attribute(a) for a in node.attributes}, len(node.outputs))
        return _Step(
            lambda values, *inputs: kernel(what, *inputs),
            node.op,
            tuple(node.inputs),
            tuple(node.outputs),
            gone,
        )

    def run(self, values: dict[str, Any]) -> list[Any]:
        """Execute; `values` are what is known outside, by name."""
        values.update(self.constants)
        for step in self.steps:
            inputs = [values[n] if n else None for n in step.inputs]
            try:
                result = step.call(values, *inputs)
            except (NotTaken, RuntimeError, TypeError, IndexError, KeyError) as e:
                raise NotTaken(f"{step.op}: {str(e).splitlines()[0][:300]}") from e
            outs = result if isinstance(result, (tuple, list)) else (result,)
            for name, out in zip(step.outputs, outs, strict=False):
                values[name] = out
            for name in step.dying:
                values.pop(name, None)
        return [values[n] for n in self.outputs]


def _if(branches: Mapping[str, _Block]) -> Callable[..., Any]:
    def call(values: dict[str, Any], taken: object) -> list[Any]:
        return branches["then_branch" if bool(taken) else "else_branch"].run(dict(values))

    return call


def _names_read(node: NodeProto) -> list[str]:
    """List the names that a node reads, those in its branches included."""
    names = [n for n in node.inputs if n]
    for attribute in node.attributes:
        if attribute.g is not None:
            names += [n for inner in attribute.g.nodes for n in _names_read(inner)]
            names += [o.name for o in attribute.g.outputs]
    return names


def _owned(value: Array) -> Array:
    """Make an array that torch takes: contiguous, writable, of this machine's byte order."""
    contiguous = np.ascontiguousarray(value, value.dtype.newbyteorder("="))
    # An axis of one element may count backwards and be contiguous all the same.
    return (
        contiguous
        if contiguous.flags.writeable and min(contiguous.strides, default=0) >= 0
        else contiguous.copy()
    )


def _attribute(a: AttributeProto) -> object:
    """Return the value of an attribute."""
    if a.type == _TENSOR and a.t is not None:
        return np.array(array(a.t))
    if a.type in (_FLOATS, _INTS):
        rows = a.floats if a.type == _FLOATS else a.ints
        return np.concatenate(rows).tolist() if rows else []
    if a.type == _TEXTS:
        return [bytes(s).decode() for s in a.strings]
    return {_FLOAT: a.f, _INT: a.i, _TEXT: bytes(a.s).decode()}.get(a.type)


class _TorchSession:
    def __init__(
        self, block: _Block, inputs: Sequence[str], outputs: Sequence[str], *, profile: bool = False
    ) -> None:
        self._profile = TorchProfile(profile)
        self._block, self._inputs, self._outputs = block, list(inputs), list(outputs)
        self._order = [block.outputs.index(n) for n in self._outputs]

    def executed(self) -> list[Executed]:
        """Return what operators took in the last run."""
        return self._profile.executed()

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        """Execute; contiguous inputs are not copied."""
        import torch  # optional

        before = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        torch.use_deterministic_algorithms(True)
        try:
            with torch.no_grad(), torch_threads(), self._profile:
                feeds = {n: torch.from_numpy(_owned(a)) for n, a in zip(self._inputs, inputs, strict=True)}
                outputs = self._block.run(feeds)
                return [outputs[i].contiguous().numpy() for i in self._order]
        except (LoadRunError, NotTaken):
            raise
        except Exception as e:
            raise EngineError(f"torch fails: {e}") from e
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
