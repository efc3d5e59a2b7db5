"""Graphs built operator by operator, and dumps as MegEngine's lower layer reads and writes them.

Source of semantics: MegEngine ``core/tensor/megbrain_graph.py``.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ...dump import load
from ...dump.information import metadata_of
from ...dump.options import DumpResult
from ...dump.store import save
from ...graph import Metadata
from ...passes.inference import optimize_for_inference as optimized
from ...tensors.access import dtype_of, stored
from ...tensors.value import Tensor
from ...tracing.writing import FileArguments, signature_of
from ..opdefs import OpDef
from ..opdefs import apply as apply_op
from .compiling import graph_of, nodes_of, outputs_of
from .editing import SESSION
from .nodes import OpNode, VarNode
from .ports import (
    AttrOutputNode,
    CallbackInput,
    CallbackOutput,
    InputNode,
    OutputNode,
    TensorAttr,
    ValueOutputNode,
    computed,
    inputs_of,
)
from .providers import Host2DeviceCopy, constant_node
from .traversal import listed, set_priority_to_id

__all__ = [
    "AttrOutputNode",
    "CompGraphLoadResult",
    "Graph",
    "InputNode",
    "OpNode",
    "OutputNode",
    "TensorAttr",
    "ValueOutputNode",
    "VarNode",
    "apply_normal_varnode",
    "deserialize_infer_option",
    "dump_graph",
    "input_callback",
    "load_graph",
    "optimize_for_inference",
    "output_callback",
    "set_priority_to_id",
]


class Graph:
    """Makes operators and runs them; they are connected by themselves, so a graph holds none of them.

    >>> graph = Graph()
    >>> x = InputNode(dtype="float32", graph=graph)
    >>> out = OutputNode(x.outputs[0] * graph.make_const(2.0))
    >>> x.set_value(3.0)
    >>> out.get_value().numpy().tolist()
    [6.0]

    Attributes:
        options: accepted for MegEngine's sake.
    """

    def __init__(self) -> None:
        self.options = SimpleNamespace(async_exec_level=1)
        self._outputs: list[Any] = []
        self._waiting = False

    def make_const(
        self, data: Any, dtype: Any = None, device: object = None, name: str | None = None
    ) -> VarNode:
        """Return the variable of a constant.

        Args:
            data: a number, a nested list, an ndarray or a Tensor.
            dtype: its dtype, default that of the data.
            device: accepted for MegEngine's sake.
            name: its name.
        """
        tensor = Tensor(data if isinstance(data, Tensor) else np.asarray(data), dtype=dtype)
        constant = constant_node(stored(tensor), dtype_of(tensor), name)
        constant._graph = self
        return constant

    def make_input(
        self, *args: VarNode, device: object = None, dtype: Any = None, shape: Any = None
    ) -> VarNode:
        """Return the variable of an input whose value `InputNode.set_value` sets.

        Args:
            args: accepted for MegEngine's sake.
            device: accepted for MegEngine's sake.
            dtype: its dtype.
            shape: its shape, where it is known.
        """
        return InputNode(*args, device=device, dtype=dtype, shape=shape, graph=self).outputs[0]

    def make_h2d(
        self,
        *,
        dtype: Any,
        device: object = None,
        shape: Sequence[int] | None = None,
        name: str | None = None,
    ) -> VarNode:
        """Return the variable of a graph input."""
        node = Host2DeviceCopy(shape or (1,), dtype, name, device)
        node.compile()
        node.outputs[0]._graph = self
        return node.outputs[0]

    def compile(self, *outputs: Any) -> Graph:
        """Return what runs the graph.

        Args:
            outputs: variables, what `output_callback` gave, or lists of them.
        """
        self._outputs = [
            v for output in outputs for v in (output if isinstance(output, (list, tuple)) else [output])
        ]
        return self

    def execute(self, *args: Any) -> None:
        """Begin a run: functions of `input_callback` are asked again.

        What `OutputNode.get_value` gives is computed on demand; functions of `output_callback` are called
        by `wait`.
        """
        for node in inputs_of([v.var for v in self._outputs]):
            if isinstance(node, CallbackInput):
                node.reset()
        self._waiting = True

    def wait(self) -> None:
        """End a run: give the functions of `output_callback` what was computed.

        Raises:
            UsageError: an input has no value.
        """
        outputs = [v for v in self._outputs if isinstance(v, CallbackOutput)]
        if not self._waiting or not outputs:
            return
        self._waiting = False
        for output, value in zip(outputs, computed([v.var for v in outputs]), strict=True):
            output.callback(value)

    def __call__(self, *args: Any) -> None:
        """Run from the beginning to the end."""
        self.execute(*args)
        self.wait()


class CompGraphLoadResult(NamedTuple):
    """A loaded dump.

    Attributes:
        graph: what operators are made by.
        output_vars_dict: the outputs by name.
        output_vars_list: the outputs.
        metadata: what the dump says about itself.
    """

    graph: Graph
    output_vars_dict: OrderedDict[str, VarNode]
    output_vars_list: list[VarNode]
    metadata: Any


def load_graph(fpath: str | os.PathLike[str] | BinaryIO | bytes) -> CompGraphLoadResult:
    """Read a dump as nodes, numbered as MegEngine numbers them.

    Raises:
        FormatError: it is none.
    """
    bundle = load(fpath)
    graph = Graph()
    outputs = outputs_of(bundle, nodes_of(bundle.graph, numbered=True, within=graph))
    metadata = bundle.graph.metadata or Metadata()
    about = SimpleNamespace(
        is_valid=metadata.is_valid,
        graph_modified=metadata.graph_modified,
        optimize_options=metadata.optimize_options,
        optimized_for_inference=metadata.optimize_options != 0,
        user_info=metadata.user_info,
    )
    return CompGraphLoadResult(graph, OrderedDict((v.name, v) for v in outputs), outputs, about)


@signature_of(FileArguments)
def dump_graph(
    output_vars: dict[str, VarNode] | Iterable[VarNode], *, metadata: Any = None, **keywords: Any
) -> tuple[bytes, DumpResult]:
    """Return the bytes of a dump, and the counts that MegEngine returns.

    Args:
        output_vars: the outputs, or the outputs by the names that they are to have.
        metadata: an object with ``is_valid``, ``graph_modified``, ``user_info`` and ``optimize_options``.
        keywords: those of ``trace.dump`` about the file, see `loadrun.tracing.writing.FileArguments`.
    """
    arguments = FileArguments(**keywords)
    if isinstance(output_vars, dict):
        for name, var in output_vars.items():
            var.name = name
        output_vars = output_vars.values()
    graph = graph_of(listed(output_vars))
    if metadata is not None and metadata.is_valid:
        graph.metadata = Metadata(
            True, bool(metadata.graph_modified), int(metadata.optimize_options), metadata.user_info
        )
    file = io.BytesIO()
    result = save(graph, file, arguments.file)
    return file.getvalue(), result


def optimize_for_inference(dest_vars: Iterable[VarNode], **kwargs: Any) -> tuple[list[VarNode], int]:
    """Return the variables in an optimized graph, and the bits of the options."""
    graph, bits = optimized(graph_of(listed(dest_vars)), **kwargs)
    return nodes_of(graph), bits


def deserialize_infer_option(x: int) -> dict[str, bool]:
    """Return the keywords of `optimize_for_inference` that a number in a dump's metadata stands for.

    >>> deserialize_infer_option(64 | 1 << 32)
    {'enable_fuse_grain': True, 'enable_nchw4': True}
    """
    metadata = metadata_of(Metadata(is_valid=True, optimize_options=x)) or {}
    return {k: bool(v) for k, v in metadata.items() if k.startswith("enable_")}


def apply_normal_varnode(op: OpDef, *args: VarNode) -> list[VarNode]:
    """Return the outputs of an operator of `loadrun.megengine.core.ops.builtin` applied to variables."""
    return [v for v in apply_op(op, *args) if isinstance(v, VarNode)]


def input_callback(
    callback: Callable[[], Any],
    *args: VarNode,
    device: object = None,
    dtype: Any = None,
    shape: Any = None,
    graph: Graph | None = None,
) -> tuple[VarNode, VarNode]:
    """Return a variable whose value a function gives in every run, and one that stands for its dependencies.

    Args:
        callback: the function, of no arguments; it returns a Tensor.
        args: accepted for MegEngine's sake.
        device: accepted for MegEngine's sake.
        dtype: the dtype of the value.
        shape: its shape, where it is known.
        graph: the graph that the variable belongs to.

    >>> graph, found = Graph(), []
    >>> x, _ = input_callback(lambda: Tensor([1.0, 2.0]), device="xpux", dtype="float32", graph=graph)
    >>> graph.compile(output_callback(found.append, x * 3))()
    >>> found[0].tolist()
    [3.0, 6.0]
    """
    var = CallbackInput(callback, device=device, dtype=dtype, shape=shape, graph=graph).outputs[0]
    return var, var


def output_callback(callback: Callable[[Any], Any], var: VarNode, *args: VarNode) -> CallbackOutput:
    """Return what `Graph.compile` takes so that a function gets the value of a variable in every run.

    Args:
        callback: the function of the value, a Tensor.
        var: the variable.
        args: accepted for MegEngine's sake.
    """
    return CallbackOutput(callback, var)


SESSION.new_graph = Graph
