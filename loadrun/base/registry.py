"""Registries: what functions register beside their definitions, and objects found by their place.

A registry imports its modules when a name is first looked up. `resolve` is how a low package finds a high one, as entry
points do: ``"module:attribute"``.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])
D = TypeVar("D")
K = TypeVar("K")
V = TypeVar("V")


def resolve(path: str) -> Any:  # noqa: ANN401 - anything can be named
    """Import what ``"module:attribute"`` names, or a module where there is no colon.

    Raises:
        ImportError: the module, or a package that it needs, is not there.
        AttributeError: the module holds no such attribute.

    >>> resolve("math:sqrt")(4)
    2.0
    """
    module, _, attribute = path.partition(":")
    imported = import_module(module)
    return getattr(imported, attribute) if attribute else imported


class late:
    """The modules that a ``with`` block imports are loaded when something of them is first used.

    It is for modules that most runs never need, and only for whole modules: ``from ..engines import file_replay``.

    Args:
        module: the importing module's ``__name__``; what others import meanwhile is loaded at once.

    >>> with late(__name__):
    ...     from wsgiref import headers
    >>> "wsgiref.headers" in sys.modules, headers.Headers().keys(), "wsgiref.headers" in sys.modules
    (False, [], True)
    """

    _lock = RLock()

    def __init__(self, module: str) -> None:
        self._module = module
        self._import = builtins.__import__

    def __enter__(self) -> late:
        self._lock.acquire()
        self._import = builtins.__import__
        builtins.__import__ = self._find
        return self

    def __exit__(self, *_: object) -> None:
        builtins.__import__ = self._import
        self._lock.release()
        importer = vars(sys.modules[self._module])
        for name, module in importer.items():
            if isinstance(module, _Later):
                module.importers.append((importer, name))

    def _find(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Stand in for ``__import__``."""
        if globals is None or globals.get("__name__") != self._module:
            return self._import(name, globals, locals, fromlist or (), level)
        if not fromlist:
            return _later(name)
        package = str(globals["__package__"]).rsplit(".", level - 1)[0] if level else ""
        path = ".".join(filter(None, (package, name)))
        found = ModuleType(path)
        vars(found).update((n, _later(f"{path}.{n}")) for n in fromlist)
        return found


class exported(late):
    """The names that a ``with`` block imports are a package's; each is imported when it is first asked for.

    Args:
        package: the package's ``__name__``.
        others: modules of the package, and names as in ``module.name``, that are imported likewise.

    >>> import loadrun
    >>> "pack_file" in vars(loadrun), loadrun.pack_file.__module__
    (False, 'loadrun.verify.pack.files')
    """

    def __init__(self, package: str, others: str = "") -> None:
        super().__init__(package)
        self._homes = {path.rpartition(".")[2]: f"{package}.{path}" for path in others.split()}

    def __iter__(self) -> Iterator[str]:
        """Yield the names in order."""
        return iter(sorted(self._homes))

    def __enter__(self) -> exported:
        super().__enter__()
        self._before = vars(sys.modules[self._module]).copy()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        package = vars(sys.modules[self._module])
        for name, thing in [*package.items()]:
            if name not in self._before and isinstance(thing, ModuleType):
                self._homes[name] = package.pop(name).__name__

    def find(self, name: str) -> Any:  # noqa: ANN401 - a module holds anything
        """Return what has a name; the package's ``__getattr__``.

        Raises:
            AttributeError: nothing has.
        """
        if name not in self._homes:
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}")
        module, _, attribute = self._homes[name].rpartition(".")
        if module == self._module:
            return import_module(self._homes[name])
        return getattr(import_module(module), attribute)

    def listed(self) -> list[str]:
        """List the names that are there, those included that are imported when asked for; the package's ``__dir__``."""
        return sorted({*vars(sys.modules[self._module]), *self._homes})


