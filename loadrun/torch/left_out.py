"""Nodes of an exported program that are left out of the graph and stand beside it in an ONNX model."""

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from ..onnx.options import ExportOptions
from ..tensors import Tensor
from ..tensors.switches import exact_arithmetic
from .call import ndarray
from .extra import quiet

_CONSTANT_WEIGHTS = {f"aten.{kind}.input" for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")}
"""Operators whose weights are put together in advance, in ONNX's order."""


class Selection(Protocol):
    """Which nodes of an exported program are left out of the graph."""

    @property
    def options(self) -> ExportOptions:
        """The options of the export."""

    def whole(self, node: Any) -> bool:
        """Return whether a node is, so that its operator is not decomposed."""

    def chosen(self, node: Any) -> bool:
        """Return whether a node of the program that is recorded is."""

    def refused(self, types: Collection[str]) -> bool:
        """Return whether a node is that was lowered to operators of these types."""


def result_names(node: Any) -> list[str]:
    """Names of what a node gives, as inputs of a graph that leaves it out."""
    several = isinstance(node.meta["val"], (tuple, list))
    return [f"{node.name}:out{i}" for i in range(len(node.meta["val"]) if several else 1)]


def weights_of(program: Any) -> dict[str, tuple[str, Any]]:
    """Find the real parameters and buffers that a program uses: path and value by placeholder name."""
    used = {
        n.name
        for n in program.graph_module.graph.nodes
        if n.op == "placeholder" and n.users and not any(str(u.target) in _CONSTANT_WEIGHTS for u in n.users)
    }
    users = {s.arg.name for s in program.graph_signature.input_specs if s.target is None}
    weights = {}
    for spec in program.graph_signature.input_specs:
        weight = program.state_dict.get(spec.target) if spec.target is not None else None
        if isinstance(weight, torch.Tensor) and spec.arg.name in used:
            path = spec.target if spec.target not in users else f"{spec.target}#2"
            weights[spec.arg.name] = path, weight
    return weights


def given_results(left_out: Mapping[str, Any], waiting: Iterator[Tensor]) -> dict[str, Any]:
    """Take the graph's inputs that stand for what nodes give, by the nodes' names."""
    by_name: dict[str, Any] = {}
    for name, node in left_out.items():
        results = [next(waiting) for _ in result_names(node)]
        by_name[name] = tuple(results) if isinstance(node.meta["val"], (tuple, list)) else results[0]
    return by_name


def results_of(left_out: Mapping[str, Any], seen: Mapping[str, Any]) -> list[Tensor]:
    """Return what torch gives for nodes, under the names of the graph's inputs."""
    return named_tensors(
        pair
        for name, node in left_out.items()
        for pair in zip(result_names(node), torch.utils._pytree.tree_leaves(seen[name]), strict=True)
    )


def named_tensors(values: Iterable[tuple[str, Any]]) -> list[Tensor]:
    """Return torch's tensors as loadrun's, with names, in their own dtypes."""
    with exact_arithmetic():
        plain = [(name, v.dequantize() if v.is_quantized else v) for name, v in values]
        arrays = [(name, ndarray(value)) for name, value in plain]
        return [Tensor(array, array.dtype, name=name) for name, array in arrays]


def node_values(program: Any, flat: Sequence[Any]) -> dict[str, Any]:
    """Run an exported program in torch on the leaves of a call's arguments; what every node gives, by name."""
    users = iter(copy.deepcopy([*flat]))
    feeds = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is torch.export.graph_signature.InputKind.TOKEN:
            feeds.append(torch.empty(0))
        elif spec.target is None:
            feeds.append(next(users))
        else:
            value = program.state_dict.get(spec.target)
            feeds.append(copy.deepcopy(value if value is not None else program.constants[spec.target]))
    return graph_values(program.graph_module, feeds)


def graph_values(module: Any, feeds: Sequence[Any]) -> dict[str, Any]:
    """Run a graph in torch; what every node gives, by name."""
    interpreter = torch.fx.Interpreter(module, garbage_collect_values=False)
    with torch.no_grad(), quiet():
        interpreter.run(*feeds)
    return {node.name: value for node, value in interpreter.env.items()}
