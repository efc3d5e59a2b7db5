"""`trace.dump`: the recorded graph as a file, with testcases if there is input data."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, BinaryIO, TextIO

from ..dtypes import decode
from ..dump import save
from ..dump.options import DumpOptions, DumpResult
from ..errors import SpecError, TraceError, UsageError
from ..graph import Graph, Metadata, Opr, Var
from ..imperative.source import shown
from ..imperative.value import Tensor
from ..inputs.lists import TextSource
from ..inputs.loading import load_cases
from ..ops.elemwise.table import ROWS
from ..ops.numbering import loaded, upward
from ..ops.registry import implementation
from ..optimize import as_made, empty_at, make_loadable, optimize_for_inference
from ..pack.capture import Recorder
from ..pack.packing import Packer
from ..pack.replaying import TrialReplay
from ..params import BN, BNFwdMode, Elemwise
from ..rewrite.copies import subgraph
from ..testcase import Bundle
from .compiled import Outputs
from .options import TraceOptions
from .recording import Recording, constant, name_of, plain_title

__all__ = ["Dumps", "dump_graph"]


class Dumps(ABC):
    """What a trace needs to be dumped: a recording, and which of its variables are the outputs."""

    options: TraceOptions

    @property
    @abstractmethod
    def recording(self) -> Recording | None:
        """What the first call did; None before it."""

    @property
    @abstractmethod
    def outputs(self) -> Outputs | None:
        """What the first call returned, as variables of the recording; None before it."""

    def _truth(self, model: Bundle) -> Recorder:
        """Captures testcases of a model; ground truth is what the recorded graph computes."""
        return Recorder(model)

    def _checked(
        self, model: Bundle, names: Mapping[str, str], maxerr: float | Mapping[str, float]
    ) -> Recorder:
        """Captures testcases as `_truth` does and, where there is a Python function, runs it beside the graph.

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
            raise _DumpValueError(
                "you must specify capture_as_const=True at __init__ to use dump: without it the values of parameters "
                "and closures are not part of the graph"
            )
        if recording is None or self.outputs is None:
            raise _DumpValueError(
                "the traced function has not been called yet, so there is nothing to dump; call it once"
            )
        if recording.excluded is not None:
            raise TraceError(
                f"the function leaves a region out of the trace in {shown(recording.excluded)}; a dump cannot compute "
                "what is computed there"
            )
        structure, variables, paths = self.outputs
        outs = [v for v in variables if v is not None]
        if not outs:
            raise _DumpValueError(
                "the traced function without return values cannot be dumped, the traced function should return "
                "List[Tensor] or Dict[str, Tensor]"
            )
        names = _output_names(structure, outs, paths, output_names)
        graph, known = subgraph(recording.graph, outs)
        _check_inference(graph)
        inputs = _input_names(recording, arg_names)
        for old, new in inputs.items():
            var = known.get(recording.args[old].id)
            if var is not None:
                var.name = var.owner.tensors[0].name = new
        graph = make_loadable(as_made(graph, self.options.opt_level))
        _name_outputs(graph, names)
        _unique_names(graph)
        graph.has_middle_tensors = True
        for capture in recording.captures:
            if not capture.fixed:
                _freeze(graph, capture.var.name or "", capture.tensor)
        return graph

    def dump(
        self,
        file: str | os.PathLike[str] | BinaryIO,
        *,
        arg_names: str | Sequence[str | None] | None = None,
        output_names: str | Sequence[str] | None = None,
        append: bool = False,
        keep_var_name: int = 1,
        keep_opr_name: bool = False,
        keep_param_name: bool = False,
        keep_opr_priority: bool = False,
        no_change_graph: bool = False,
        strip_info_file: str | os.PathLike[str] | TextIO | None = None,
        append_json: bool = False,
        optimize_for_inference: bool = True,
        user_info: Any = None,
        enable_metadata: bool = True,
        input_data: str | Iterable[str] | None = None,
        repeat: int = 1,
        silent: bool = False,
        no_assert: bool = False,
        maxerr: float | Mapping[str, float] = 1e-4,
        resize_input: bool = False,
        input_transform: str | None = None,
        dump_format: str | None = None,
        model_version: int = 2,
        compat_older_version: str | None = None,
        replay: bool = True,
        check: bool = True,
        **kwargs: Any,
    ) -> DumpResult:
        """Write the recorded graph as a .mge file that MegEngine and loadrun run.

        Args:
            file: a path, or an open binary file.
            arg_names: names of the positional tensor arguments, default ``arg_0`` and so on.
            output_names: names of the outputs; not for a function that returns a dict, whose keys are the names.
            append: put the dump behind what the file holds.
            keep_var_name: 0 no names, 1 those of outputs, 2 all.
            keep_opr_name, keep_param_name, keep_opr_priority: keep names of operators, names of weights, priorities.
            no_change_graph: True writes every operator as it is; False rewrites newer ones for older runtimes, as
                MegEngine does (`loadrun.rewrite.older.for_older`).
            strip_info_file, append_json: a JSON file for the operators and dtypes in use, and whether to extend it.
            optimize_for_inference: apply the passes that the ``enable_*`` keywords ask for, and fold constants.
            user_info: anything that can be pickled, stored as metadata.
            enable_metadata: False leaves the metadata out.
            input_data: specifications of input data, one testcase each (see `loadrun.inputspec`); the outputs that
                the recorded graph gives for them are the ground truth.
            repeat: repeat data from files along axis 0.
            silent: MegEngine does not print the errors that it finds.
            no_assert: embed inputs alone.
            maxerr: tolerance of the checks, one or by output name.
            resize_input: scale images to the input's height and width.
            input_transform: numpy expression over ``data``.
            dump_format: "FBS_V2" (default) or "FBS".
            model_version: version number of FBS_V2 files.
            compat_older_version: "8.14" for that release's header and operator ids.
            replay: replay the testcases of what was written, before it takes the file's place: a warning tells of
                checks that do not hold. False saves that time.
            check: run the Python function on every packed input as well; where the graph gives something else, a
                `TraceWarning` says so: it keeps branches, numbers and random numbers of the recorded call.
            kwargs: ``enable_io16xc32``, ``enable_ioc16``, ``enable_hwcd4``, ``enable_nchw88``, ``enable_nchw44``,
                ``enable_nchw44_dot``, ``enable_nchw4``, ``enable_nchw32``, ``enable_chwn4``, ``enable_nchw64``,
                ``enable_fuse_conv_bias_nonlinearity``, ``enable_fuse_conv_bias_with_z``,
                ``enable_fuse_preprocess``; see `loadrun.optimize`.

        Returns:
            the counts that MegEngine returns.

        Raises:
            ValueError, TypeError: misuse, as MegEngine has it.
            SpecError, InputError: input data that does not fit.
            FormatError: what was written does not run; the file is as it was.

        >>> import io, loadrun
        >>> from loadrun.jit import trace
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
        if compat_older_version:
            compat_older_version = compat_older_version.strip()
            _check_older(compat_older_version, no_change_graph, dump_format)
        dump_format = dump_format or "FBS_V2"
        graph = self.graph(arg_names, output_names)
        self._check_elements(graph)
        graph.metadata = None
        if enable_metadata:
            graph.metadata = Metadata(is_valid=True, user_info=_information(user_info))
        options = DumpOptions(
            dump_format=dump_format,
            model_version=model_version if dump_format == "FBS_V2" else None,
            no_change_graph=no_change_graph,
            compat_older_version=compat_older_version or None,
            keep_var_name=keep_var_name,
            keep_opr_name=keep_opr_name,
            keep_param_name=keep_param_name,
            keep_opr_priority=keep_opr_priority,
            strip_info_file=strip_info_file,
            append_json=append_json,
            append=append,
        )
        recorder: Callable[[Bundle], Recorder] = self._truth
        if check and self.recording is not None:
            recorder = partial(self._checked, names=_input_names(self.recording, arg_names), maxerr=maxerr)
        try:
            return dump_graph(
                graph,
                file,
                options,
                input_data=input_data,
                passes=kwargs if optimize_for_inference else None,
                packing={"silent": silent, "no_assert": no_assert, "maxerr": maxerr, "recorder": recorder},
                loading={"repeat": repeat, "resize_input": resize_input, "input_transform": input_transform},
                replay=replay,
            )
        except SpecError as e:
            unused = self._unused(graph, arg_names)
            if unused:
                hint = f"no output depends on {', '.join(unused)}, so that the dump has no such input"
                raise SpecError(f"{e}\n{hint}") from e
            raise

    def _check_elements(self, graph: Graph) -> None:
        """Warn of what MegEngine cannot run at the traced sizes."""
        empty = empty_at(graph)
        if not empty:
            return
        assert self.recording is not None
        shapes = self.recording.known.shapes
        found = [e for e in self.recording.entries if 0 in shapes.get(e.opr.outputs[0].id, ())]
        at_larger = {o.id for o in empty_at(graph, 16)}
        first = next((o for o in empty if o.id in at_larger), empty[0])
        where = next((e for e in found if e.opr.type == first.type), None)
        place = f" in {shown(where.place)}" if where else ""
        way_out = (
            "it runs the dump neither on such inputs nor on a batch 16 times as large; leave out what is empty"
            if first.id in at_larger
            else "it runs the dump on larger inputs only"
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
        return sorted(set(_input_names(self.recording, arg_names).values()) - inputs)


def _freeze(graph: Graph, name: str, tensor: Tensor) -> None:
    """Put a constant in the place of a graph input."""
    for opr in graph.oprs:
        if opr.type == "Host2DeviceCopy" and opr.outputs[0].name == name:
            scratch = Graph()
            made = constant(scratch, tensor._stored(), tensor._dtype, name_of(tensor) or name).owner
            opr.type, opr.params, opr.tensors = made.type, made.params, made.tensors
            opr.outputs[0].name = name_of(tensor) or name
            return


def dump_graph(
    graph: Graph,
    file: str | os.PathLike[str] | BinaryIO,
    options: DumpOptions,
    *,
    input_data: str | Iterable[str] | None,
    passes: Mapping[str, Any] | None,
    packing: Mapping[str, Any],
    loading: Mapping[str, Any],
    replay: bool = True,
) -> DumpResult:
    """Write a graph, packed with testcases where there is input data.

    Args:
        passes: keywords of `loadrun.optimize.optimize_for_inference`, None for no optimization.
        packing: keywords of `Packer`.
        loading: keywords of `load_cases`.
        replay: whether testcases are replayed before the file takes its place.

    Raises:
        FormatError: with testcases, it does not run.
    """
    finish = partial(_optimized, passes=passes)
    if input_data is None:
        return save(finish(graph), file, options)
    specs = [input_data] if isinstance(input_data, str) else list(input_data)
    if not specs:
        raise _UsageAssertion("testcases can not be empty: input_data holds no specification")
    warn = partial(warnings.warn, stacklevel=4)
    packer = Packer(Bundle(graph), **packing, finish=finish, warn=warn)
    cases = load_cases(specs, Bundle(graph).inputs, **loading, warn=warn)
    written = TrialReplay() if replay else None
    result = packer.pack(
        cases, file, options, where=TextSource(specs), inspect=written.look if written else None
    )
    if written is not None and (text := written.warning()) is not None:
        warn(text)
    return result


def _information(user_info: Any) -> bytes:
    # Here for start-up: it knows the modules, which few dumps speak of.
    from ..information import information

    return information(user_info)


def _optimized(graph: Graph, passes: Mapping[str, Any] | None) -> Graph:
    if passes is None:
        return graph
    made, bits = optimize_for_inference(graph, **passes)
    _rename_outputs(graph, made)
    if made.metadata is not None:
        made.metadata.optimize_options = bits
    return made


def _rename_outputs(before: Graph, graph: Graph) -> None:
    """Name outputs that nobody named after what gives them now, as MegEngine does where an operator went away."""
    taken = {v.name for v in graph.vars()}
    for old, new in zip(before.outputs, graph.outputs, strict=True):
        mine = old.name == _label(old.owner, old)
        if not mine or not new.owner.name or new.owner.name == old.owner.name or _keeps_name(old.owner):
            continue
        label = _label(new.owner, new)
        if label not in taken:
            new.name = label
            taken.add(label)


def _keeps_name(opr: Opr) -> bool:
    """Tell whether MegEngine keeps the operator, or its name: one that undoes or repeats another, or has no number."""
    if opr.type != "Elemwise":
        return False
    held = [t.shape for v in opr.inputs for t in v.owner.tensors if v.owner.type == "ImmutableTensor"]
    return ROWS[opr.get(Elemwise).mode].neutral is None or any(shape != (1,) for shape in held)


def _check_older(version: str, no_change_graph: bool, dump_format: str | None) -> None:
    if version != "8.14":
        raise _UsageAssertion(
            f"Forward compatibility for older version only support 8.14 currently, found {version!r}"
        )
    if no_change_graph:
        raise _UsageAssertion("compat_older_version rewrites newer operators, which no_change_graph forbids")
    if dump_format != "FBS":
        raise _UsageAssertion(
            "forward compatibility for older version only works when dump_format is FBS, found "
            f"{dump_format!r}"
        )


def _check_inference(graph: Graph) -> None:
    """Refuse or warn of what belongs to training."""
    for opr in graph.oprs:
        for param in opr.params:
            if isinstance(param, BN) and param.fwd_mode == BNFwdMode.TRAINING:
                raise TraceError(
                    f"can not dump BatchNorm in training mode, maybe you forget to do model.eval()? ({opr.name})"
                )
    drawn = [o.name or o.type for o in graph.oprs if implementation(o.type).random and not _never_drops(o)]
    if drawn:
        warnings.warn(
            f"the graph draws random numbers ({', '.join(drawn)}), so checks of what depends on them fail; "
            "was .eval() forgotten?",
            stacklevel=4,
        )


def _never_drops(opr: Opr) -> bool:
    """Tell whether an operator that drops values at random has the probability 0."""
    found = [v for p in opr.params for n, v in p.pairs() if n.endswith("_prob")]
    return bool(found) and not any(found)


def _input_names(recording: Recording, given: str | Sequence[str | None] | None) -> dict[str, str]:
    """Return new names by the names that the recording has: those given, else the tensors' own."""
    args = list(recording.args)
    positional = [a for a in args if a.startswith("arg_")]
    names = {a: a.removeprefix("kwarg_") for a in args}
    own = {a: n for a, n in recording.names.items() if list(recording.names.values()).count(n) == 1}
    names.update((a, n) for a, n in own.items() if n not in names.values())
    if given is not None:
        wanted = [given] if isinstance(given, str) else list(given)
        if len(wanted) != len(positional):
            raise _DumpValueError(
                f"wrong number of arg_names, should be {len(positional)} values: found {len(wanted)} "
                f"({', '.join(map(repr, wanted))}) for {', '.join(positional) or 'no positional tensors'}"
            )
        names.update({a: n for a, n in zip(positional, wanted, strict=True) if n})
    doubled = {n for n in names.values() if list(names.values()).count(n) > 1}
    if doubled:
        raise _DumpValueError(f"two inputs cannot have the same name: {', '.join(sorted(doubled))}")
    return names


