"""The signature of an exported program: calls in the caller's form, and as the graph's lists of tensors."""

import inspect
from collections import OrderedDict, namedtuple
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..base.errors import InputError, UnsupportedError
from ..graph.dtypes import Array
from ..tensors import Tensor, TracedInt, TracedNumber
from ..tensors.switches import exact_arithmetic
from .call import NO_COMPLEX, as_tensor, is_complex, ndarray, of_numpy
from .registry import UnsupportedCallError


class Signature:
    """Conversion between callers' nested arguments and results and the graph's lists of tensors.

    A leaf is a tensor or a number in nested arguments. Leaves that are not tensors are constants of the program.

    Args:
        program: what torch exported.
        parameters: the parameters of the traced function, by which a call in another form is understood.
    """

    def __init__(self, program: Any, parameters: inspect.Signature | None = None) -> None:
        self.program = program
        self.parameters = parameters
        results = [(f"result {i}", fake) for i, fake in enumerate(self.output_fakes())]
        for name, fake in [*((f"argument {n!r}", fake) for n, fake in self.graph_inputs()), *results]:
            if is_complex(fake):
                raise UnsupportedError(f"{name} is complex: {NO_COMPLEX}")

    def user_inputs(self) -> list[Any]:
        """Return the specifications of the caller's arguments, in order."""
        kinds = torch.export.graph_signature.InputKind
        return [s for s in self.program.graph_signature.input_specs if s.kind == kinds.USER_INPUT]

    def leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Flatten a call's arguments to leaves, in the order of the program's inputs.

        Raises:
            InputError: another structure than that of the traced call.
        """
        spec = self.program.call_spec.in_spec
        places, named = _children(spec)
        count, names = places.num_children, named.context
        args, kwargs = self._as_traced(tuple(args), kwargs, count, names)
        ordered = {k: kwargs[k] for k in names if k in kwargs}
        extra = [k for k in kwargs if k not in ordered]
        leaves = _flattened((args, ordered), spec)
        if extra or leaves is None:
            raise InputError(
                "the arguments differ in structure from those of the traced call: expected "
                f"{_outline(spec)}, found {_outline(pytree.tree_structure((args, ordered)))}"
                + (f" and {', '.join(map(str, extra))}" if extra else "")
            )
        return leaves

    def _as_traced(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], count: int, names: Sequence[str]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Arguments by place and by name as the traced call had them, where they can be given so."""
        if self.parameters is None or (len(args) == count and set(kwargs) == set(names)):
            return args, kwargs
        try:
            bound = self.parameters.bind(*args, **kwargs)
        except TypeError:
            return args, kwargs
        passed = set(bound.arguments)
        bound.apply_defaults()
        arguments = {**bound.arguments}
        kinds = {p.kind for p in self.parameters.parameters.values()}
        if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            return args, kwargs
        places, rest = list(arguments)[:count], list(arguments)[count:]
        left = {n: arguments[n] for n in rest if n in names or n in passed}
        return tuple(arguments[n] for n in places), left

    def numbers(self) -> dict[str, Any]:
        """Return the arguments that are not tensors, with their values when the module was traced."""
        return {s.arg.name: s.arg.value for s in self.user_inputs() if _is_constant(s)}

    def inputs(self, flat: Sequence[Any]) -> Iterator[tuple[str, Any, Any]]:
        """Yield name, value and torch's fake value of every leaf of a call's arguments."""
        fakes = self.fakes()
        for spec, value in zip(self.user_inputs(), flat, strict=True):
            yield spec.arg.name, value, fakes.get(spec.arg.name)

    def graph_inputs(self) -> list[tuple[str, Any]]:
        """Pair the name of every argument that is a value of the graph with torch's fake value of it."""
        fakes = self.fakes()
        return [(s.arg.name, fakes.get(s.arg.name)) for s in self.user_inputs() if not _is_constant(s)]

    def fakes(self) -> dict[str, Any]:
        """Return torch's fake value of every input of the program, by name."""
        return {n.name: n.meta.get("val") for n in self.program.graph.nodes if n.op == "placeholder"}

    def input_names(self) -> list[str]:
        """Name the graph's inputs: as the arguments."""
        return [name for name, _ in self.graph_inputs()]

    def input_shapes(self) -> list[tuple[int | None, ...]]:
        """List the shapes of the graph's inputs, None for sizes that may differ."""
        return [tuple(map(fixed_size, getattr(fake, "shape", ()))) for _, fake in self.graph_inputs()]

    def feeds(self, flat: Sequence[Any]) -> list[Tensor]:
        """Build tensors with the names of the program's inputs.

        Raises:
            InputError: an argument that the traced program cannot take.
        """
        tensors: list[Tensor] = []
        constants = self.numbers()
        for name, value, fake in self.inputs(flat):
            if isinstance(value, torch.Tensor) and isinstance(fake, torch.Tensor):
                _check_tensor(name, value, fake)
                try:
                    with exact_arithmetic():
                        array = ndarray(value)
                        tensors.append(Tensor(array, array.dtype, name=name))
                except UnsupportedCallError as error:
                    raise InputError(f"argument {name!r}: {error}") from error
            elif isinstance(fake, torch.SymInt):
                tensors.append(Tensor(np.asarray(int(value), np.int32), name=name))
            elif name in constants and not _same_constant(value, constants[name]):
                raise InputError(
                    f"argument {name!r} is {value!r}, but it was {constants[name]!r} when the module was traced, and "
                    "what is not a tensor is a constant of the graph; trace again"
                )
        return tensors

    def user_outputs(self) -> list[Any]:
        """Return the specifications of the caller's results, in order."""
        kinds = torch.export.graph_signature.OutputKind
        return [s for s in self.program.graph_signature.output_specs if s.kind == kinds.USER_OUTPUT]

    def output_names(self) -> list[str]:
        """Name the results that are values of the graph: their path in what the module returns."""
        # Caches of transformers are put together from tensors alone.
        marks = [torch.empty([1] * getattr(fake, "ndim", 0)) for fake in self.output_fakes()]
        paths = [path for path, _ in pytree.tree_flatten_with_path(self.nested(marks))[0]]
        names = [_label(path) for path in self.of_graph(paths)]
        return names if names != [""] else ["output"]

    def graph_outputs(self) -> list[tuple[str, Any]]:
        """Pair the name of every result that is a value of the graph with torch's fake value of it."""
        return list(zip(self.output_names(), self.of_graph(self.output_fakes()), strict=True))

    def of_graph(self, leaves: Sequence[Any]) -> list[Any]:
        """Select from what stands for each result that of the values of the graph, leaving out constants."""
        return [v for s, v in zip(self.user_outputs(), leaves, strict=True) if not _is_constant(s)]

    def output_fakes(self) -> list[Any]:
        """Return torch's fake value of each result."""
        by_name = {n.name: n.meta.get("val") for n in self.program.graph.nodes}
        return [by_name.get(getattr(s.arg, "name", None)) for s in self.user_outputs()]

    def nested(self, leaves: Sequence[Any]) -> Any:
        """Arrange leaves in the structure of the module's result."""
        return pytree.tree_unflatten(list(leaves), self.program.call_spec.out_spec)

    def kept(self, results: Sequence[Any]) -> list[Any]:
        """Select the user's results from those that the output node lists, as tensors."""
        specs = self.program.graph_signature.output_specs
        user = torch.export.graph_signature.OutputKind.USER_OUTPUT
        kept: list[Any] = []
        for value in self.of_graph([v for s, v in zip(specs, results, strict=True) if s.kind == user]):
            if type(value) is TracedInt:
                # Torch's own exporter gives sizes in 64 bits, too.
                kept.append(as_tensor(value, "int64"))
            else:
                kept.append(value if isinstance(value, (Tensor, TracedNumber)) else Tensor(np.asarray(value)))
        return kept

    def rebuilt(self, outputs: Sequence[Array]) -> Any:
        """Convert results to the structure and dtypes that the module itself returns."""
        values = iter(outputs)
        leaves = []
        for spec, fake in zip(self.user_outputs(), self.output_fakes(), strict=True):
            if _is_constant(spec):
                leaves.append(getattr(spec.arg, "value", None))
                continue
            value = next(values)
            leaves.append(of_numpy(value, fake.dtype) if isinstance(fake, torch.Tensor) else value.item())
        return self.nested(leaves)

    def same_kinds(self, flat: Sequence[Any]) -> bool:
        """Return whether the tensors of a call's arguments have the dtypes and numbers of axes of the traced ones."""
        return all(
            isinstance(x, torch.Tensor) and x.dtype == fake.dtype and x.ndim == fake.ndim
            for _, x, fake in self.inputs(flat)
            if isinstance(fake, torch.Tensor)
        )

    def check(self, flat: Sequence[Any]) -> None:
        """Refuse leaves that are not what the program was exported for.

        Raises:
            InputError: another dtype, or another size where it is fixed.
        """
        for key, value, fake in self.inputs(flat):
            if isinstance(fake, torch.Tensor):
                _check_tensor(key, value, fake)


