"""Filters over nodes that can be chained: by kind, by name, by input.

Source of semantics: MegEngine ``utils/network.py``.
"""

from __future__ import annotations

import fnmatch
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...base.errors import UsageAssertionError, UsageTypeError
from .nodes import NetworkNode, OpNode, VarNode
from .providers import ConstOpBase, Host2DeviceCopy
from .traversal import get_oprs_seq

__all__ = ["NodeFilter", "as_oprnode", "as_varnode"]

_builtin_type = type


def as_varnode(obj: Any) -> VarNode:
    """Return the variable that something stands for.

    Args:
        obj: a variable, an operator with one output, or an iterable that holds one of these alone.
    """
    if isinstance(obj, VarNode):
        return obj
    if isinstance(obj, OpNode):
        if len(obj.outputs) != 1:
            raise UsageAssertionError(
                f"operator {obj} stands for a variable only with one output, it has {len(obj.outputs)}"
            )
        return obj.outputs[0]
    return as_varnode(_only(obj, "VarNode"))


def as_oprnode(obj: Any) -> OpNode:
    """Return the operator that something stands for.

    Args:
        obj: an operator, a variable, which stands for what computes it, or an iterable that holds one of these alone.
    """
    if isinstance(obj, VarNode):
        return obj.owner
    if isinstance(obj, OpNode):
        return obj
    return as_oprnode(_only(obj, "OpNode"))


def _only(obj: Any, kind: str) -> Any:
    if not isinstance(obj, Iterable):
        raise UsageAssertionError(f"{obj!r:.60} does not stand for a {kind}")
    items = list(obj)
    if len(items) != 1:
        raise UsageAssertionError(f"a sequence of {len(items)} does not stand for one {kind}: {items!r:.60}")
    return items[0]


class NodeFilter:
    """Nodes that can be filtered further; each filter is made again whenever it is walked.

    Args:
        node_iter: an iterable of nodes, or one node, which stands for the operators that it depends on.

    >>> import io, loadrun
    >>> from loadrun.megengine.utils.network import Network
    >>> net = Network.load("fixtures/nets/mlp.mge")
    >>> net.opr_filter.data_provider().name("dat?").as_count()
    1
    """

    def __init__(self, node_iter: Any) -> None:
        if isinstance(node_iter, VarNode):
            node_iter = get_oprs_seq(node_iter, False, False)[:-1]
        elif isinstance(node_iter, OpNode):
            node_iter = get_oprs_seq(node_iter.inputs, False, False)[:-1]
        if not isinstance(node_iter, Iterable):
            raise UsageAssertionError(f"expected nodes, found {_builtin_type(node_iter).__name__}")
        self._source: Iterable[Any] = node_iter
        self._keep: Callable[[Any], bool] = _is_node

    def _where(self, keep: Callable[[Any], bool]) -> NodeFilter:
        matches = NodeFilter(self)
        matches._keep = keep
        return matches

    @classmethod
    def make_all_deps(cls, *dest_vars: VarNode) -> NodeFilter:
        """Return all operators that variables depend on."""
        return cls(get_oprs_seq(dest_vars, False, False))

    def __iter__(self) -> Iterator[Any]:
        return (n for n in self._source if self._keep(n))

    def type(self, node_type: Any) -> NodeFilter:
        """Keep the nodes of a class."""
        _check_class(node_type)
        return self._where(lambda n: isinstance(n, node_type))

    def not_type(self, node_type: Any) -> NodeFilter:
        """Leave out the nodes of a class."""
        _check_class(node_type)
        return self._where(lambda n: not isinstance(n, node_type))

    def check_type(self, node_type: Any) -> NodeFilter:
        """Keep all nodes; walking raises TypeError at one that is not of the class."""
        _check_class(node_type)

        def check(node: Any) -> bool:
            if not isinstance(node, node_type):
                raise UsageTypeError(f"all nodes should be {node_type.__name__}, found {node!r}")
            return True

        return self._where(check)

    def param_provider(self) -> NodeFilter:
        """Keep the constants."""
        return self.type(ConstOpBase)

    def data_provider(self) -> NodeFilter:
        """Keep the graph inputs."""
        return self.type(Host2DeviceCopy)

    def name(self, pattern: str, ignorecase: bool = True) -> NodeFilter:
        """Keep the nodes whose name is, or fits, a pattern.

        Args:
            pattern: a name, or a pattern in which ``?`` stands for one character and ``*`` for any.
            ignorecase: whether upper and lower case are the same.
        """
        if not isinstance(pattern, str):
            raise UsageAssertionError(f"a pattern is a text, found {pattern!r}")
        fits = re.compile(fnmatch.translate(pattern), re.IGNORECASE if ignorecase else 0)
        return self._where(lambda n: pattern == n.name or bool(fits.match(n.name)))

    def has_input(self, var: Any) -> NodeFilter:
        """Keep the operators that read a variable."""
        node = as_varnode(var)

        def reads(opr: Any) -> bool:
            if not isinstance(opr, OpNode):
                raise UsageAssertionError(f"has_input is asked of operators, found {opr!r}")
            return any(v is node for v in opr.inputs)

        return self._where(reads)

    def as_list(self) -> list[Any]:
        """Return the nodes as a list."""
        return list(self)

    def as_unique(self) -> Any:
        """Return the only node.

        Raises:
            ValueError: there are more, or none.
        """
        nodes = list(self)
        if len(nodes) != 1:
            raise UsageAssertionError(
                f"expected one node, found {len(nodes)}: {', '.join(n.name for n in nodes[:5]) or 'none'}"
            )
        return nodes[0]

    def as_dict(self) -> OrderedDict[str, Any]:
        """Return the nodes by name."""
        return OrderedDict((n.name, n) for n in self)

    def as_count(self) -> int:
        """Return how many nodes there are."""
        return sum(1 for _ in self)


def _is_node(node: Any) -> bool:
    if not isinstance(node, NetworkNode):
        raise UsageAssertionError(f"expected a node, found {_builtin_type(node).__name__} {node!r:.60}")
    return True


def _check_class(node_type: Any) -> None:
    if not (isinstance(node_type, _builtin_type) and issubclass(node_type, NetworkNode)):
        raise UsageAssertionError(f"expected a class of nodes, found {node_type!r}")