def _output_names(
    structure: Any, outs: Sequence[Var], paths: Sequence[tuple[Any, ...]], given: str | Sequence[str] | None
) -> list[str | None]:
    """Return names of the outputs: those of a dict, those given, or None."""
    if isinstance(structure, dict):
        if given:
            raise _DumpTypeError(
                "cannot specify output_names when output is already in dict format; its keys are the names: "
                + ", ".join(map(str, structure))
            )
        return [".".join(map(str, p)) for p in paths]
    if not given:
        return [None] * len(outs)
    names = [given] if isinstance(given, str) else list(given)
    if len(names) != len(outs):
        raise _DumpValueError(
            f"wrong number of output_names, should be {len(outs)} values: found {len(names)} "
            f"({', '.join(map(repr, names))})"
        )
    return [n or None for n in names]


def _name_outputs(graph: Graph, names: Sequence[str | None]) -> None:
    """Give outputs their names; a variable that is an output twice, or an input, gets an operator of its own."""
    taken: set[int] = set()
    for i, (var, name) in enumerate(zip(graph.outputs, names, strict=True)):
        if name is None:
            if var.id in taken or var.owner.type == "Host2DeviceCopy":
                graph.outputs[i] = graph.add("Identity", inputs=[var])[0]
                graph.outputs[i].owner.name = "Identity"
        elif var.id in taken or (var.owner.type == "Host2DeviceCopy" and var.name != name):
            graph.outputs[i] = graph.add("Identity", inputs=[var], names=[name])[0]
        else:
            var.name = name
        taken.add(graph.outputs[i].id)
    given = [n for n in names if n]
    doubled = {n for n in given if given.count(n) > 1}
    if doubled:
        raise _DumpValueError(f"two outputs cannot have the same name: {', '.join(sorted(doubled))}")