def fixed_size(n: Any) -> int | None:
    """Return a size as a number, None where it may differ; one that torch found to be fixed may still be a symbol."""
    if isinstance(n, int):
        return n
    return int(n.node.expr) if n.node.expr.is_number else None


def open_sizes_in(fake: Any) -> Iterator[tuple[int, Any]]:
    """Yield the axes of one of torch's fake values whose sizes are symbols, and its expressions for these sizes."""
    for axis, n in enumerate(getattr(fake, "shape", ())):
        if isinstance(n, torch.SymInt):
            yield axis, n.node.expr


def _children(spec: Any) -> list[Any]:
    child = spec.child if hasattr(spec, "child") else spec.children_specs.__getitem__
    return [child(i) for i in range(spec.num_children)]


def _flattened(value: Any, spec: Any) -> list[Any] | None:
    """Flatten nested arguments as others were; a list stands for a tuple, names may have another order.

    Returns:
        the leaves, or None if the structure is another one.
    """
    children = _children(spec)
    if spec.is_leaf():
        return [value] if pytree.tree_structure(value).is_leaf() else None
    if spec.type in (list, tuple, namedtuple):
        parts = list(value) if isinstance(value, (list, tuple)) else None
    elif spec.type in (dict, OrderedDict):
        parts = [value[k] for k in spec.context if k in value] if isinstance(value, Mapping) else None
        parts = parts if parts is not None and len(parts) == len(value) else None
    else:
        leaves, structure = pytree.tree_flatten(value)
        return leaves if structure == spec else None
    if parts is None or len(parts) != len(children):
        return None
    leaves = []
    for part, child in zip(parts, children, strict=True):
        inner = _flattened(part, child)
        if inner is None:
            return None
        leaves += inner
    return leaves


