"""`Network`: a dump that is loaded, looked into, edited and written again.

Source of semantics: MegEngine ``utils/network.py``.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO

from ...base.errors import UsageAssertionError
from ...base.logger import get_logger
from ...dump import load
from ...dump.information import information, metadata_of
from ...dump.options import DumpResult
from ...graph import Graph, Metadata
from ...passes.inference import optimize_for_inference
from ...tracing.writing import DumpArguments, dump_graph, signature_of
from .compiling import graph_of, nodes_of, outputs_of, refreshed, replace_inputs, take_over
from .filters import NodeFilter
from .graphs import Graph as RunningGraph
from .nodes import OpNode, VarNode
from .providers import Host2DeviceCopy, ImmutableTensor
from .traversal import get_dep_vars, get_oprs_seq, operators

__all__ = ["Network", "find_vars_by_name"]

_log = get_logger(__name__)


class Network:
    """A graph of nodes with its outputs.

    Attributes:
        input_vars: the variables of the graph's inputs when it was loaded.
        output_vars: the outputs; `add_output` and `remove_output` change them.

    >>> import io, loadrun
    >>> import loadrun.megengine.functional as F
    >>> net = Network.load("fixtures/nets/mlp.mge")
    >>> [v.name for v in net.input_vars], [v.name for v in net.output_vars]
    (['data'], ['out'])
    >>> (out,) = net.output_vars
    >>> doubled = F.relu(out) * 2
    >>> doubled.name = "doubled"
    >>> net.add_output(doubled)
    >>> file = io.BytesIO()
    >>> net.dump(file).outputs
    ['out', 'doubled']
    """

    def __init__(self) -> None:
        self.input_vars: list[VarNode] = []
        self.output_vars: list[VarNode] = []
        self._like: Graph | None = None
        self._metadata: Metadata | None = None
        self._running = RunningGraph()

    @property
    def metadata(self) -> dict[str, Any] | None:
        """The file's metadata: ``user_info``, ``graph_modified``, ``optimized_for_inference`` and the
        options of that; None if it says nothing.

        ``user_info`` is a pickle. It is read without running anything, so that it comes back where it holds plain
        values, containers, arrays, tensors and classes of modules, and as bytes otherwise.
        """
        return metadata_of(self._metadata)

    @classmethod
    def load(
        cls,
        model_path: str | os.PathLike[str] | BinaryIO | bytes,
        outspec: Sequence[str] | None = None,
    ) -> Network:
        """Read a dump. Of one with testcases, the model without checks is what counts.

        Args:
            model_path: a path, an open binary file, or bytes.
            outspec: names of the variables that are to be the outputs, which need not be outputs of the file.

        Raises:
            UsageError: there is no variable of such a name.
            FormatError: it is not a dump.
        """
        bundle = load(model_path)
        graph = bundle.graph
        net = cls()
        net._like, net._metadata = graph, graph.metadata
        nodes = nodes_of(graph, numbered=True, within=net._running)
        outputs = outputs_of(bundle, nodes)
        if outspec is not None:
            outputs = find_vars_by_name(nodes, list(outspec))
        net.add_output(*outputs)
        net.input_vars = [o.outputs[0] for o in operators(net.output_vars) if isinstance(o, Host2DeviceCopy)]
        return net

    @property
    def graph(self) -> Graph:
        """The graph as it is now, as `loadrun.Graph`."""
        return graph_of(self.output_vars, self._like)

    @signature_of(DumpArguments)
    def dump(self, file: str | os.PathLike[str] | BinaryIO, **keywords: Any) -> DumpResult:
        """Write the graph as a .mge file that MegEngine and loadrun run.

        Args:
            file: a path, or an open binary file.
            keywords: those of ``trace.dump``, see `loadrun.tracing.writing.DumpArguments`; ``arg_names`` and
                ``output_names`` are not taken, nodes are renamed instead.

        Returns:
            the counts that MegEngine returns.
        """
        arguments = DumpArguments.of(**keywords)
        for name in ("arg_names", "output_names"):
            if getattr(arguments, name):
                _log.warning("%s is not taken by Network.dump; set the names of the variables", name)
        graph = graph_of(self.output_vars, self._like)
        if arguments.enable_metadata:
            graph.metadata = Metadata(
                is_valid=True, graph_modified=True, user_info=information(arguments.user_info)
            )
        return dump_graph(graph, file, arguments.packing)

    def optimize_for_inference(self, dest_vars: VarNode | Sequence[VarNode], **kwargs: Any) -> list[VarNode]:
        """Return the nodes of variables in an optimized graph; the network stays as it is.

        Args:
            dest_vars: the variables.
            kwargs: ``enable_nchw44=True`` and its kin, see `loadrun.passes.options.InferenceOptions`.
        """
        wanted = [dest_vars] if isinstance(dest_vars, VarNode) else list(dest_vars)
        graph, _ = optimize_for_inference(graph_of(wanted, self._like), **kwargs)
        return nodes_of(graph)

    # Growing and cutting

    def make_const(self, data: Any, name: str | None = None, device: str | None = None) -> VarNode:
        """Return the variable of a new constant.

        Args:
            data: a number, a nested list or an ndarray.
            name: its name.
            device: accepted for MegEngine's sake.
        """
        return ImmutableTensor(data, name, device, self._running).outputs[0]

    def make_input_node(
        self, shape: Sequence[int], dtype: Any, name: str | None = None, device: str | None = None
    ) -> VarNode:
        """Return the variable of a new input.

        Args:
            shape: its shape.
            dtype: its dtype.
            name: its name, by which it is fed.
            device: accepted for MegEngine's sake.
        """
        node = Host2DeviceCopy(shape, dtype, name, device)
        node.compile()
        node.outputs[0]._graph = self._running
        return node.outputs[0]

    def add_output(self, *vars: VarNode) -> None:
        """Make variables outputs, behind those that are."""
        for var in (v.itself for v in vars):
            if not any(var is v for v in self.output_vars):
                self.output_vars.append(var)

    def remove_output(self, *vars: VarNode) -> None:
        """Let variables be outputs no longer; what is none is named in a warning."""
        for var in (v.itself for v in vars):
            if not any(var is v for v in self.output_vars):
                _log.warning("%s is not an output, so it was not removed", var.name)
            self.output_vars = [v for v in self.output_vars if v is not var]

    def add_dep_oprs(self, *vars: VarNode) -> list[VarNode]:
        """Return the variables (default: the outputs); what they depend on is known anyway."""
        if not all(isinstance(v, VarNode) for v in vars):
            raise UsageAssertionError("expected variables of a graph")
        return [v.itself for v in vars or self.output_vars]

    def modify_opr_names(self, modifier: str | Callable[[str], str]) -> None:
        """Rename all operators: a text goes before each name with a dot, a function gives the new names."""
        if not (isinstance(modifier, str) or callable(modifier)):
            raise UsageAssertionError(f"expected a text or a function of names, found {modifier!r}")
        for opr in self.all_oprs:
            new = f"{modifier}.{opr.name}" if isinstance(modifier, str) else modifier(opr.name)
            if not isinstance(new, str):
                raise UsageAssertionError(f"the new name of {opr.name} is not text: {new!r}")
            opr.name = new

    def reset_batch_size(self, batchsize: int, *, blacklist: Iterable[str] = ()) -> None:
        """Give the first axis of all inputs another size.

        Args:
            batchsize: the size.
            blacklist: names of the inputs that stay as they are.

        Raises:
            UsageError: there is no input, inputs differ in the first axis, or a name belongs to none.
        """
        left, size = set(blacklist), None
        for opr in self.data_providers_filter:
            if opr.name in left:
                left.remove(opr.name)
                continue
            if size is not None and opr.shape[0] != size:
                raise UsageAssertionError(
                    f"inputs differ in their first axis: {size}, and {list(opr.shape)} of {opr.name}; name those "
                    "that have no batch axis in blacklist"
                )
            size = opr.shape[0]
            opr.shape = (int(batchsize), *opr.shape[1:])
        if size is None:
            raise UsageAssertionError("there is no input whose first axis could change")
        if left:
            raise UsageAssertionError(f"blacklist names what is not an input: {', '.join(sorted(left))}")
        refreshed(self.output_vars)

    def replace_vars(self, repl_dict: Mapping[VarNode, VarNode]) -> None:
        """Let operators read other variables.

        Args:
            repl_dict: the new variables by those that they replace. What computes a new variable keeps its inputs, so
                that the new one may be made of the old.
        """
        for old, new in ((a.itself, b.itself) for a, b in repl_dict.items()):
            if old is not new:
                replace_inputs(operators([*self.output_vars, new]), old, new)
        refreshed(self.output_vars)

    def replace_oprs(self, repl_dict: Mapping[OpNode, OpNode]) -> None:
        """Put operators in the place of others, whose outputs they take over: the variables stay.

        Args:
            repl_dict: the new operators by those that they replace.

        Raises:
            UsageError: they have different numbers of outputs.
        """
        for old, new in repl_dict.items():
            if len(old.outputs) != len(new.outputs):
                raise UsageAssertionError(
                    f"{old} has {len(old.outputs)} outputs, {new} has {len(new.outputs)}; it cannot take its place"
                )
            if old is new:
                continue
            needed = any(o is old for o in operators(new.outputs))
            for before, after in zip(list(old.outputs), list(new.outputs), strict=True):
                if not after.variable.name:
                    after.name, before.variable.name = before.variable.name, None
                take_over(operators([*self.output_vars, after]), before, after)
                self.output_vars = [v for v in self.output_vars if v is not after]
            if not needed:
                # Found by the old operator as well, as in MegEngine.
                old.outputs = new.outputs
        refreshed(self.output_vars)

    # Finding

    def get_opr_by_type(self, oprcls: type[OpNode], unique: bool = True) -> Any:
        """Return the operator of a class, or with ``unique=False`` the list of them."""
        return self._found(self.opr_filter.type(oprcls), f"of {oprcls.__name__}", unique)

    def get_opr_by_name(self, name: str, unique: bool = True) -> Any:
        """Return the operator of a name or pattern, or with ``unique=False`` the list of them."""
        return self._found(self.opr_filter.name(name), f"named {name}", unique)

    def get_var_by_name(self, name: str, unique: bool = True) -> Any:
        """Return the variable of a name or pattern, or with ``unique=False`` the list of them."""
        return self._found(self.var_filter.name(name), f"named {name}", unique)

    @staticmethod
    def _found(nodes: NodeFilter, what: str, unique: bool) -> Any:
        matches = nodes.as_list()
        if not unique:
            return matches
        if len(matches) != 1:
            raise UsageAssertionError(
                f"{len(matches)} nodes {what} found, expected one; unique=False gives them all"
            )
        return matches[0]

    def get_var_receive_oprs(self, var: VarNode) -> list[OpNode]:
        """Return the operators that read a variable."""
        return self.opr_filter.has_input(var).as_list()

    def get_dep_oprs(self, var: VarNode | Sequence[VarNode]) -> list[OpNode]:
        """Return the operators that a variable depends on."""
        return get_oprs_seq(var, False, False)

    @property
    def opr_filter(self) -> NodeFilter:
        """A filter over all operators."""
        return NodeFilter(self.all_oprs)

    @property
    def var_filter(self) -> NodeFilter:
        """A filter over all variables."""
        return NodeFilter(self.all_vars)

    @property
    def params_filter(self) -> NodeFilter:
        """A filter over all constants."""
        return self.opr_filter.param_provider()

    @property
    def data_providers_filter(self) -> NodeFilter:
        """A filter over all inputs."""
        return self.opr_filter.data_provider()

    @property
    def dest_vars(self) -> list[VarNode]:
        """The outputs."""
        return self.output_vars

    @property
    def all_oprs(self) -> list[OpNode]:
        """All operators in an order in which they can run."""
        return get_oprs_seq(self.output_vars, False, False)

    @property
    def all_vars(self) -> list[VarNode]:
        """All variables on which outputs depend, outputs first."""
        return get_dep_vars(self.output_vars)

    @property
    def all_vars_dict(self) -> OrderedDict[str, Any]:
        """All variables by name."""
        return self.var_filter.as_dict()

    @property
    def all_oprs_dict(self) -> OrderedDict[str, Any]:
        """All operators by name."""
        return self.opr_filter.as_dict()


def find_vars_by_name(dst: Iterable[VarNode], names: Sequence[str]) -> list[VarNode]:
    """Return variables by name, in the order of the names.

    Raises:
        UsageError: there is none of some name.
    """
    by_name: dict[str, VarNode] = {}
    for var in get_dep_vars(dst):
        by_name.setdefault(var.name, var)
    missing = [n for n in names if n not in by_name]
    if missing:
        some = ", ".join(list(by_name)[:8])
        raise UsageAssertionError(f"can not find {missing} in this model; it has {some} ...")
    return [by_name[n] for n in names]
