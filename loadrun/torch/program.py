"""Files of `torch.export` (.pt2): written with expected values and checks beside the program, read as bundles."""

from __future__ import annotations

import io
import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..base.errors import EngineError, FormatError, InputError, LoadRunError, TraceError, UsageError
from ..base.writing import replacing, temporary
from ..compare.tolerances import MAXERR, default_maxerr, error_between, magnitude
from ..graph import Graph, Header, StoredTensor
from ..graph.dtypes import Array, DType, array_dtype
from ..graph.params import Host2DeviceCopy
from ..inputs.kinds import shaken
from ..inputs.lists import items_of
from ..testcase import EXPECT, Bundle, FileFacts, ModelSource, SourceFile, Testcase
from ..tracing.dumping import EXAMPLE
from ..verify.pack.capture import embed, tolerances
from ..verify.pack.noise import WIDEST, round_up
from .archive import RecordedCases, append_cases, read_cases, read_program
from .call import IN_NUMPY, no_numbers, of_numpy
from .during_export import PaddedSequences, WritesToPlaces
from .exporting import callable_of, not_exported
from .extra import quiet
from .guards import refusal_of_sizes
from .modules import as_module, as_torch, call_of, named_alone, refuse_no_numbers, without_observers
from .open_axes import every_size
from .signature import Signature
from .traced import TorchTrace


@dataclass(eq=False)
class ProgramFile(SourceFile):
    """An exported program as it is, whose outputs are compared by MegEngine's measure."""

    format = "pt2"
    program: Any = None
    limits: Mapping[str, float] = field(default_factory=dict)

    def maxerr(self, name: str) -> float:
        """Return the tolerance that was saved with the program."""
        return self.limits.get(name, MAXERR)


def save(
    module: Any,
    path: str | os.PathLike[str],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    cases: Sequence[tuple[Any, ...]] = (),
    maxerr: float | Mapping[str, float] | None = None,
    dynamic_shapes: Any = None,
    input_data: Any = None,
) -> None:
    """Write a program as `torch.export.save` does, with what torch computes and the tolerances in the same archive.

    `torch.export.load` reads the file as any other; ``loadrun FILE.pt2`` replays it. A file ``NAME.mge`` is a dump of
    the traced module (`loadrun.torch.trace`) instead, whose expected values are torch's as well.

    Args:
        module: a `torch.nn.Module`, a function of tensors, or a `torch.export.ExportedProgram`.
        path: the file, ``NAME.pt2`` or ``NAME.mge``.
        args, kwargs: the example that the module is exported with, tensors or arrays; one that is alone needs no tuple,
            and a dict alone is one argument, as for `torch.jit.trace`. An exported program brings its own.
        cases: further arguments, a tuple for each testcase.
        maxerr: tolerance of the outputs by MegEngine's measure, one or by name, by default 1e-4 of the output's scale,
            more where rounding alone comes near it (with a warning); integers must be equal.
        dynamic_shapes: as `torch.export.export` takes it; True lets torch find out for every size.
        input_data: the arguments of each testcase: a tensor or array, a tuple of positional ones, a dict of those by
            keyword, or ``"example"``; a .mge file also takes texts such as ``#rand(0,1)``. None: the example, `cases`.

    Raises:
        TraceError: torch cannot export the module.
        UsageError: arguments that make no sense.
        EngineError: the program fails on a case.

    >>> import os, tempfile
    >>> import loadrun, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = os.path.join(folder, "net.pt2")
    ...     save(torch.nn.ReLU(), file, (torch.tensor([-1.0, 2.0]),))
    ...     [result.verdict.value for result in loadrun.Runner(file).replay()]
    ['pass']
    """
    data = [EXAMPLE, *cases] if input_data is None else items_of(input_data)
    args, _ = call_of(args if isinstance(args, (tuple, list)) else (args,))
    kwargs = pytree.tree_map(as_torch, dict(kwargs or {}))
    refuse_no_numbers(args, kwargs)
    if isinstance(path, (str, os.PathLike)) and not str(path).lower().endswith((".mge", ".pt2")):
        raise UsageError(f"the file must be called NAME.pt2 or NAME.mge, found {os.fspath(path)}")
    if str(path).lower().endswith(".mge"):
        traced = TorchTrace(module, dynamic_shapes)
        if isinstance(module, torch.export.ExportedProgram):
            args, kwargs = module.example_inputs or ((), {})
        traced.record(args, kwargs)
        traced.dump(path, input_data=data, maxerr=maxerr)
        return
    program = module
    if not isinstance(module, torch.export.ExportedProgram):
        module = named_alone(as_module(without_observers(module)), kwargs)
        shapes = (
            every_size(frozenset(), module, args, kwargs)
            if dynamic_shapes is True
            else dynamic_shapes or None
        )
        with quiet(), PaddedSequences(), WritesToPlaces():
            try:
                program = torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
            except Exception as e:
                raise not_exported(module, e) from e
    elif args or kwargs or dynamic_shapes is not None:
        raise UsageError(
            "an exported program has its own example; args, kwargs and dynamic_shapes apply to modules"
        )
    signature = Signature(program)
    if texts := [x for x in data if isinstance(x, str) and x != EXAMPLE]:
        raise UsageError(f"the data of a .pt2 file must be tensors or {EXAMPLE!r}, found {texts[0]!r:.80}")
    calls = [program.example_inputs if isinstance(x, str) else call_of(x) for x in data]
    values = [values_of_call(signature, a, k) for a, k in calls]
    names = signature.output_names()
    tolerances(maxerr, names)
    limits = dict(maxerr) if isinstance(maxerr, Mapping) else {} if maxerr is None else {"": maxerr}
    if maxerr is None and calls:
        limits = _widened(signature, calls[0], values[0])
    with temporary() as file:
        try:
            with quiet():
                torch.export.save(program, file)
        except Exception as e:
            raise TraceError(
                f"torch cannot write the program: {_ends(str(e))}; a .mge file may hold it"
            ) from e
        append_cases(file, values, {"maxerr": limits})
        file.seek(0)
        with replacing(path) as target:
            shutil.copyfileobj(file, target)