def _unique_names(graph: Graph) -> None:
    """Name operators after what they are, numbered where several have the same name, and variables after them.

    They are numbered in the order in which the outputs, one after the other, need them, as MegEngine does. Those
    without a name get one that tells their inputs and a number that nothing else has.
    """
    taken = {v.name for v in graph.vars() if v.name}
    oprs = upward(v.owner for v in graph.outputs)
    groups: dict[str, list[Opr]] = {}
    for opr in oprs:
        if opr.name and opr.type != "Host2DeviceCopy":
            groups.setdefault(opr.name, []).append(opr)
    for name, found in groups.items():
        for i, opr in enumerate(found):
            opr.name = name if len(found) == 1 else f"{name}[{i}]"
            for var in opr.outputs:
                if not var.name:
                    label = _label(opr, var)
                    var.name = label if label not in taken else f"{label}[{var.id}]"
    numbers = loaded(graph)
    for opr in graph.oprs:
        if opr.type == "ImmutableTensor" and not opr.outputs[0].name:
            opr.name = opr.outputs[0].name = _constant_name(opr, numbers.oprs[opr.id].id)
    for opr in oprs:
        if not opr.name and not opr.tensors:
            given = ",".join(v.name or f"var{v.id}" for v in opr.inputs)
            opr.name = f"{plain_title(opr)}({given})[{opr.outputs[0].id}]"
            for var in opr.outputs:
                var.name = var.name or _label(opr, var)


