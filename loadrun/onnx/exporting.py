"""`loadrun.onnx.export`: torch.onnx.export's parameters, each doing what it documents or saying that it cannot."""

import cProfile
import io
import os
import pstats
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import UsageError
from ..base.registry import late
from ..base.writing import replacing
from ..dump import load
from ..graph.composite import holds_composites
from ..testcase import Bundle
from .datasets import write_data_sets
from .exported import Exported, check_model, prove_export
from .file import NOT_PROVEN, metadata_of
from .inserted import rename
from .model import Request, WritingOptions, WrittenModel, write
from .options import (
    ExportOptions,
    OperatorExportTypes,
    Target,
    TrainingMode,
    check_names,
    check_opsets,
    check_target,
    option,
)
from .rewriting import rewritten
from .sizes import DynamicAxes, DynamicShapes, dynamic_sizes, sizes_of_testcases
from .source import Exportable, ExportSource, read_source

with late(__name__):
    from ..passes import cleanup, inference

_OTHERWISE_OF_NAN = frozenset(
    ("ArgMax", "ArgMin", "GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin", "Sign")
)


def export(
    model: Exportable,
    args: object = (),
    f: Target = None,
    export_params: bool = True,
    verbose: bool | None = None,
    training: object = TrainingMode.EVAL,
    input_names: Sequence[str | None] | None = None,
    output_names: Sequence[str | None] | None = None,
    operator_export_type: object = None,
    opset_version: int | None = None,
    _retain_param_name: bool | None = None,
    do_constant_folding: bool = True,
    example_outputs: object = None,
    strip_doc_string: bool | None = None,
    dynamic_axes: DynamicAxes | None = None,
    keep_initializers_as_inputs: bool | None = None,
    custom_opsets: Mapping[str, int] | None = None,
    enable_onnx_checker: bool | None = None,
    use_external_data_format: bool | None = None,
    *,
    aten: bool = False,
    export_raw_ir: bool = False,
    kwargs: Mapping[str, Any] | None = None,
    dynamo: bool = True,
    external_data: bool = False,
    dynamic_shapes: DynamicShapes | None = None,
    custom_translation_table: Mapping[Any, Any] | None = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    profile: bool = False,
    dump_exported_program: bool = False,
    artifacts_dir: str | os.PathLike[str] | None = None,
    export_modules_as_functions: bool = False,
    autograd_inlining: bool = True,
    fallback: bool = False,
) -> Exported:
    """Write a model as ONNX.

    The parameters are those of ``torch.onnx.export``: by position those of torch 1.10, by name those of later versions,
    too. `_retain_param_name`, `dynamo`, `fallback` and `autograd_inlining` make no difference.

    Args:
        model: a torch module, script, exported program or function of torch tensors; the path of a .mge or .pt2 file, a
            Bundle, a Graph; what `trace` and `trace_module` return; a module or function of loadrun's or of numpy.
        args: example values: a tuple, one value, or a tuple whose last entry is a dict of keyword arguments (an empty
            dict after it protects a real one). What is no tensor is a constant of the model. A file needs none; values
            for it go by the order of `Bundle.inputs`, or by name.
        f: a path or an open binary file; None only returns the model.
        export_params: False leaves the weights' values out; they become inputs of the model, after its own.
        verbose: print the report, and let every node say which operator it comes from (its doc string), of torch
            modules with the source line.
        training: EVAL (or None) traces a module in eval mode and puts it back; PRESERVE leaves it as it is. TRAINING
            traces a torch module in training mode, in which ONNX's Dropout and BatchNormalization have their training
            form.
        input_names: names for the inputs, in order, and further ones for the weights.
        output_names: names for the first outputs; more names than outputs are an error.
        operator_export_type: what to do with an operator of torch that ONNX does not have. None and ONNX: an error.
            ONNX_FALLTHROUGH: a node of its own name and domain; ONNX_ATEN_FALLBACK: a node ``ATen`` of the domain
            ``org.pytorch.aten``, both with a warning. ONNX_ATEN: all operators are such nodes.
        opset_version: 7 to 26; an error names every operator that needs a later one. None takes 18, or the first later
            one that has all operators.
        do_constant_folding: compute what follows from constants alone; False writes it as nodes, except sizes.
        example_outputs: what the model gives for `args`; an error where the shapes are others.
        strip_doc_string: False writes the doc strings of `verbose` without printing.
        dynamic_axes: {name: {axis: name of the size}} or {name: [axes]} for inputs and outputs. Unknown names are
            errors, and the dict stays as it is. Left out, the axes are dynamic in which a file's testcases differ, or
            which a trace leaves open.
        keep_initializers_as_inputs: list the weights as inputs, too, whose values are their defaults. None does so for
            an `operator_export_type` other than ONNX, and opsets below 9 in any case.
        custom_opsets: versions of other domains; 1 for those that are not named.
        enable_onnx_checker: let onnx.checker judge the model.
        use_external_data_format: the same as `external_data`.
        aten, export_raw_ir: older names of ONNX_ATEN and ONNX_FALLTHROUGH.
        kwargs: example keyword arguments.
        external_data: write weights to ``<f>.data``, as is done unasked from 2 GiB on.
        dynamic_shapes: the same as `dynamic_axes` as {input: {axis: Dim, name or None}}, or a list with an entry for
            every input.
        custom_translation_table: functions in ONNX Script that write operators of torch, by operator
            (``torch.ops.aten.gelu.default``).
        report: write what `Exported.report` says as a Markdown file, its name that of `f` with the ending ``.md``.
        optimize: simplify the graph of a torch module before it is written.
        verify: onnx.checker and ONNX Runtime must take the model, however long that takes, and what was given is called
            with the example; `Exported.verification` has the errors.
        profile: write where the time of the export went, as text with the ending ``.profile.txt``.
        dump_exported_program: write torch's program of a module, with the ending ``.pt2``.
        artifacts_dir: the folder of these three, made if there is none; by default that of `f`.
        export_modules_as_functions: only False: graphs hold no modules.

    Returns:
        the model. Testcases of a file, and for a torch module the example with torch's results, are written beside the
        path as ``NAME.test_data_set_N``.

    Raises:
        UsageError: parameters that contradict each other or cannot do what they ask for.
        UnsupportedError: operators that ONNX cannot express; all of them with their names and reasons.
        ProofError: the model gives other numbers than what was given.
        EngineError: `verify` or `enable_onnx_checker` found a fault.

    >>> import io, numpy as np, loadrun.onnx
    >>> file = io.BytesIO()
    >>> made = loadrun.onnx.export(lambda x: x * 2 + 1, np.ones((2, 3), "f4"), file, input_names=["x"],
    ...                            dynamic_axes={"x": {0: "n"}})
    >>> made.input_names, made.opset_version, len(file.getvalue()) == len(made.data)
    (['x'], 18, True)
    """
    if export_modules_as_functions:
        raise UsageError("export_modules_as_functions must be False: graphs have no modules")
    if opset_version is not None and (not isinstance(opset_version, int) or isinstance(opset_version, bool)):
        raise UsageError(f"opset_version must be a number, found {opset_version!r}")
    kind = OperatorExportTypes.ONNX_FALLTHROUGH if export_raw_ir else OperatorExportTypes.ONNX
    kind = OperatorExportTypes.ONNX_ATEN if aten else kind
    if operator_export_type is not None:
        kind = option("operator_export_type", OperatorExportTypes, operator_export_type)
    external = bool(external_data or use_external_data_format)
    check_target(f, external, report or profile or dump_exported_program)
    weights_are_inputs = _weights_are_inputs(keep_initializers_as_inputs, kind, opset_version)
    options = ExportOptions(
        option("training", TrainingMode, TrainingMode.EVAL if training is None else training),
        kind,
        do_constant_folding,
        optimize,
        check_names("input", input_names),
        dynamic_axes,
        dynamic_shapes,
        dict(custom_translation_table or {}),
        not (export_params and do_constant_folding) or weights_are_inputs,
        export_params
        and not (weights_are_inputs or custom_opsets or dynamic_axes or dynamic_shapes or verbose)
        and strip_doc_string is not False,
        opset_version,
    )
    how = WritingOptions(
        opset=opset_version,
        export_params=export_params,
        weights_are_inputs=weights_are_inputs,
        docs=bool(verbose) or strip_doc_string is False,
        opsets=check_opsets(custom_opsets),
    )
    watch = cProfile.Profile() if profile else None
    if watch is not None:
        watch.enable()
    source = read_source(model, args, kwargs, options)
    if len(options.input_names) > len(source.inputs) and not options.weights:
        source = read_source(model, args, kwargs, replace(options, weights=True))
    source.expect(example_outputs)
    if do_constant_folding and not holds_composites(source.graph):
        _simplify(source, optimize)
    exported = Exported(_written(source, options, check_names("output", output_names), how), source)
    _finish(exported, f, external, verify, export_params)
    if watch is not None:
        watch.disable()
    if enable_onnx_checker:
        check_model(str(f) if external or exported.is_large else exported.data)
    folder = None if artifacts_dir is None else Path(artifacts_dir)
    _write_artifacts(exported, f, folder, report, watch, dump_exported_program)
    if verbose:
        print(exported.report)
    return exported