def _ends(text: str) -> str:
    """Leave the traceback out of torch's text."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[0][:300] if len(lines) < 3 else f"{lines[0][:300]}: {lines[-1][:300]}"


def _widened(signature: Signature, call: Any, values: Mapping[str, Array]) -> dict[str, float]:
    """Return tolerances of float32 outputs that rounding of the inputs alone brings near the usual one."""
    args, kwargs = call
    moved = values_of_call(signature, *pytree.tree_map(_shaken, (args, dict(kwargs))))
    limits = {}
    for name in signature.output_names():
        old, new = values[name + EXPECT], moved[name + EXPECT]
        if old.dtype != np.float32:
            continue
        usual = default_maxerr(magnitude(old))
        if usual / 4 < (error := error_between(old, new)) <= WIDEST:
            limits[name] = round_up(error)
            warnings.warn(
                f"the tolerance of {name!r} is {limits[name]:g} instead of {usual:g}: 10 times the noise of "
                f"{error:.2g} from the last digits of the inputs, rounded up",
                stacklevel=3,
            )
    return limits


def values_of_call(
    signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Array]:
    """Return the inputs and torch's results by name, in torch's types."""
    flat = signature.leaves(args, kwargs)
    for name, value, fake in signature.inputs(flat):
        if isinstance(fake, torch.Tensor) and not isinstance(value, torch.Tensor):
            raise InputError(f"the input {name!r} must be a tensor, found {value!r:.80}")
    inputs = _input_arrays(signature, flat)
    got = run_program(callable_of(signature.program), signature, args, kwargs)
    return {**inputs, **{n + EXPECT: v for n, v in got.items()}}


def run_program(
    module: Callable[..., Any], signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Array]:
    """Run a program and return its results by name, in torch's types.

    Raises:
        EngineError: it fails.
    """
    try:
        with torch.no_grad(), quiet():
            leaves = pytree.tree_leaves(module(*args, **kwargs))
    except Exception as e:
        raise EngineError(f"torch fails: {type(e).__name__}: {str(e).strip()[:300]}") from e
    kept = signature.of_graph(leaves)
    for why in (no_numbers(v) for v in kept if isinstance(v, torch.Tensor)):
        if why:
            raise EngineError(f"torch's result is {why}")
    return dict(zip(signature.output_names(), map(_array, kept), strict=True))


def _array(value: torch.Tensor | float) -> Array:
    """Return a tensor or number as an array, in float32 for types that numpy lacks."""
    tensor = torch.as_tensor(value).detach().cpu().resolve_neg()
    return np.array((tensor if tensor.dtype in IN_NUMPY else tensor.float()).numpy())


def _input_arrays(signature: Signature, flat: Sequence[Any]) -> dict[str, Array]:
    """Return the tensors and numbers among the leaves of a call's arguments as arrays, by name."""
    leaves = ((name, value) for name, value, _ in signature.inputs(flat))
    return {name: _array(v) for name, v in leaves if isinstance(v, (torch.Tensor, int, float))}


