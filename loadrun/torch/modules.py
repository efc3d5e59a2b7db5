"""A trace's arguments in torch's form: functions and methods as modules, arrays as tensors."""

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..base.errors import InputError, UsageError
from ..tensors import Tensor
from .call import no_numbers
from .script import Scripted, is_script

_READ = frozenset(
    """
    state_dict parameters named_parameters buffers named_buffers children named_children modules
    named_modules get_parameter get_buffer get_submodule training
    """.split()
)
_SAME = frozenset(["eval", "train", "cpu", "float", "requires_grad_", "zero_grad", "to"])
"""Methods of a module that change nothing of what a trace computes."""
_DTYPES = frozenset(["float", "half", "double", "bfloat16"])
_FIXED = frozenset(["half", "double", "bfloat16", "cuda", "xpu", "to_empty", "type", "load_state_dict"])


class ModuleAttributes:
    """What a trace has of its module: submodules, parameters, buffers, and the methods that tell of them."""

    original: Any

    def __getattr__(self, name: str) -> Any:
        owner = self.__dict__.get("original")
        if not isinstance(owner, torch.nn.Module):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in _READ or any(name in kind for kind in (owner._parameters, owner._buffers, owner._modules)):
            return getattr(owner, name)
        if name in _SAME or name in _FIXED:
            return lambda *args, **kwargs: self._moved(owner, name, args, kwargs)
        raise AttributeError(
            f"the trace of {type(owner).__name__} has no attribute {name!r}: neither a traced method nor a submodule, "
            "parameter or buffer"
        )

    def _moved(self, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do what leaves the trace as it is, such as `eval`, to the module.

        Raises:
            UsageError: the graph, whose weights are constants, would not follow.
        """
        kinds = {p.dtype for p in owner.parameters()}
        wanted = [*args, *kwargs.values()] if name == "to" else []
        if name in _DTYPES:
            wanted = [getattr(torch, name)]
        other = any(isinstance(v, torch.dtype) and kinds - {v} for v in wanted)
        away = any(isinstance(v, (str, torch.device)) and torch.device(v).type != "cpu" for v in wanted)
        if name in _FIXED - _DTYPES or other or away:
            raise UsageError(
                f"{name}() does not change a trace, whose weights are constants: change the module and trace it again"
            )
        getattr(owner, name)(*args, **kwargs)
        return self


class _Function(torch.nn.Module):  # type: ignore[misc]
    """A function, or a method of a module, as a module that torch can export."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = owner_of(function)
        name = getattr(function, "__qualname__", function)
        module = isinstance(function, torch.nn.Module)
        self._loadrun_name = f"the module {type(function).__name__}" if module else f"the function {name}"
        if isinstance(owner, torch.nn.Module):
            # Its parameters are found under their own names.
            self.__dict__.update({k: owner.__dict__[k] for k in ("_parameters", "_buffers", "_modules")})

        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        # Torch pairs dynamic sizes with the names of the parameters.
        parameters = parameters_of(function)
        if parameters is None:
            parameters = inspect.Signature([inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)])
        forward.__signature__ = parameters  # type: ignore[attr-defined]
        self.forward = forward


def is_torch_program(value: Any) -> bool:
    """Whether a value is what torch makes of a module: a script, or an exported program."""
    return is_script(value) or isinstance(value, torch.export.ExportedProgram)


def owner_of(function: Any) -> Any:
    """Return the module of a method, or the value itself."""
    return getattr(function, "__self__", function)


def observes(part: Any) -> bool:
    """Return whether a module finds scales for quantization, by observers that leave values as they are or round."""
    return hasattr(part, "calculate_qparams")


def without_observers(function: Any) -> Any:
    """Return a module, or a method of one, as a copy without observers, which would go on learning; others as they are.

    Those that round as well stay.
    """
    owner = owner_of(function)
    if not isinstance(owner, torch.nn.Module) or is_script(owner):
        return function
    rounding = {p for m in owner.modules() if hasattr(m, "fake_quant_enabled") for p in m.modules()}
    found = {m for m in owner.modules() if observes(m)} - rounding - {owner}
    if not found:
        return function
    copied = copy.deepcopy(owner, {id(m): torch.nn.Identity() for m in found})
    return copied if function is owner else getattr(copied, function.__name__)


