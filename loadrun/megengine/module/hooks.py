"""Functions that are called before and after a module, and the handle that takes them away again."""

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

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