def _constant_name(opr: Opr, number: int) -> str:
    """Return the name of a constant: its value, or its shape, and its number among operators and variables."""
    held = opr.tensors[0]
    shape = held.shape or (1,)
    sizes = "" if shape == (1,) else "{" + ",".join(map(str, shape)) + "}"
    value = ""
    if prod(shape) == 1 and held.data is not None:
        value = f"<{decode(held.data, shape, held.dtype).item():.3g}>"
    return f"const{value}{sizes}[{number}]"


def _label(opr: Opr, var: Var) -> str:
    """Return the name of a variable: its operator's, with its place where MegEngine's operator gives several."""
    name = opr.name or plain_title(opr)
    first = opr.type == "MultiHeadAttn" and not var.index
    if first or (len(opr.outputs) == 1 and opr.type not in _COUNTED):
        return name
    hidden = _NORM_OUTPUTS - len(opr.outputs) if opr.type == "BatchNormV1" else 0
    return f"{name}:o{var.index + hidden}"


_COUNTED = {"Split", "TopK"}
"""Operators whose outputs are counted even where there is one."""
_NORM_OUTPUTS = 6
"""The last outputs of MegEngine's BatchNorm are those that a file has; it counts all."""


class _DumpValueError(TraceError, ValueError):
    """What is asked for cannot be dumped."""


class _DumpTypeError(TraceError, TypeError):
    """Options of a dump that contradict the function."""


class _UsageAssertion(UsageError, AssertionError):
    """Options that exclude one another."""
