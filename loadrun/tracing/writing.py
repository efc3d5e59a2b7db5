"""A graph as a file: optimized, packed with testcases, replayed before it takes its place."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, BinaryIO, TextIO, TypeVar

from ..base.errors import UsageAssertionError
from ..base.registry import late
from ..base.stages import counted, stage
from ..dump import save
from ..dump.options import DumpOptions, DumpResult
from ..graph import Graph
from ..inputs.lists import TextSource, count_cases, items_of
from ..inputspec import InputData
from ..passes.inference import optimize_for_inference
from ..passes.loadable import unavailable
from ..testcase import Bundle
from ..verify.pack.capture import Recorder
from ..verify.pack.options import PackOptions
from ..verify.pack.packing import Packer
from .naming import rename_outputs

with late(__name__):
    from ..verify.pack import files, noise

T = TypeVar("T", bound=Callable[..., object])


@dataclass(frozen=True, kw_only=True)
class FileArguments:
    """Keyword arguments of MegEngine's ``trace.dump`` and ``dump_graph`` about the file.

    Attributes:
        keep_var_name: 0 no names, 1 those of outputs, 2 all.
        keep_opr_name, keep_param_name, keep_opr_priority: keep names of operators, names of weights, priorities.
        no_change_graph: True writes every operator as it is; False rewrites newer ones for older runtimes, as MegEngine
            does (`loadrun.passes.older.for_older`).
        strip_info_file, append_json: a JSON file for the operators and dtypes in use, and whether to extend it.
        dump_format: "FBS_V2" (default) or "FBS".
        model_version: version number of FBS_V2 files.
        compat_older_version: "8.14" for that release's header and operator ids.
        narrow: write int64 as int32 and float64 as float32 even where that changes values; see `DumpOptions`.

    >>> FileArguments(keep_opr_name=True).file.dump_format
    'FBS_V2'
    """

    keep_var_name: int = 1
    keep_opr_name: bool = False
    keep_param_name: bool = False
    keep_opr_priority: bool = False
    no_change_graph: bool = False
    strip_info_file: str | os.PathLike[str] | TextIO | None = None
    append_json: bool = False
    dump_format: str | None = None
    model_version: int = 2
    compat_older_version: str | None = None
    narrow: bool = False

    @property
    def file(self) -> DumpOptions:
        """How the graph is written."""
        options = {f.name: getattr(self, f.name) for f in fields(FileArguments)}
        form = self.dump_format or "FBS_V2"
        older = (self.compat_older_version or "").strip() or None
        options.update(dump_format=form, compat_older_version=older)
        options["model_version"] = self.model_version if form == "FBS_V2" else None
        return DumpOptions(**options)


@dataclass(frozen=True, kw_only=True)
class DumpArguments(FileArguments):
    """Keyword arguments of MegEngine's ``trace.dump``, and a few more; those of `FileArguments` are among them.

    Attributes:
        arg_names: names of the positional tensor arguments, default ``arg_0`` and so on.
        output_names: names of the outputs; not for a function that returns a dict, whose keys are the names.
        append: append the dump to what the file holds.
        optimize_for_inference: apply the passes that the ``enable_*`` keywords ask for, and fold constants.
        user_info: anything that can be pickled, stored as metadata.
        enable_metadata: False leaves the metadata out.
        input_data: specifications of input data, one testcase each (see `loadrun.inputspec`); arrays and tensors, alone
            or in a dict by input name, are taken as well, and ``"example"`` is what was traced. The outputs that the
            recorded graph gives for them are the ground truth.
        repeat: repeat data from files along axis 0.
        silent: MegEngine does not print the errors that it finds.
        no_assert: embed inputs alone.
        maxerr: tolerance of the checks, one or by output name; by default 1e-4, as in MegEngine, of the output's
            scale where all its numbers are smaller than 0.1.
        resize_input: scale images to the input's height and width.
        input_transform: numpy expression over ``data``.
        seed: seed of random input data and of random operators; by default data comes from numpy's global generator,
            which ``np.random.seed`` starts, as in MegEngine, so that each dump draws again.
        replay: replay the testcases of what was written, before it takes the file's place: a warning tells of checks
            that do not hold. False saves that time.
        check: run the Python function on every packed input as well; where the graph gives something else, a
            `TraceWarning` says so: it keeps branches, numbers and random numbers of the recorded call.
        flags: all other keywords: ``enable_io16xc32``, ``enable_ioc16``, ``enable_hwcd4``, ``enable_nchw88``,
            ``enable_nchw44``, ``enable_nchw44_dot``, ``enable_nchw4``, ``enable_nchw32``, ``enable_chwn4``,
            ``enable_nchw64``, ``enable_fuse_conv_bias_nonlinearity``, ``enable_fuse_conv_bias_with_z``,
            ``enable_fuse_preprocess``; see `loadrun.passes`.
    """

    arg_names: str | Sequence[str | None] | None = None
    output_names: str | Sequence[str] | None = None
    append: bool = False
    optimize_for_inference: bool = True
    user_info: object = None
    enable_metadata: bool = True
    input_data: InputData | Iterable[InputData] | None = None
    repeat: int = 1
    silent: bool = False
    no_assert: bool = False
    maxerr: float | Mapping[str, float] | None = None
    resize_input: bool = False
    input_transform: str | None = None
    seed: int | None = None
    replay: bool = True
    check: bool = True
    flags: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, **keywords: Any) -> DumpArguments:
        """Sort the keywords of a call: those that are none of the record's fields are `flags`.

        >>> DumpArguments.of(keep_var_name=2, enable_nchw44=True).flags
        {'enable_nchw44': True}
        """
        names = {f.name for f in fields(cls)}
        known = {n: v for n, v in keywords.items() if n in names}
        return cls(**known, flags={n: v for n, v in keywords.items() if n not in names})

    @property
    def packing(self) -> PackOptions:
        """How testcases are packed and the graph is written."""
        specs = None if self.input_data is None else items_of(self.input_data)
        names = ("repeat", "silent", "no_assert", "maxerr", "resize_input", "input_transform", "replay")
        return PackOptions(
            **{n: getattr(self, n) for n in names},
            input_data=None if specs is None else tuple(specs),
            seed=self.seed or 0,
            numpy_random=self.seed is None,
            passes=self.flags if self.optimize_for_inference else None,
            file=replace(self.file, append=self.append),
        )


def signature_of(record: type) -> Callable[[T], T]:
    """Show the fields of a record as the keyword arguments of a function that makes one of them.

    >>> @signature_of(FileArguments)
    ... def dump(file, **keywords):
    ...     return FileArguments(**keywords)
    >>> list(inspect.signature(dump).parameters)[:3]
    ['file', 'keep_var_name', 'keep_opr_name']
    """

    def shown(method: T) -> T:
        signature = inspect.signature(method)
        *first, rest = signature.parameters.values()
        named = inspect.signature(record).parameters
        flags = [rest] if "flags" in named else []
        shared = [p for n, p in named.items() if n != "flags"]
        vars(method)["__signature__"] = signature.replace(parameters=[*first, *shared, *flags])
        return method

    return shown


def dump_graph(
    graph: Graph,
    file: str | os.PathLike[str] | BinaryIO,
    options: PackOptions,
    recorder: Callable[[Bundle], Recorder] | None = None,
    widen: bool = False,
) -> DumpResult:
    """Write a graph, packed with testcases where there is input data.

    Args:
        graph: the graph.
        file: a path, or an open binary file.
        options: how; where `passes` is not None, the graph is optimized.
        recorder: makes what captures testcases, in place of running the graph.
        widen: whether the usual tolerance is widened for outputs that rounding alone brings near it.

    Raises:
        FormatError: with testcases, it does not run.
    """
    finish = partial(_optimized, passes=options.passes)
    if options.input_data is None:
        finished = finish(graph)
        if (text := unavailable(finished)) is not None:
            warnings.warn(text, stacklevel=3)
        return save(finished, file, options.file, made_of=graph)
    if not options.input_data:
        raise UsageAssertionError("testcases can not be empty: input_data holds no specification")
    warn = partial(warnings.warn, stacklevel=4)
    if Bundle(graph).inputs:
        cases = options.cases(Bundle(graph), warn)
    else:
        # As MegEngine has it: testcases of expected values alone.
        warn("no output depends on an input: input_data only determines the number of testcases")
        cases = iter([{}] * count_cases(options.input_data))
    reasons: Mapping[str, str] = {}
    if widen and options.maxerr is None and not options.no_assert:
        cases, options, reasons = noise.widened(Bundle(graph), iter(cases), options, warn)
    packer = Packer(Bundle(graph), options, recorder=recorder, finish=finish, warn=warn, reasons=reasons)
    written = files.TrialReplay() if options.replay else None
    result = packer.pack(
        counted(cases, count_cases(options.input_data), "testcase"),
        file,
        where=TextSource(options.input_data),
        inspect=written.look if written else None,
    )
    if written is not None and (text := written.warning()) is not None:
        warn(text)
    return result


@stage("optimizing the graph")
def _optimized(graph: Graph, passes: Mapping[str, object] | None) -> Graph:
    if passes is None:
        return graph
    optimized, _ = optimize_for_inference(graph, **passes)
    rename_outputs(graph, optimized)
    return optimized


def check_older(version: str, no_change_graph: bool, dump_format: str | None) -> None:
    """Refuse options that ``compat_older_version`` excludes."""
    if version != "8.14":
        raise UsageAssertionError(
            f"Forward compatibility for older version only support 8.14 currently, found {version!r}"
        )
    if no_change_graph:
        raise UsageAssertionError(
            "compat_older_version rewrites newer operators, which no_change_graph forbids"
        )
    if dump_format != "FBS":
        raise UsageAssertionError(
            "forward compatibility for older version only works when dump_format is FBS, found "
            f"{dump_format!r}"
        )