def _weights_are_inputs(keep: bool | None, kind: OperatorExportTypes, opset: int | None) -> bool:
    if opset is not None and opset < 9:
        return True
    return kind is not OperatorExportTypes.ONNX if keep is None else bool(keep)


def _written(
    source: ExportSource, options: ExportOptions, output_names: Sequence[str], how: WritingOptions
) -> WrittenModel:
    """Settle names and sizes, and translate."""
    results = {n: v for n, v in source.outputs.items() if n not in source.reads}
    surplus = options.input_names[len(source.inputs) :]
    renamed = _names("input", [i.name for i in source.inputs], options.input_names[: len(source.inputs)])
    ends = _names("output", list(results), output_names)
    if holds_composites(source.graph):
        return _with_limits(source, rewritten(source, renamed, ends))
    shapes = options.shapes if source.sizes.asked is None else source.sizes.asked
    inputs, outputs = dynamic_sizes(source, options.axes, shapes, renamed, ends)
    others: list[dict[str, tuple[int, ...]]] = []
    if options.axes is None and options.shapes is None:
        inputs, others = sizes_of_testcases(source)
        inputs = {**{n: dict(axes) for n, axes in source.sizes.inputs.items()}, **inputs}
    request = Request(
        source.graph,
        [(i.name, renamed[i.name], i.dtype, i.shape) for i in source.inputs],
        {ends[n]: v for n, v in results.items()},
        source.examples,
        how,
        replace(
            source.sizes,
            inputs=inputs,
            outputs={ends[n]: axes for n, axes in outputs.items()},
            fitting=others,
        ),
        source.module,
        {n: source.outputs[n] for n in source.reads},
        {ends.get(n, n) for n in source.scalars},
    )
    written = write(request)
    written.outputs = {old: written.outputs[new] for old, new in ends.items()}
    _name_weights(source, written, surplus)
    return _with_limits(source, written)