class _Later(ModuleType):
    """A module that is loaded on first use; its importers have the module itself from then on."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.importers: list[tuple[dict[str, Any], str]] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a module holds anything
        # No module uses private names of another, but tools look for some in whatever they meet.
        if name.startswith("_"):
            raise AttributeError(name)
        module = import_module(self.__name__)
        for importer, as_name in self.importers:
            importer[as_name] = module
        return getattr(module, name)


def _later(name: str) -> ModuleType:
    return sys.modules.get(name) or _Later(name)


class Registry(MutableMapping[K, V]):
    """A mapping of names to things, of which some are imported on first use.

    Args:
        what: what one of them is, in messages.
        homes: modules that register what they hold when they are imported, the likeliest first; or for every name by
            itself the module that registers it, or ``"module:attribute"``.

    >>> roots = Registry("root", {"square": "math:sqrt"})
    >>> @roots.register("cube")
    ... def cube_root(x):
    ...     return x ** (1 / 3)
    >>> roots["square"](16), roots["cube"](8), sorted(roots)
    (4.0, 2.0, ['cube', 'square'])
    >>> roots["cubes"]
    Traceback (most recent call last):
    KeyError: "no root is registered as 'cubes'; did you mean 'cube'?"
    """

    def __init__(self, what: str, homes: Iterable[str] | Mapping[K, str] = ()) -> None:
        self.what = what
        self._homes: dict[K, str] = dict(homes) if isinstance(homes, Mapping) else {}
        self._modules: list[str] = [] if isinstance(homes, Mapping) else [*homes][::-1]
        self._things: dict[K, V] = {}

    def register(self, *names: K) -> Callable[[F], F]:
        """Register a function or a class by one or more names; for use as a decorator.

        Raises:
            ValueError: another one has the name.
        """

        def add(thing: F) -> F:
            for name in names:
                self.add(name, thing)  # type: ignore[arg-type]
            return thing

        return add

    def add(self, name: K, thing: V) -> None:
        """Register an object under an unused name; ``registry[name] = thing`` replaces an existing one.

        Raises:
            ValueError: another one has the name.
        """
        if name in self._things:
            raise ValueError(f"{name!r} is registered twice as a {self.what}; choose another name")
        self._things[name] = thing

    def load(self) -> None:
        """Import all modules, so that all names are known."""
        while self._modules:
            self._import_next()

    def _import_next(self) -> None:
        """Import the next module; if that fails, the next look-up tries again."""
        module = self._modules[-1]
        resolve(module)
        # The import itself may have looked something up.
        if module in self._modules:
            self._modules.remove(module)

    def _find(self, name: object) -> bool:
        """Return whether something has a name; modules are imported, first to last, until one registers it."""
        if name not in self._things and name in self._homes:
            thing = resolve(self._homes[name])
            if ":" in self._homes[name]:
                self._things.setdefault(name, thing)
        while name not in self._things and name not in self._homes and self._modules:
            self._import_next()
        return name in self._things

    def __getitem__(self, name: K) -> V:
        if not self._find(name):
            near = resolve("difflib:get_close_matches")(str(name), map(str, self), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise KeyError(f"no {self.what} is registered as {name!r}{hint}")
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self._homes or self._find(name)

    @overload
    def get(self, name: K, /) -> V | None: ...

    @overload
    def get(self, name: K, /, default: V | D) -> V | D: ...

    def get(self, name: K, /, default: D | None = None) -> V | D | None:
        """Return the object registered under a name, or a default."""
        return self._things[name] if name in self._things or self._find(name) else default

    def __setitem__(self, name: K, thing: V) -> None:
        self._things[name] = thing

    def __delitem__(self, name: K) -> None:
        del self._things[name]

    def __iter__(self) -> Iterator[K]:
        self.load()
        return iter([*dict.fromkeys((*self._homes, *self._things))])

    def __len__(self) -> int:
        return len(list(iter(self)))
