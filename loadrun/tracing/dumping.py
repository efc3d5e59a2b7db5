"""`trace.dump`: the recorded graph as a file, with testcases if there is input data."""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

from ..base.errors import SpecError, TraceError
from ..base.logger import get_logger
from ..dump.options import DumpResult, information
from ..graph import Graph, Metadata
from ..graph.dtypes import Array
from ..graph.params import BN, BNFwdMode
from ..inputs.lists import items_of
from ..inputspec import InputData
from ..ops.catalog import draws
from ..ops.numbering import upward
from ..passes.cleanup import as_made
from ..passes.constants import subgraph
from ..passes.loadable import empty_at, make_loadable
from ..tensors.access import dtype_of, stored
from ..tensors.naming import shown
from ..tensors.value import Tensor
from ..testcase import Bundle
from ..verify.pack.capture import Recorder
from . import naming
from .recording import Recording, TraceOptions, constant, name_of, plain_title
from .replay import Outputs
from .writing import DumpArguments, check_older, dump_graph, signature_of

EXAMPLE = "example"
"""Stands for the traced arguments among ``input_data``."""
_log = get_logger(__name__)


class Dumps(ABC):
    """What a trace needs to be dumped: a recording, and which of its variables are the outputs."""

    options: TraceOptions
    _widens = False
    """Whether outputs that rounding alone brings near the usual tolerance get a wider one."""

    @property
    @abstractmethod
    def recording(self) -> Recording | None:
        """What the first call did; None before it."""

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what was traced; the first call records."""

    @property
    def integers(self) -> Collection[str]:
        """The arguments of 64-bit integers, which the graph has in 32, by their names in the recording."""
        return ()

    @property
    @abstractmethod
    def outputs(self) -> Outputs | None:
        """What the first call returned, as variables of the recording; None before it."""

    def _truth(self, model: Bundle) -> Recorder:
        """Capture testcases of a model; ground truth is what the recorded graph computes."""
        return Recorder(model)

    def _checked(
        self, model: Bundle, names: Mapping[str, str], maxerr: float | Mapping[str, float] | None
    ) -> Recorder:
        """Capture testcases as `_truth` does and, where there is a Python function, run it beside the graph.

        Args:
            model: the model.
            names: the dump's name of every argument of the recording.
            maxerr: tolerance of the checks.
        """
        return self._truth(model)

    def graph(
        self,
        arg_names: str | Sequence[str | None] | None = None,
        output_names: str | Sequence[str] | None = None,
    ) -> Graph:
        """Return the recorded graph with named inputs and outputs, as `dump` writes it.

        Tensors from outside that calls ask for their value are constants of their present value.

        Args:
            arg_names: names of the positional tensor arguments, default ``arg_0`` and so on; keyword arguments keep
                theirs.
            output_names: names of the outputs; those of a dict are its keys.

        Raises:
            TraceError: there is no recording yet, or it cannot stand alone.
            ValueError, TypeError: names that do not fit.
        """
        recording = self.recording
        if not (self.options.fixed or self.options.live):
            raise naming.DumpValueError(
                "you must specify capture_as_const=True at __init__ to use dump: without it the values of parameters "
                "and closures are not part of the graph"
            )
        if recording is None or self.outputs is None:
            raise naming.DumpValueError(
                "the traced function has not been called yet, so there is nothing to dump; call it once"
            )
        if recording.excluded is not None:
            raise TraceError(
                f"the function leaves a region out of the trace in {shown(recording.excluded)}; a dump cannot include "
                "what is computed there"
            )
        structure, variables, paths = self.outputs
        outs = [v for v in variables if v is not None]
        if not outs and structure is not None:
            raise naming.DumpValueError(
                f"the traced function returns {type(structure).__name__} without anything that was recorded: np.array "
                "of a list, np.ascontiguousarray, float and tolist make plain numbers of traced values; return the "
                "arrays themselves, np.stack([...]) or np.array([...], like=x)"
            )
        if not outs:
            raise naming.DumpValueError(
                "the traced function without return values cannot be dumped, the traced function should return "
                "List[Tensor] or Dict[str, Tensor]"
            )
        names = naming.output_names_of(structure, outs, paths, output_names)
        graph, known = subgraph(recording.graph, outs)
        inputs = naming.input_names(recording, arg_names)
        graph.input_order = tuple(inputs.values())
        _check_inference(graph)
        graph.integers = tuple(inputs[old] for old in self.integers)
        for old, new in inputs.items():
            var = known.get(recording.args[old].id)
            if var is not None:
                var.name = var.owner.tensors[0].name = new
        graph = make_loadable(as_made(graph, 0 if graph.exact else self.options.opt_level))
        naming.name_outputs(graph, names)
        naming.order_operands(graph)
        naming.make_names_unique(graph)
        graph.header.has_middle_tensors = True
        for capture in recording.captures:
            if not capture.fixed:
                _freeze(graph, capture.var.name or "", capture.tensor)
        return graph

    @signature_of(DumpArguments)
    def dump(self, file: str | os.PathLike[str] | BinaryIO, **keywords: Any) -> DumpResult:
        """Write the recorded graph as a .mge file that MegEngine and loadrun run.

        Args:
            file: a path, or an open binary file.
            keywords: those of MegEngine's ``trace.dump``, and a few more; `loadrun.tracing.writing.DumpArguments` says
                what each means.

        Returns:
            the counts that MegEngine returns.

        Raises:
            ValueError, TypeError: misuse, as MegEngine has it.
            SpecError, InputError: input data that does not fit.
            FormatError: what was written does not run; the file is as it was.

        >>> import io, loadrun
        >>> from loadrun.tracing import trace
        >>> @trace(symbolic=True, capture_as_const=True)
        ... def double(x):
        ...     return {"y": x * 2}
        >>> _ = double(loadrun.tensor([1.0, 2.0]))
        >>> file = io.BytesIO()
        >>> double.dump(file, arg_names=["x"], input_data=["#rand(0,1)"]).outputs
        ['y']
        >>> loadrun.run(loadrun.loads(file.getvalue()))[0].verdict.value
        'pass'
        """
        arguments = DumpArguments.of(**keywords)
        if arguments.compat_older_version:
            check_older(
                arguments.compat_older_version.strip(), arguments.no_change_graph, arguments.dump_format
            )
        graph = self.graph(arguments.arg_names, arguments.output_names)
        if arguments.input_data is None:
            _log.info(
                "no input_data, so the file has no testcases; input_data='example' packs what was traced"
            )
        else:
            graph_inputs = {v.name or "" for v in Bundle(graph).inputs}
            items = [self._data(x, arguments.arg_names, graph_inputs) for x in items_of(arguments.input_data)]
            arguments = replace(arguments, input_data=items)
        self._check_elements(graph)
        if not arguments.keep_opr_priority:
            # As MegEngine writes them: what each output needs, one after the other. Priorities follow the calls.
            graph.oprs[:] = upward(v.owner for v in graph.outputs)
        graph.header.metadata = None
        if arguments.enable_metadata:
            graph.header.metadata = Metadata(is_valid=True, user_info=information(arguments.user_info))
        recorder: Callable[[Bundle], Recorder] = self._truth
        if arguments.check and self.recording is not None:
            names = naming.input_names(self.recording, arguments.arg_names)
            recorder = partial(self._checked, names=names, maxerr=arguments.maxerr)
        try:
            return dump_graph(graph, file, arguments.packing, recorder, self._widens)
        except SpecError as e:
            unused = self._unused(graph, arguments.arg_names)
            if unused:
                hint = f"no output depends on {', '.join(unused)}, so the dump has no such input"
                raise SpecError(f"{e}\n{hint}") from e
            raise

    def _data(
        self, item: InputData, arg_names: str | Sequence[str | None] | None, graph_inputs: Collection[str]
    ) -> InputData:
        """Return what stands for one of ``input_data``: arrays by input name for the example, else the item itself.

        Args:
            item: what was given.
            arg_names: as `dump` takes it.
            graph_inputs: the inputs of the graph; data of arguments that no output depends on is left out.
        """
        if not isinstance(item, str) or item != EXAMPLE:
            return item
        assert self.recording is not None
        names, example = naming.input_names(self.recording, arg_names), self.example()
        return {names[key]: value for key, value in example.items() if names[key] in graph_inputs}

    @abstractmethod
    def example(self) -> Mapping[str, Array]:
        """Return the tensors that were traced, by the names that the recording has for them."""

    def _check_elements(self, graph: Graph) -> None:
        """Warn of what MegEngine cannot run at the traced sizes."""
        empty = empty_at(graph)
        if not empty:
            return
        assert self.recording is not None
        shapes = self.recording.known.shapes
        entries = [e for e in self.recording.entries if 0 in shapes.get(e.opr.outputs[0].id, ())]
        at_larger = {o.id for o in empty_at(graph, 16)}
        first = next((o for o in empty if o.id in at_larger), empty[0])
        where = next((e for e in entries if e.opr.type == first.type), None)
        place = f" in {shown(where.place)}" if where else ""
        way_out = (
            "it cannot run the dump on such inputs or on a batch 16 times as large; leave out empty values"
            if first.id in at_larger
            else "it can run the dump only on larger inputs"
        )
        warnings.warn(
            f"{plain_title(first)}{place} gives no elements at the traced sizes; MegEngine asserts on that, so that "
            f"{way_out}",
            stacklevel=3,
        )

    def _unused(self, graph: Graph, arg_names: str | Sequence[str | None] | None) -> list[str]:
        """Return the arguments that no output depends on."""
        assert self.recording is not None
        inputs = {t.name for opr in graph.oprs if opr.type == "Host2DeviceCopy" for t in opr.tensors}
        return sorted(set(naming.input_names(self.recording, arg_names).values()) - inputs)


def _freeze(graph: Graph, name: str, tensor: Tensor) -> None:
    """Put a constant in the place of a graph input."""
    for opr in graph.oprs:
        if opr.type == "Host2DeviceCopy" and opr.outputs[0].name == name:
            scratch = Graph()
            source = constant(scratch, stored(tensor), dtype_of(tensor), name_of(tensor) or name).owner
            opr.type, opr.params, opr.tensors = source.type, source.params, source.tensors
            opr.outputs[0].name = name_of(tensor) or name
            return


def _check_inference(graph: Graph) -> None:
    """Refuse or warn of what belongs to training."""
    for opr in graph.oprs:
        for param in opr.params:
            if isinstance(param, BN) and param.fwd_mode == BNFwdMode.TRAINING:
                raise TraceError(
                    f"can not dump BatchNorm in training mode, maybe you forget to do model.eval()? ({opr.name})"
                )
    drawn = [o.name or o.type for o in graph.oprs if draws(o)]
    if drawn:
        warnings.warn(
            f"the graph draws random numbers ({', '.join(drawn)}): every testcase draws those that the seeds in the "
            "file lead to (in MegEngine the first one does, later ones draw on); was .eval() forgotten?",
            stacklevel=4,
        )