def _with_limits(source: ExportSource, written: WrittenModel) -> WrittenModel:
    """Write down what the checks ask of the outputs."""
    limits = {written.outputs[n]: said for n, said in source.limits.items() if n in written.outputs}
    if limits:
        written.model.metadata = {**written.model.metadata, **metadata_of(limits)}
    return written


def _name_weights(source: ExportSource, written: WrittenModel, names: Sequence[str]) -> None:
    """Put the weights into the module's order, and give them names.

    Raises:
        UsageError: there are more names than weights, or one that something else has.
    """
    graph = written.model.graph
    place = {n: i for i, n in enumerate(source.module.weights)}
    written.weights.sort(key=lambda t: place.get(t.name.partition(":")[0], len(place)))
    listed = {t.name for t in written.weights}
    unlisted = [v for v in graph.inputs if v.name not in listed]
    ranked = {t.name: i for i, t in enumerate(written.weights)}
    graph.inputs = unlisted + sorted(
        (v for v in graph.inputs if v.name in listed), key=lambda v: ranked[v.name]
    )
    if len(names) > len(written.weights):
        raise UsageError(
            f"input_names has {len(names)} names more than the model's inputs ({', '.join(written.inputs.values())}), "
            f"for {len(written.weights)} weights ({', '.join(t.name for t in written.weights[:8])}); there is nothing "
            "else to name"
        )
    new = {t.name: n for t, n in zip(written.weights, names, strict=False) if n}
    taken = {v.name for v in [*unlisted, *graph.outputs]} | (listed - set(new))
    doubled = [n for i, n in enumerate(new.values()) if n in taken or n in [*new.values()][:i]]
    if doubled:
        raise UsageError(f"input_names has {doubled[0]!r} for a weight, which another value has already")
    rename(graph, new)
    for tensor in written.weights:
        tensor.name = new.get(tensor.name, tensor.name)


