"""`Traced`: a torch module or function as a recorded graph, called with torch tensors or ndarrays."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..dtypes import Array
from ..errors import InputError, TraceError, TraceWarning
from ..graph import Graph
from ..imperative import Tensor, TracedNumber
from ..jit.checking import error_between
from ..jit.dumping import Dumps
from ..jit.evaluate import Evaluator
from ..jit.options import TraceOptions
from ..jit.traced import Traced as Recording
from ..pack.capture import Recorder
from ..testcase import Bundle
from .complex import Complex, of_parts, parts
from .exporting import export, name_of_target, quiet, refusal, submodules, unsupported
from .interpret import Interpreter
from .registry import DATA_SIZED, UnsupportedCallError
from .values import ndarray, of_numpy, ten

__all__ = ["Traced"]


class Traced(Dumps):
    """A traced torch module: calls run its graph, `dump` writes it.

    Args:
        module: a module, a method of one, or a function of torch tensors.
        dynamic_shapes: which sizes may differ in later calls, see `loadrun.torch.trace`.
        opt_level: how far the graph is simplified, see `loadrun.jit.trace`.

    Attributes:
        module: what is traced.
        program: torch's exported program, once it is traced.
        notes: what is not as in torch: narrowed dtypes, buffers that the module changes.
        differences: the largest error between torch's outputs and the reference engine's, by output name; of the
            traced example, and of all testcases of the latest `dump`.
    """

    def __init__(self, module: Callable[..., Any], dynamic_shapes: Any = None, opt_level: int = 2) -> None:
        self.module = module
        self.original = owner_of(module)
        self.program: Any = None
        self.notes: list[str] = []
        self.differences: dict[str, float] = {}
        self._dynamic = dynamic_shapes
        self.options = TraceOptions(
            symbolic=True, capture_as_const=True, without_host=True, opt_level=opt_level
        )
        self._inner: Any = None
        self._example: list[Any] = []
        self._keys: list[str] = []
        self._by_key = False
        self._names: Any = None
        self._symbolic = False
        self._guards: Any = None
        self._interpreter: Any = None
        self._lock = threading.RLock()

    # What dumps look at

    @property
    def recording(self) -> Any:
        """The recorded graph, None before the first call."""
        return None if self._inner is None else self._inner.recording

    @property
    def outputs(self) -> Any:
        """What the recorded function returned; None before the first call."""
        return None if self._inner is None else self._inner.outputs

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """What torch computes: the module itself."""
        return self.module

    @property
    def bundle(self) -> Bundle:
        """The model as it would be dumped without testcases."""
        return Bundle(self.graph())

    def graph(self, arg_names: Any = None, output_names: Any = None) -> Graph:
        """The recorded graph with named inputs and outputs; see `loadrun.jit.Traced.graph`."""
        self._names = arg_names
        if output_names is None and not self._by_key:
            output_names = self._keys
        return super().graph(arg_names, output_names)

    def dump(self, file: Any, **options: Any) -> Any:
        """Write the graph as a .mge file; ground truth is what torch computes.

        Weights keep their parameters' names unless ``keep_param_name=False``.

        Args:
            file: a path, or an open binary file.
            options: those of `loadrun.jit.Traced.dump`.

        Returns:
            the counts that MegEngine returns.
        """
        self.differences = {}
        return super().dump(file, **{"keep_param_name": True, **options})

    def _truth(self, model: Bundle) -> Recorder:
        from .truth import TorchRecorder  # for start-up

        return TorchRecorder(model, self)

    # Calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the graph computes; the first call traces.

        Torch tensors give torch tensors of torch's dtypes, ndarrays alone give ndarrays.

        Raises:
            InputError: the arguments are not those of the traced call: another structure, dtype or fixed size.
            TraceError, UnsupportedError: the module cannot be traced.
        """
        args, kwargs = pytree.tree_map(_as_torch, (args, kwargs))
        with self._lock:
            if self.program is None:
                return self.record(args, kwargs)
            flat = self._flat(args, kwargs)
            self.check(flat)
            return self._rebuilt(self._run(flat))

    def record(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Export and record the module on an example, and compare what the reference engine gives with torch's.

        Returns:
            what the graph computes for the example.
        """
        module = as_module(self.module)
        shapes = _every_size(module, args, kwargs) if self._dynamic is True else self._dynamic
        with torch.no_grad():
            program = export(module, args, kwargs, shapes, follow_one=self._dynamic is True)
        problems = unsupported(program)
        if problems:
            raise refusal(module, problems)
        self.program = program
        try:
            outputs = self._recorded(module, args, kwargs)
        except BaseException:
            self.program = self._inner = None
            raise
        self._note(args, kwargs)
        self._example = self._flat(args, kwargs)
        truth = self.truth(self._example)
        self.compare(outputs, truth)
        return self._rebuilt(outputs)

    def check(self, flat: Sequence[Any]) -> None:
        """Refuse what the exported program does not hold for.

        Raises:
            InputError: sizes that torch took for fixed, or for related to one another, when it exported the module.
        """
        for key, value, fake in self._inputs(flat):
            if isinstance(value, torch.Tensor) and isinstance(fake, torch.Tensor):
                _check_tensor(key, value, fake)
        if not self._symbolic:
            return
        if self._guards is None:
            with quiet():
                self._guards = getattr(self.program.module(), "_guards_fn", lambda *_: None)
        try:
            self._guards(*flat)
        except AssertionError as error:
            raise InputError(
                f"the traced module does not hold for these sizes: {str(error).strip()[:300]}\n  when torch exported "
                "it, the code took this for granted (a size as a number in Python, or a dynamic axis of size 1)"
            ) from error

    def _run(self, flat: Sequence[Any]) -> list[Array]:
        found = self._inner(*self._feeds(flat))
        return [x.numpy() for x in (found.values() if self._by_key else found)]

    def values_of(self, flat: Sequence[Any]) -> dict[str, Array]:
        """The recorded values of the exported graph's nodes for the leaves of a call's arguments, by name."""
        evaluator = Evaluator()
        for key, tensor in zip(self.recording.args, self._feeds(flat), strict=True):
            evaluator.values[self.recording.args[key].id] = tensor._stored()
        for capture in self.recording.captures:
            evaluator.values[capture.var.id] = capture.value
        return {
            name: evaluator.value(var).reshape(()) if scalar else evaluator.value(var)
            for name, (var, scalar) in self._interpreter.variables.items()
        }

    def _recorded(self, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        interpreter = self._interpreter = Interpreter(self.program, module)
        self._keys = self._output_keys()

        self._by_key = isinstance(self._nested(range(len(self._user_outputs()))), dict)

        def function(*inputs: Tensor) -> Any:
            waiting = iter(inputs)
            given = {name: of_parts(fake, waiting) for name, fake in self._graph_inputs()}
            found = self._kept(interpreter.run({**self._numbers(), **given}))
            return dict(zip(self._keys, found, strict=True)) if self._by_key else tuple(found)

        self._symbolic = any(_is_dynamic(n) for m in submodules(self.program) for n in m.graph.nodes)
        self._inner = Recording(function, replace(self.options, symbolic_shape=self._symbolic))
        try:
            return self._run(self._flat(args, kwargs))
        except UnsupportedCallError as error:
            raise TraceError(str(error)) from error

    # Arguments

    def _user_inputs(self) -> list[Any]:
        """Specifications of what the caller passes, in order."""
        kinds = torch.export.graph_signature.InputKind
        return [s for s in self.program.graph_signature.input_specs if s.kind == kinds.USER_INPUT]

    def _flat(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call's arguments, in the order of the program's inputs.

        Raises:
            InputError: another structure than that of the traced call.
        """
        spec = self.program.call_spec.in_spec
        names = spec.child(1).context if hasattr(spec, "child") else spec.children_specs[1].context
        ordered = {k: kwargs[k] for k in names if k in kwargs}
        extra = [k for k in kwargs if k not in ordered]
        found, given = pytree.tree_flatten((tuple(args), ordered))
        if extra or given != spec:
            raise InputError(
                f"the traced call had arguments of another structure: {spec}, found {given}"
                + (f" and {', '.join(extra)}" if extra else "")
            )
        return found

    def _numbers(self) -> dict[str, Any]:
        """Arguments that are not tensors: what they were when the module was traced."""
        constant = torch.export.graph_signature.ConstantArgument
        return {s.arg.name: s.arg.value for s in self._user_inputs() if isinstance(s.arg, constant)}

    def _inputs(self, flat: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
        """Name, value and what torch knows of every leaf of a call's arguments."""
        fakes = self._fakes()
        for spec, value in zip(self._user_inputs(), flat, strict=True):
            yield spec.arg.name, value, fakes.get(spec.arg.name)

    def _graph_inputs(self) -> list[tuple[str, Any]]:
        """Name of every argument that is a value of the graph, and what torch knows of it."""
        fakes = self._fakes()
        return [(s.arg.name, fakes.get(s.arg.name)) for s in self._user_inputs() if not _is_constant(s)]

    def _fakes(self) -> dict[str, Any]:
        return {n.name: n.meta.get("val") for n in self.program.graph.nodes if n.op == "placeholder"}

    def _input_keys(self) -> list[str]:
        """Names of the graph's inputs: those of the arguments, two for a complex one."""
        return [key for name, fake in self._graph_inputs() for key, _ in parts(name, fake)]

    def _feeds(self, flat: Sequence[Any]) -> list[Tensor]:
        """Tensors that have the names of the program's inputs.

        Raises:
            InputError: an argument that the traced program cannot take.
        """
        found: list[Tensor] = []
        specs = {s.arg.name: s for s in self._user_inputs()}
        for name, value, fake in self._inputs(flat):
            spec = specs[name]
            if isinstance(value, torch.Tensor) and isinstance(fake, torch.Tensor):
                _check_tensor(name, value, fake)
                try:
                    found += [Tensor(ndarray(part), name=key) for key, part in parts(name, value)]
                except UnsupportedCallError as error:
                    raise InputError(f"argument {name!r}: {error}") from error
            elif isinstance(fake, torch.SymInt):
                found.append(Tensor(np.asarray(int(value), np.int32), name=name))
            elif hasattr(spec.arg, "value") and value != spec.arg.value:
                raise InputError(
                    f"argument {name!r} is {value!r}, but it was {spec.arg.value!r} when the module was traced, and "
                    "what is not a tensor is a constant of the graph; trace anew"
                )
        return found

    # Results

    def _user_outputs(self) -> list[Any]:
        kinds = torch.export.graph_signature.OutputKind
        return [s for s in self.program.graph_signature.output_specs if s.kind == kinds.USER_OUTPUT]

    def _output_keys(self) -> list[str]:
        """Names of the results that are values of the graph: their path in what the module returns."""
        leaves = self._user_outputs()
        marks = self._nested(range(len(leaves)))
        paths = {i: path for path, i in pytree.tree_flatten_with_path(marks)[0]}
        kept = [i for i, s in enumerate(leaves) if not _is_constant(s)]
        names = [_label(paths[i]) for i in kept]
        names = names if len(kept) != 1 or names[0] != "" else ["output"]
        fakes = self._output_fakes()
        return [key for i, name in zip(kept, names, strict=True) for key, _ in parts(name, fakes[i])]

    def _output_fakes(self) -> list[Any]:
        """What torch knows of each result."""
        by_name = {n.name: n.meta.get("val") for n in self.program.graph.nodes}
        return [by_name.get(getattr(s.arg, "name", None)) for s in self._user_outputs()]

    def _nested(self, leaves: Sequence[Any]) -> Any:
        """Leaves in the structure of what the module returns."""
        return pytree.tree_unflatten(list(leaves), self.program.call_spec.out_spec)

    def _kept(self, found: Sequence[Any]) -> list[Any]:
        """The user's results among what the output node lists, as tensors."""
        specs = self.program.graph_signature.output_specs
        kinds = torch.export.graph_signature.OutputKind
        kept = []
        for spec, value in zip(specs, found, strict=True):
            if spec.kind != kinds.USER_OUTPUT or _is_constant(spec):
                continue
            if isinstance(value, Complex):
                kept += [value.real, ten(value.imag)]
            else:
                kept.append(value if isinstance(value, (Tensor, TracedNumber)) else Tensor(np.asarray(value)))
        return kept

    def _rebuilt(self, outputs: Sequence[Array]) -> Any:
        """Results in the structure and dtypes that the module itself gives."""
        values = iter(outputs)
        leaves = []
        for spec, fake in zip(self._user_outputs(), self._output_fakes(), strict=True):
            if _is_constant(spec):
                leaves.append(getattr(spec.arg, "value", None))
                continue
            value = of_parts(fake, values)
            if isinstance(value, Complex):
                value = value.real + 1j * value.imag
            leaves.append(of_numpy(value, fake.dtype) if isinstance(fake, torch.Tensor) else value.item())
        return self._nested(leaves)

    # What torch computes

    def truth(self, flat: Sequence[Any]) -> list[Array]:
        """Torch's own results for the leaves of a call's arguments, as arrays of the graph's dtypes."""
        from .truth import outputs_of  # for start-up

        return outputs_of(self, flat)

    def compare(self, found: Sequence[Array], truth: Sequence[Array]) -> None:
        """Keep the largest error of every output."""
        for name, a, b in zip(self._keys, found, truth, strict=True):
            error = error_between(b, a)
            self.differences[name] = max(error, self.differences.get(name, 0.0))

    def _note(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Say what is not as in torch."""
        wide: dict[torch.dtype, list[str]] = {}
        specs = self.program.graph_signature.input_specs
        fakes = self._fakes()
        for spec in specs:
            fake = fakes.get(spec.arg.name)
            if isinstance(fake, torch.Tensor) and fake.dtype in _NARROWED:
                wide.setdefault(fake.dtype, []).append(spec.target or spec.arg.name)
        for dtype, names in wide.items():
            self.notes.append(f"{str(dtype)[6:]} is {_NARROWED[dtype]} in the graph: {', '.join(names)}")
        lossy = [d for d in wide if d not in (torch.int64, torch.complex64)]
        if lossy:
            warnings.warn(
                f"{', '.join(str(d)[6:] for d in lossy)} is computed as float32, so that results differ by rounding",
                TraceWarning,
                stacklevel=5,
            )
        kinds = torch.export.graph_signature.OutputKind
        changed = [
            s.target for s in self.program.graph_signature.output_specs if s.kind == kinds.BUFFER_MUTATION
        ]
        if changed:
            self.notes.append(
                f"the module changes its buffers {', '.join(changed)}; the graph has their first values"
            )
            warnings.warn(
                f"the module changes its buffers {', '.join(changed)} in every call, which the graph does not; was "
                ".eval() forgotten?",
                TraceWarning,
                stacklevel=5,
            )


_NARROWED = {
    torch.int64: "int32",
    torch.float64: "float32",
    torch.bfloat16: "float32",
    torch.complex64: "two tensors of float32",
    torch.complex128: "two tensors of float32",
}


class _Function(torch.nn.Module):  # type: ignore[misc]
    """A function, or a method of a module, as a module that torch can export."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = owner_of(function)
        self._loadrun_name = f"the function {getattr(function, '__qualname__', function)}"
        if isinstance(owner, torch.nn.Module):
            # Its parameters are found under their own names.
            self.__dict__.update({k: owner.__dict__[k] for k in ("_parameters", "_buffers", "_modules")})

        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        # Torch pairs dynamic sizes with the names of the parameters.
        forward.__signature__ = _signature(function)  # type: ignore[attr-defined]
        self.forward = forward


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:
        return inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])


def owner_of(function: Any) -> Any:
    """The module of a method, or the value itself."""
    return getattr(function, "__self__", function)


def as_module(function: Any) -> Any:
    """A module, or a method or function as one."""
    if isinstance(function, torch.nn.Module):
        return function
    if getattr(function, "__name__", "") == "forward" and isinstance(owner_of(function), torch.nn.Module):
        return owner_of(function)
    return _Function(function)


def _as_torch(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return torch.from_numpy(np.array(value))
    return torch.from_numpy(np.array(value.numpy())) if isinstance(value, Tensor) else value


def _every_size(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Dynamic shapes that let torch find out which sizes may differ, in the structure of what `forward` is bound to."""

    def auto(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            # A size of 0 or 1 is fixed, but for that of a batch of one.
            dim = torch.export.Dim
            return {
                i: dim.AUTO if n > 1 or (n == 1 and i == 0) else dim.STATIC for i, n in enumerate(leaf.shape)
            }
        return None

    bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    return {name: pytree.tree_map(auto, value) for name, value in bound.items()}


def _is_dynamic(node: Any) -> bool:
    """Whether a result has a size that torch does not know as a number, or its lowering takes sizes from data."""

    def symbolic(leaf: Any) -> bool:
        if isinstance(leaf, torch.Tensor):
            return any(not isinstance(n, int) for n in leaf.shape)
        return isinstance(leaf, torch.SymInt)

    known = node.op != "call_function" or name_of_target(node.target) not in DATA_SIZED
    return not known or any(symbolic(leaf) for leaf in pytree.tree_leaves(node.meta.get("val")))


def _is_constant(spec: Any) -> bool:
    return isinstance(spec.arg, torch.export.graph_signature.ConstantArgument)


def _label(path: Sequence[Any]) -> str:
    """A path in nested results as a name: ``z``, ``k.0``; positions alone are ``output_0``."""
    parts = [str(getattr(p, "key", getattr(p, "idx", getattr(p, "name", p)))) for p in path]
    if not parts:
        return ""
    found = ".".join(parts)
    return f"output_{found}" if found[0].isdigit() else found


def _check_tensor(name: str, value: torch.Tensor, fake: torch.Tensor) -> None:
    if value.dtype != fake.dtype:
        raise InputError(
            f"argument {name!r} is {value.dtype}, but it was {fake.dtype} when the module was traced"
        )
    fits = value.ndim == fake.ndim and all(
        not isinstance(n, int) or n == m for n, m in zip(fake.shape, value.shape, strict=True)
    )
    if not fits:
        raise InputError(
            f"argument {name!r} has the shape {[*value.shape]}, but the module was traced for "
            f"[{', '.join(map(str, fake.shape))}]; "
            "name the sizes that may differ in dynamic_shapes"
        )