def arguments(signature: Signature, arrays: Mapping[str, Array]) -> tuple[Any, Any]:
    """Build the arguments of a program from arrays by name.

    Raises:
        InputError: one is missing.
    """
    numbers = signature.numbers()
    flat: list[Any] = []
    for spec in signature.user_inputs():
        name = spec.arg.name
        if name in numbers:
            flat.append(numbers[name])
            continue
        fake = signature.fakes()[name]
        if not isinstance(fake, torch.Tensor):
            flat.append(arrays[name].reshape(-1)[0].item())
            continue
        flat.append(of_numpy(arrays[name], fake.dtype))
    args, kwargs = pytree.tree_unflatten(flat, signature.program.call_spec.in_spec)
    return args, kwargs


def recorded_cases(path: Any) -> tuple[Any, list[Mapping[str, Array]] | None]:
    """Read the program of a .pt2 file, and the inputs and expected values that were saved with it, if there are any.

    Raises:
        FormatError: it is no such file.
    """
    program, kept = _opened(os.fspath(path), os.fspath(path))
    return program, None if kept is None else [*kept.cases]


def _opened(file: str | io.BytesIO, path: str) -> tuple[Any, RecordedCases | None]:
    try:
        with quiet():
            program = read_program(file)
        return program, read_cases(file)
    except FormatError as e:
        e.path = path
        raise


def load_program(data: memoryview, path: str, *, native: bool = False) -> Bundle:
    """Read a file that `torch.export.save` or `save` wrote.

    Args:
        data: the bytes of the file.
        path: where they come from.
        native: whether torch is to run the program: of one that cannot be expressed the bundle has inputs, testcases
            and the reason.

    Raises:
        FormatError: it is no such file.
        UnsupportedError: operators cannot be expressed. Not where `native` is true.
    """
    file = path if os.path.isfile(path) else io.BytesIO(data)
    program, kept = _opened(file, path)
    args, kwargs = program.example_inputs or ((), {})
    signature = Signature(program)
    cases = kept.cases if kept is not None else [_input_arrays(signature, signature.leaves(args, kwargs))]
    limits = kept.limits if kept is not None else {}
    try:
        bundle = _read(program, args, kwargs, cases, limits)
    except LoadRunError as e:
        if not native or isinstance(e, (InputError, UsageError)):
            raise
        bundle = _unread(signature, cases, " ".join(str(e).split()))
    bundle.path, bundle.facts.size, bundle.source.refuses = (
        path,
        len(data),
        refusal_of_sizes(program, signature),
    )
    if kept is not None and kept.accepted:
        bundle.record = {"record": 1, "accepted": kept.accepted}
    results = {n: _dtype(fake) for n, fake in signature.graph_outputs()}
    bundle.testcases = [_typed(case, results) for case in bundle.testcases]
    fakes = signature.graph_inputs()
    bundle.source.file = ProgramFile(
        path,
        bundle.graph,
        signature.input_names(),
        results,
        frozenset(n for n, fake in fakes if not getattr(fake, "shape", ())),
        sum(n.op == "call_function" for n in program.graph.nodes),
        program=program,
        limits=_limits(bundle, cases, limits),
    )
    return bundle


def _typed(case: Testcase, results: Mapping[str, DType | None]) -> Testcase:
    """Return a testcase in which expected values of another data type than the program's fail."""
    faults = {}
    for name, value in (case.file_values or {}).items():
        dtype = results.get(name.removesuffix(EXPECT)) if name.endswith(EXPECT) else None
        if dtype is not None and isinstance(value, np.ndarray) and value.dtype != dtype.np:
            kind = array_dtype(value).spelling
            faults[name.removesuffix(EXPECT)] = (
                f"its expected value holds {kind}, but the program has {dtype.spelling}"
            )
    return replace(case, faults=faults).with_file_values(case.file_values) if faults else case


def _dtype(fake: Any) -> DType | None:
    """Return the data type of a result; that of a number follows from its value."""
    if not isinstance(fake, torch.Tensor):
        return None
    if fake.dtype is torch.bfloat16:
        return DType("BFloat16")
    kind = fake.dtype if fake.dtype in IN_NUMPY else torch.float32
    return array_dtype(torch.empty(0, dtype=kind).numpy())