def _finish(exported: Exported, f: Target, external: bool, judged: bool, whole: bool) -> None:
    """Save, verify, and write the testcases."""
    path = Path(f) if isinstance(f, (str, os.PathLike)) else None
    beside = path is not None and (external or exported.is_large)
    large = exported.is_large
    proof = prove_export(
        exported.source, exported.written, None if large else exported.data, verify=judged and not large
    )
    if proof.left:
        model = exported.written.model
        model.metadata = {**model.metadata, NOT_PROVEN: "\n".join(proof.left)}
    if f is not None:
        if beside and not external:
            warnings.warn(f"the weights take more than 2 GiB: they are written to {path}.data", stacklevel=3)
        exported.save(f, external_data=external)
    if judged:
        if large:
            proof = prove_export(exported.source, exported.written, str(path), verify=True)
        exported.verification = proof.found
    _warn_of_nan(exported)
    if path is not None and len(exported.source.testcases) and whole:
        sets, left_out = write_data_sets(path, exported.source, exported.written)
        exported.test_data_sets, exported.left_out = sets, left_out
        if left_out:
            more = f", and {len(left_out) - 1} more" if len(left_out) > 1 else ""
            warnings.warn(
                f"{len(left_out)} of {sets + len(left_out)} testcases are not written, since the model does not take "
                f"them: {left_out[0]}{more}; name the sizes that change with dynamic_axes (--dynamic)",
                stacklevel=3,
            )


def _warn_of_nan(exported: Exported) -> None:
    """Say where testcases hold NaN that a node of the model loses, or finds, in ONNX Runtime."""
    nodes = sorted(_OTHERWISE_OF_NAN & {n.op_type for n in exported.written.model.graph.nodes})
    if not nodes:
        return
    floats = (v for case in exported.source.testcases for v in case.arrays.values() if v.dtype.kind == "f")
    if any(np.isnan(v).any() for v in floats):
        warnings.warn(
            f"testcases hold NaN, of which ONNX Runtime's {', '.join(nodes)} may make another value than the model "
            "(docs/howto-engines.md)",
            stacklevel=4,
        )


def _write_artifacts(
    exported: Exported,
    f: Target,
    folder: Path | None,
    report: bool,
    watch: cProfile.Profile | None,
    program: bool,
) -> None:
    """Write the files that tell of the export.

    Raises:
        UsageError: the folder cannot be made, or there is no program of torch's.
    """
    if not (report or watch is not None or program) or not isinstance(f, (str, os.PathLike)):
        return
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UsageError(f"the folder artifacts_dir {folder} cannot be made: {e.strerror or e}") from None
    path = Path(f) if folder is None else folder / Path(f).name
    if report:
        with replacing(path.with_suffix(".md")) as text:
            text.write((exported.report + "\n").encode())
    if watch is not None:
        lines = io.StringIO()
        pstats.Stats(watch, stream=lines).sort_stats("cumulative").print_stats(40)
        with replacing(path.with_suffix(".profile.txt")) as text:
            text.write(lines.getvalue().encode())
    if program:
        if exported.source.module.save_program is None:
            raise UsageError("dump_exported_program=True applies to torch modules only")
        with replacing(path.with_suffix(".pt2")) as file:
            exported.source.module.save_program(file)


def _names(kind: str, old_names: Sequence[str], new_names: Sequence[str]) -> dict[str, str]:
    """Map old names to new ones.

    Raises:
        UsageError: more names than there are, or one name twice.
    """
    if len(new_names) > len(old_names):
        raise UsageError(
            f"{kind}_names has {len(new_names)} names for {len(old_names)} {kind}s ({', '.join(old_names)}); "
            "there is nothing else to name"
        )
    names = {
        old: new_names[i] if i < len(new_names) and new_names[i] else old for i, old in enumerate(old_names)
    }
    doubled = sorted({n for n in names.values() if list(names.values()).count(n) > 1})
    if doubled:
        raise UsageError(f"two {kind}s cannot have the name {', '.join(map(repr, doubled))}")
    return names


def _simplify(source: ExportSource, optimize: bool) -> None:
    """Fold constants; in a trace, also normalization into weights. A file stays as it was optimized."""
    wanted = list(source.outputs)
    whole = source.graph
    order = [source.outputs[n] for n in wanted]
    if [id(v) for v in order] != [id(v) for v in whole.outputs]:
        return
    source.graph = inference.simplify(whole) if optimize and source.called else cleanup.fold_constants(whole)
    source.outputs = dict(zip(wanted, source.graph.outputs, strict=True))


def lowered(bundle: Bundle) -> Bundle:
    """Return a bundle of a part of an ONNX model with a graph of MegEngine's operators, by way of a file.

    Raises:
        LoadRunError: the part cannot be written, or not be expressed.
    """
    with tempfile.TemporaryDirectory(prefix="loadrun-", ignore_cleanup_errors=True) as folder:
        target = Path(folder) / "part.onnx"
        export(bundle, f=target)
        written = load(target, copy=True).lasting()
        # Nothing may be read from the folder later.
        source = replace(written.source, file=None, sized=None)
        return replace(written, path=bundle.path, testcases=[*written.testcases], source=source)