def _outline(spec: Any) -> str:
    """Write the structure of arguments, ``*`` for each leaf."""
    args, kwargs = pytree.tree_unflatten(["*"] * spec.num_leaves, spec)
    shown = ", ".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])
    return "(" + shown.replace("'*'", "*") + ")"


def _is_constant(spec: Any) -> bool:
    return isinstance(spec.arg, torch.export.graph_signature.ConstantArgument)


def _same_constant(value: Any, other: Any) -> bool:
    """Return whether code computes the same with both; it does not with 2 and 2.0, nor with 0.0 and -0.0."""
    return type(value) is type(other) and (
        repr(value) == repr(other) if isinstance(value, float) else value == other
    )


def _label(path: Sequence[Any]) -> str:
    """Join a path in nested results to a name: ``z``, ``k.0``; positions alone are ``output_0``."""
    parts = [str(getattr(p, "key", getattr(p, "idx", getattr(p, "name", p)))) for p in path]
    if not parts:
        return ""
    label = ".".join(parts)
    return f"output_{label}" if label[0].isdigit() else label


def _check_tensor(name: str, value: Any, fake: torch.Tensor) -> None:
    if not isinstance(value, torch.Tensor):
        raise InputError(
            f"argument {name!r} is a tensor of {fake.dtype}, found {type(value).__name__} {value!r:.40}"
        )
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