def as_module(function: Any) -> Any:
    """Return a module, or a method, function or script as one.

    Raises:
        UsageError: it is none of these.
    """
    if is_script(function):
        return Scripted(function)
    if isinstance(function, torch.nn.Module):
        return function
    if not callable(function):
        raise UsageError(
            "expected a module, a method of one, a script, an exported program or a function, found "
            f"{type(function).__name__} {function!r:.60}"
        )
    if getattr(function, "__name__", "") == "forward" and isinstance(owner_of(function), torch.nn.Module):
        return owner_of(function)
    return _Function(function)


def along_example(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Record a module along the path that Python takes with an example; torch warns of each value that decides it.

    Raises:
        Exception: whatever torch.jit.trace or the module raises.
    """
    options = {"strict": False, "check_trace": False}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r".*deprecated")
        if not kwargs:
            return Scripted(torch.jit.trace(module, args, **options))
        named = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        return Scripted(torch.jit.trace(module, example_kwarg_inputs=dict(named), **options))


def refuse_scripts(options: Mapping[str, Any]) -> None:
    """Refuse what torch.jit.save passes to the method `save` of scripts.

    Raises:
        UsageError: it does.
    """
    if "_extra_files" in options:
        raise UsageError(
            "torch.jit.save writes scripts, and this is a graph that was traced for MegEngine and ONNX: write it with "
            "its own method, .save('NAME.mge')"
        )


def named_alone(module: Any, kwargs: Mapping[str, Any]) -> Any:
    """Return a module whose parameters have a name each: torch has no dynamic sizes behind ``**``."""
    known = parameters_of(module.forward)
    kinds = {} if known is None else {p.kind: n for n, p in known.parameters.items()}
    others = [k for k in kwargs if known is not None and k not in known.parameters and k.isidentifier()]
    behind = kinds.get(inspect.Parameter.VAR_KEYWORD)
    if known is None or behind is None or not others:
        return module
    function = _Function(module)
    parameters = [p for n, p in known.parameters.items() if n != behind]
    parameters += [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in others]
    function.forward.__signature__ = known.replace(parameters=parameters)  # type: ignore[attr-defined]
    return function


def as_torch(value: Any) -> Any:
    """Convert an array or a tensor of loadrun to torch; leave anything else as it is."""
    if isinstance(value, (np.ndarray, np.generic)):
        try:
            return torch.from_numpy(np.array(value))
        except TypeError as e:
            raise InputError(f"torch has no tensors of {value.dtype}: give numbers or truth values") from e
    return torch.from_numpy(np.array(value.numpy())) if isinstance(value, Tensor) else value


def call_of(data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments, by place and by keyword, that stand for a testcase."""
    args = pytree.tree_map(as_torch, data)
    if isinstance(args, Mapping):
        return (), dict(args)
    return (tuple(args) if isinstance(args, (tuple, list)) else (args,)), {}


def refuse_no_numbers(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse tensors among the arguments that are not arrays of numbers, such as sparse ones.

    Raises:
        InputError: there is one; the text names it by its place or keyword.
    """
    for path, leaf in pytree.tree_flatten_with_path((args, dict(kwargs)))[0]:
        if isinstance(leaf, torch.Tensor) and (why := no_numbers(leaf)):
            raise InputError(f"argument {pytree.keystr(path[1:])[1:-1]} is {why}")


def distinct(values: Any, views: bool) -> Any:
    """Copy tensors that are given as several arguments, and where sizes are dynamic views.

    Torch takes the sizes of a view and of its memory for related. What a function reads beyond a view is not in a copy.
    """
    seen: set[int] = set()

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or (
            id(leaf) not in seen and not (views and leaf._base is not None)
        ):
            seen.add(id(leaf))
            return leaf
        return leaf.detach().clone()

    return pytree.tree_map(own, values)


def parameters_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function; None where it has none."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None
