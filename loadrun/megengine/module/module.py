"""`Module`: what networks are put together from, with MegEngine's names (its ``module/module.py``)."""

from __future__ import annotations

import itertools
import logging
import weakref
from abc import ABCMeta, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from ...base.errors import UnsupportedError
from ...tensors import Parameter, Tensor
from ...tensors.access import set_attribute_path, set_name, tensor_name
from ...tensors.naming import scope
from .state import ModuleBase, State, expand, load_state, state_of

_numbers = itertools.count()


class HookHandler:
    """A registered hook.

    Args:
        hooks: where it is registered.
        hook: the function.

    >>> hooks = OrderedDict()
    >>> handle = HookHandler(hooks, print)
    >>> len(hooks), handle.remove(), len(hooks)
    (1, None, 0)
    """

    def __init__(self, hooks: OrderedDict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self.id = next(_numbers)
        hooks[self.id] = hook
        self._hooks = weakref.ref(hooks)

    def remove(self) -> None:
        """Take the hook away; a second time nothing happens."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)


_log = logging.getLogger("loadrun.megengine.module")


if TYPE_CHECKING:
    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)

    class _HasForward(Protocol[P, R]):
        @property
        def forward(self) -> Callable[P, R]: ...

    class _Call:
        def __get__(self, instance: _HasForward[P, R], owner: Any) -> Callable[P, R]: ...


__all__ = ["Module"]


def _is_parameter(value: Any) -> bool:
    return isinstance(value, Parameter)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _is_buffer(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, Parameter)


def _is_module(value: Any) -> bool:
    return isinstance(value, Module)


class Module(ModuleBase, metaclass=ABCMeta):
    """Base of all layers and networks.

    A subclass sets parameters (`loadrun.Parameter`), buffers (`loadrun.Tensor`) and further modules as attributes,
    also within lists, tuples and dicts, and computes in ``forward``. Everything is found in the order of the
    attributes' names.

    Args:
        name: what the module is called in dumps.

    >>> class Twice(Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = Parameter([2.0])
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> net = Twice()
    >>> net(Tensor([1.5])).tolist(), [name for name, _ in net.named_parameters()]
    ([3.0], ['factor'])
    """

    def __init__(self, name: str | None = None) -> None:
        self._modules: list[str] = []
        if name is not None and not (isinstance(name, str) and name.strip()):
            raise AssertionError(f"Module's name must be a non-empty string, found {name!r}")
        self.name = name
        self.training = True
        self.quantize_disabled = False
        self._forward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._forward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
        self._name: str | None = None
        self._short_name: str | None = None

    @abstractmethod
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""

    if TYPE_CHECKING:
        # A call has the parameters and the result of ``forward``.
        __call__: _Call
    else:

        def __call__(self, *inputs, **kwargs):
            """Call the hooks and, between them, ``forward``."""
            for hook in tuple(self._forward_pre_hooks.values()):
                changed = hook(self, inputs)
                if changed is not None:
                    inputs = changed if isinstance(changed, tuple) else (changed,)
            name = self.name if self.name is not None else self._short_name
            with scope(name) if name else nullcontext():
                outputs = self.forward(*inputs, **kwargs)
            for hook in tuple(self._forward_hooks.values()):
                changed = hook(self, inputs, outputs)
                if changed is not None:
                    outputs = changed
            return outputs

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandler:
        """Call ``hook(module, inputs)`` before each forward; inputs that it returns are used instead.

        Returns:
            a handle whose ``remove()`` takes the hook away.
        """
        return HookHandler(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandler:
        """Call ``hook(module, inputs, outputs)`` after each forward; outputs that it returns are used instead.

        Returns:
            a handle whose ``remove()`` takes the hook away.
        """
        return HookHandler(self._forward_hooks, hook)

    def _flatten(
        self,
        *,
        recursive: bool = True,
        with_key: bool = False,
        with_parent: bool = False,
        prefix: str | None = None,
        predicate: Callable[[Any], bool] = lambda leaf: True,
        seen: set[int] | None = None,
    ) -> Iterator[Any]:
        """Yield the tensors and modules below, each once, before what is below them.

        Args:
            recursive: look into modules.
            with_key: give the dotted name with each.
            with_parent: give the module that holds it with each.
            prefix: is in front of the names.
            predicate: which ones to give.
            seen: ids of those that were given before.
        """
        seen = {id(self)} if seen is None else seen
        front = "" if prefix is None else f"{prefix}."
        attributes = vars(self)
        for attribute in sorted(attributes):
            for name, leaf in expand(attribute, attributes[attribute]):
                if id(leaf) in seen:
                    continue
                seen.add(id(leaf))
                if predicate(leaf):
                    row = ((front + name,) if with_key else ()) + (leaf,) + ((self,) if with_parent else ())
                    yield row if len(row) > 1 else leaf
                if recursive and isinstance(leaf, Module):
                    yield from leaf._flatten(
                        with_key=with_key,
                        with_parent=with_parent,
                        prefix=front + name if with_key else None,
                        predicate=predicate,
                        seen=seen,
                    )

    def parameters(self, recursive: bool = True, **kwargs: Any) -> Iterator[Parameter]:
        """Return all `Parameter`s, or those of this module alone."""
        return self._flatten(predicate=_is_parameter, recursive=recursive, **_known(kwargs))

    def named_parameters(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterator[tuple[str, Parameter]]:
        """Return all `Parameter`s with their dotted names."""
        options = _known(kwargs)
        return self._flatten(
            with_key=True, prefix=prefix, predicate=_is_parameter, recursive=recursive, **options
        )

    def buffers(self, recursive: bool = True, **kwargs: Any) -> Iterator[Tensor]:
        """Return all tensors that are not parameters."""
        return self._flatten(predicate=_is_buffer, recursive=recursive, **kwargs)

    def named_buffers(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterator[tuple[str, Tensor]]:
        """Return all tensors that are not parameters, with their dotted names."""
        return self._flatten(
            with_key=True, prefix=prefix, predicate=_is_buffer, recursive=recursive, **kwargs
        )

    def tensors(self, recursive: bool = True, **kwargs: Any) -> Iterator[Tensor]:
        """Return all parameters and buffers."""
        return self._flatten(predicate=_is_tensor, recursive=recursive, **kwargs)

    def named_tensors(
        self, prefix: str | None = None, recursive: bool = True, **kwargs: Any
    ) -> Iterator[tuple[str, Tensor]]:
        """Return all parameters and buffers with their dotted names."""
        return self._flatten(
            with_key=True, prefix=prefix, predicate=_is_tensor, recursive=recursive, **kwargs
        )

    def children(self, **kwargs: Any) -> Iterator[Module]:
        """Return the modules that are attributes of this one."""
        return self._flatten(predicate=_is_module, recursive=False, **kwargs)

    def named_children(self, **kwargs: Any) -> Iterator[tuple[str, Module]]:
        """Return the modules that are attributes of this one, with their names."""
        return self._flatten(with_key=True, predicate=_is_module, recursive=False, **kwargs)

    def modules(self, **kwargs: Any) -> Iterator[Any]:
        """Yield this module and all below."""
        yield (self, None) if kwargs.get("with_parent") else self
        yield from self._flatten(predicate=_is_module, **kwargs)

    def named_modules(self, prefix: str | None = None, **kwargs: Any) -> Iterator[Any]:
        """Yield this module and all below, with their dotted names; its own is empty or `prefix`."""
        this = ("" if prefix is None else prefix, self)
        yield (*this, None) if kwargs.get("with_parent") else this
        yield from self._flatten(with_key=True, prefix=prefix, predicate=_is_module, **kwargs)

    def apply(self, fn: Callable[[Module], Any]) -> None:
        """Call a function with this module and all below."""
        for module in list(self.modules()):
            fn(module)

    def zero_grad(self) -> None:
        """Refuse: there are no gradients."""
        raise UnsupportedError("zero_grad: loadrun runs networks, it does not train them; MegEngine has it")

    def train(self, mode: bool = True, recursive: bool = True) -> None:
        """Set ``training`` here and, unless `recursive` is False, in all modules below."""
        if recursive:
            self.apply(lambda module: module.train(mode, recursive=False))
        else:
            self.training = mode

    def eval(self) -> None:
        """Leave training: batch norm uses its running statistics, dropout does nothing."""
        self.train(False)

    def disable_quantize(self, value: bool = True) -> None:
        """Let `quantization.quantize_qat` pass over this module and all below."""

        def mark(module: Module) -> None:
            module.quantize_disabled = value

        self.apply(mark)

    def state_dict(self, rst: Any = None, prefix: str = "", keep_var: bool = False) -> OrderedDict[str, Any]:
        """Return parameters and buffers by dotted names, as arrays; `loadrun.megengine.save` writes them.

        Those of batch, group, layer and instance norms come with one axis. Quantized arrays have MegEngine's dtype.

        Args:
            rst: a dict to add to.
            prefix: is in front of the names.
            keep_var: give the tensors themselves.

        >>> from loadrun.megengine.module import BatchNorm2d
        >>> {k: v.shape for k, v in BatchNorm2d(3).state_dict().items()}["running_mean"]
        (3,)
        """
        state = state_of(self, prefix, keep_var)
        if rst is None:
            return state
        rst.update(state)
        return rst

    def load_state_dict(self, state_dict: State, strict: bool = True) -> None:
        """Set parameters and buffers.

        Args:
            state_dict: arrays by dotted name; a function ``(name, tensor) -> array or None``; or the name of a
                checkpoint, which is read without MegEngine and without running anything (`load_checkpoint`).
                None leaves a parameter as it is.
            strict: refuse names that are missing or not used.

        Raises:
            KeyError: names are missing or not used, and `strict`.
            ValueError: a shape differs.

        >>> from loadrun.megengine.module import Linear
        >>> a, b = Linear(2, 1), Linear(2, 1)
        >>> b.load_state_dict(a.state_dict())
        >>> bool((a.weight == b.weight).numpy().all())
        True
        """
        load_state(self, state_dict, strict)

    def __setattr__(self, name: str, value: Any) -> None:
        holds = _is_module(value) or isinstance(value, (list, tuple, dict))
        if name != "_modules":
            names = self.__dict__.get("_modules")
            if names is None:
                if holds:
                    raise AttributeError("cannot assign module before Module.__init__() call")
            elif holds and name not in names:
                names.append(name)
            elif not holds and name in names:
                names.remove(name)
        if holds or isinstance(value, Tensor):
            prefix = self.__dict__.get("_name") or self.__dict__.get("name")
            for path, leaf in expand(name, value):
                _give_name(prefix, path, leaf)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if _is_module(self.__dict__.get(name)) and name in self._modules:
            self._modules.remove(name)
        super().__delattr__(name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _module_info_string(self) -> str:
        """Return what is in the brackets of the printed form."""
        return ""

    def __repr__(self) -> str:
        lines = [line for line in self._module_info_string().split("\n") if line]
        below = []
        for attribute in self._modules:
            for name, leaf in expand(attribute, self.__dict__[attribute]):
                if _is_module(leaf):
                    below.append(f"({name}): " + repr(leaf).replace("\n", "\n  "))
        text = (
            ", ".join(lines) if len(lines) < 2 and not below else "\n  " + "\n  ".join(lines + below) + "\n"
        )
        return f"{self.__class__.__name__}({text})"


def _known(options: dict[str, Any]) -> dict[str, Any]:
    if "requires_grad" in options:
        _log.warning("tensors have no requires_grad attribute; the argument is ignored")
    return {k: v for k, v in options.items() if k != "requires_grad"}


def _give_name(prefix: str | None, name: str, leaf: Any) -> None:
    """Remember by which path a tensor or module is reached; the first one counts."""
    if isinstance(leaf, Tensor) and tensor_name(leaf):
        name = tensor_name(leaf)
    known = getattr(leaf, "_short_name", None)
    if known and known != name:
        return
    path = f"{prefix}.{name}" if prefix else name
    leaf._short_name = name
    if isinstance(leaf, Tensor):
        set_attribute_path(leaf, path)
    else:
        set_name(leaf, path)
        for inner, below in leaf._flatten(recursive=False, with_key=True):
            _give_name(path, inner, below)
