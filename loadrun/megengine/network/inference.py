"""Running a loaded graph: `GraphInference`, and the tools that replace variables, operators, inputs and outputs.

Source of semantics: MegEngine ``utils/comp_graph_tools.py``.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from ...base.errors import UsageAssertionError
from ...dump import load
from ...engines.reference import ReferenceEngine
from ...graph.dtypes import Array
from ...ops.numeric.stream import OperatorStreams
from ...passes.inference import optimize_for_inference as optimized
from ...tensors.access import dtype_of, stored
from ...tensors.dtypes import narrowed, numpy_dtype
from ...tensors.value import Tensor
from .compiling import graph_of, nodes_of, outputs_of
from .editing import SESSION
from .network import find_vars_by_name
from .nodes import VarNode
from .ports import InputNode, OutputNode
from .providers import constant_node
from .traversal import get_dep_vars, get_oprs_seq

__all__ = [
    "GraphInference",
    "convert_inputs",
    "convert_outputs",
    "embed_inputs",
    "replace_oprs",
    "replace_vars",
]


def replace_vars(dst: Sequence[VarNode], varmap: Any) -> list[VarNode]:
    """Return variables computed from other ones; the graph of `dst` stays as it is.

    Args:
        dst: the variables.
        varmap: the new variables by those that they replace, or pairs of them.
    """
    pairs = varmap.items() if isinstance(varmap, Mapping) else varmap
    return _copied(dst, {id(old.itself): new.itself for old, new in pairs})


def replace_oprs(dst: Sequence[VarNode], oprmap: Any) -> list[VarNode]:
    """Return variables computed by other operators; the graph of `dst` stays as it is.

    Args:
        dst: the variables.
        oprmap: the new operators by those that they replace, or pairs of them; each pair has equally many outputs.
    """
    pairs = oprmap.items() if isinstance(oprmap, Mapping) else oprmap
    return _copied(dst, {id(v): w for a, b in pairs for v, w in zip(a.outputs, b.outputs, strict=True)})


def _copied(dst: Sequence[VarNode], replaced: dict[int, VarNode]) -> list[VarNode]:
    """Return copies of variables in which others stand for some; what depends on none of those is shared."""
    known: dict[int, VarNode] = {}

    def new(var: VarNode) -> VarNode:
        return known.get(id(var), replaced.get(id(var), var))

    for opr in get_oprs_seq(dst, False, False):
        inputs = [new(v) for v in opr.inputs]
        if all(a is b for a, b in zip(inputs, opr.inputs, strict=True)):
            continue
        outputs = SESSION.apply(
            opr.opr.type, opr.records(), inputs, len(opr.outputs), opr.opr.output_dtype, False
        )
        for old, out in zip(opr.outputs, outputs, strict=True):
            assert isinstance(out, VarNode)
            out.name = old.variable.name
            known[id(old)] = out
    return [replaced.get(id(v), known.get(id(v), v)) for v in (d.itself for d in dst)]


def convert_inputs(
    dst: Sequence[VarNode], inputs: Sequence[VarNode] | None = None
) -> tuple[list[VarNode], OrderedDict[str, Any]]:
    """Return variables that are computed from values set by `InputNode.set_value`, and these nodes by name.

    Args:
        dst: the variables.
        inputs: the inputs to be replaced, all by default.
    """
    nodes: OrderedDict[str, Any] = OrderedDict()
    replaced: dict[VarNode, VarNode] = {}
    for inp in _inputs(dst) if inputs is None else inputs:
        node = InputNode(device=inp.comp_node, dtype=inp.dtype, shape=inp.variable.shape, graph=inp.graph)
        node.name = inp.name
        nodes[inp.name] = node
        replaced[inp] = node.outputs[0]
    return replace_vars(dst, replaced), nodes


def convert_outputs(dst: Sequence[VarNode]) -> tuple[list[VarNode], OrderedDict[str, Any]]:
    """Return variables and, by their names, the nodes whose `OutputNode.get_value` gives what was computed."""
    nodes = OrderedDict((v.name, OutputNode(v)) for v in dst)
    return [n.outputs[0] for n in nodes.values()], nodes


def embed_inputs(
    dst: Sequence[VarNode], data: Sequence[Any], inputs: Sequence[VarNode] | None = None
) -> tuple[list[VarNode], OrderedDict[str, VarNode]]:
    """Return variables with constants in the place of inputs, and these constants by name.

    Args:
        dst: the variables.
        data: a value for each input.
        inputs: the inputs to be replaced, all by default.
    """
    inputs = _inputs(dst) if inputs is None else list(inputs)
    if len(inputs) != len(data):
        raise UsageAssertionError(f"{len(data)} values are given for {len(inputs)} inputs")
    constants: OrderedDict[str, VarNode] = OrderedDict()
    replaced: dict[VarNode, VarNode] = {}
    for inp, value in zip(inputs, data, strict=True):
        tensor = value if isinstance(value, Tensor) else Tensor(value)
        constants[inp.name] = replaced[inp] = constant_node(stored(tensor), dtype_of(tensor), inp.name)
    return replace_vars(dst, replaced), constants


def _inputs(dst: Sequence[VarNode]) -> list[VarNode]:
    return get_dep_vars(dst, "Host2DeviceCopy")


class GraphInference:
    """A dump that is run on data.

    Args:
        file: a path, an open binary file, or bytes.
        outputs: names of the variables to compute, default the file's outputs.
        profiling: accepted for MegEngine's sake.
        optimize_for_inference: optimize the graph first.
        kwargs: flags of that, such as ``enable_nchw44``.

    >>> import numpy as np
    >>> graph = GraphInference("fixtures/nets/mlp.mge")
    >>> out = graph.run(inp_dict={"data": np.zeros((2, 20), "float32")})
    >>> {name: value.shape for name, value in out.items()}
    {'out': (2, 4)}
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | BinaryIO | bytes,
        outputs: Sequence[str] | None = None,
        profiling: bool = False,
        optimize_for_inference: bool = False,
        **kwargs: Any,
    ) -> None:
        bundle = load(file)
        nodes = nodes_of(bundle.graph)
        targets = outputs_of(bundle, nodes) if outputs is None else find_vars_by_name(nodes, list(outputs))
        names = [v.name for v in targets]
        inputs = [v.name for v in _inputs(targets)]
        graph = graph_of(targets)
        if optimize_for_inference:
            graph, _ = optimized(graph, **kwargs)
        self._names, self._inputs = names, inputs
        self._dtypes = [v.dtype for v in graph.outputs]
        self._engine = ReferenceEngine(graph, graph.outputs)
        self._rng = OperatorStreams()

    def run(self, *inp_args: Any, inp_dict: Mapping[str, Any] | None = None) -> OrderedDict[str, Array]:
        """Return the outputs by name.

        Args:
            inp_args: values of inputs, in the order in which the graph has them.
            inp_dict: values of inputs by name.

        Raises:
            UsageError: not exactly the graph's inputs are given.
        """
        if len(inp_args) > len(self._inputs):
            raise UsageAssertionError(
                f"this model expects {len(self._inputs)} inputs ({', '.join(self._inputs)}), found {len(inp_args)}"
            )
        feeds = dict(zip(self._inputs, inp_args, strict=False)) | dict(inp_dict or {})
        if set(feeds) != set(self._inputs):
            raise UsageAssertionError(
                f"this model expects inputs {self._inputs}, but gets inputs {list(feeds)}"
            )
        # The same streams for all runs: each draws again, as in MegEngine.
        values = self._engine.run({n: _storage_form(v) for n, v in feeds.items()}, rng=self._rng)
        outputs: OrderedDict[str, Array] = OrderedDict()
        for name, value, dtype in zip(self._names, values, self._dtypes, strict=True):
            outputs[name] = value if dtype is None else value.view(numpy_dtype(dtype))
        return outputs


def _storage_form(value: Any) -> Array:
    if isinstance(value, Tensor):
        return stored(value)
    array, _ = narrowed(np.asarray(value))
    return array.reshape(array.shape or (1,))