def _limits(
    bundle: Bundle, cases: Sequence[Mapping[str, Array]], tolerances: Mapping[str, float]
) -> dict[str, float]:
    """Return the tolerance of every output: that of the graph's check, or its default."""
    limits = {}
    for name, value in (cases[0] if cases else {}).items():
        if name.endswith(EXPECT):
            output = name.removesuffix(EXPECT)
            plain = 0.0 if value.dtype.kind in "iub" else default_maxerr(magnitude(value))
            limits[output] = tolerances.get(output, tolerances.get("", plain) if plain else plain)
    return {**limits, **{c.name: c.maxerr for c in bundle.checks}}


def _read(
    program: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    cases: Sequence[dict[str, Array]],
    limits: Mapping[str, float],
) -> Bundle:
    """Build the graph of a program, with checks if there are expected values."""
    traced = TorchTrace(callable_of(program), program=program, check=None)
    traced.record(args, kwargs)
    signature = traced.signature
    graph = traced.graph(signature.input_names())
    graph.header.magic = f"torch.export {torch.__version__}"
    fed = _input_arrays(signature, signature.leaves(args, kwargs))
    _add_inputs(graph, fed)
    bundle = Bundle(graph, facts=FileFacts(warnings=list(traced.notes)))
    dtypes = {v.name or "": v.owner.tensors[0].dtype for v in graph.inputs}
    dtypes.update((n + EXPECT, v.dtype or DType("Float32")) for n, v in bundle.outputs.items())
    testcases = [_narrowed(case, dtypes) for case in cases]
    if testcases and all(n + EXPECT in testcases[0].arrays for n in bundle.outputs):
        warnings = bundle.warnings
        bundle = embed(bundle, testcases, dict(limits), warn=warnings.append)
        bundle.facts.warnings, bundle.facts.is_container = warnings, False
        _add_inputs(bundle.graph, fed)
        for kept, case in zip(bundle.testcases, testcases, strict=True):
            unread = {n: a for n, a in case.arrays.items() if n in fed and n not in kept.arrays}
            kept.arrays.update(unread)
            kept.dtypes.update((n, case.dtypes[n]) for n in unread)
    else:
        bundle.testcases = testcases
    bundle.testcases = [
        c.with_file_values(file_values) for c, file_values in zip(bundle.testcases, cases, strict=True)
    ]
    ports = [*signature.graph_inputs(), *signature.graph_outputs()]
    bundle.scalars = frozenset(n for n, fake in ports if not getattr(fake, "shape", ()))
    return bundle


def _shaken(x: Any) -> Any:
    """Return numbers with other last digits."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return x
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    return torch.from_numpy(shaken(wide.numpy(), torch.finfo(x.dtype).eps)).to(x.dtype)


def _narrowed(case: Mapping[str, Array], dtypes: Mapping[str, DType]) -> Testcase:
    """Convert a testcase to the graph's types.

    Raises:
        InputError: an integer does not fit, or the file holds no numbers.
    """
    arrays = {}
    for name, dtype in dtypes.items():
        if name not in case:
            continue
        if case[name].dtype.kind not in "biufc":
            raise InputError(f"{name!r} is {case[name].dtype}, expected {dtype.spelling}")
        array = np.atleast_1d(case[name].astype(dtype.np))
        if array.dtype.kind == "i" and not bool((array == np.atleast_1d(case[name])).all()):
            raise InputError(f"{name!r} holds integers that do not fit {dtype.spelling}")
        arrays[name] = array
    return Testcase(arrays, {n: dtypes[n] for n in arrays})


def _add_inputs(graph: Graph, examples: Mapping[str, Array]) -> None:
    """Add the inputs that nothing reads, so that they can be fed all the same."""
    read = {v.name for v in graph.inputs}
    for name, value in examples.items():
        if name in read:
            continue
        tensor = StoredTensor(array_dtype(value), value.shape or (1,), name)
        graph.add("Host2DeviceCopy", Host2DeviceCopy(), names=[name], tensors=[tensor])


def _unread(signature: Signature, cases: Sequence[dict[str, Array]], why: str) -> Bundle:
    """Build a bundle for a program that cannot be expressed: its inputs and its data."""
    graph = Graph(header=Header(f"torch.export {torch.__version__}"))
    if cases:
        _add_inputs(graph, {n: cases[0][n] for n in signature.input_names() if n in cases[0]})
    bundle = Bundle(graph, source=ModelSource(refusal=why))
    bundle.warnings.append(f"not run by the reference engine: {why}")
    bundle.testcases = [Testcase({}).with_file_values(case) for case in cases]
    return bundle
