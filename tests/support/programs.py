"""Random programs as Python source: written statement by statement, each kept if it runs on sample values."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

LIMIT = 1e3
"""Results beyond this are not kept, so that rounding stays small."""


@dataclass
class Program:
    """A function in source form.

    Attributes:
        lines: the statements of its body.
        returned: the expression that it returns.
        args: names of its positional arguments.
        namespace: what its names stand for.
    """

    lines: list[str]
    returned: str
    args: list[str]
    namespace: Mapping[str, Any] = field(repr=False)

    @property
    def source(self) -> str:
        body = [*self.lines, f"return {self.returned}"]
        return "\n".join((f"def f({', '.join(self.args)}):", *(f"    {s}" for s in body))) + "\n"

    def function(self) -> Callable[..., Any]:
        """The function; errors show its lines."""
        name = f"<program {abs(hash(self.source))}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        namespace = dict(self.namespace)
        exec(compile(self.source, name, "exec"), namespace)
        return namespace["f"]


class Writer:
    """A program that grows.

    Args:
        random: decides.
        namespace: names that the program may use.
        args: sample arguments by name.
    """

    def __init__(self, random: Random, namespace: Mapping[str, Any], args: Mapping[str, Any]) -> None:
        self.random = random
        self.namespace = namespace
        self.args = list(args)
        self.values: dict[str, Any] = dict(args)
        self.lines: list[str] = []
        self.count = 0

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def size(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def number(self) -> str:
        return self.pick("2", "-1", "3", "0.5", "-1.25", "1.5", "0", "1", "True", "1.0")

    def one(self, want: Callable[[Any], bool] = lambda _: True) -> str | None:
        """A variable that is as wanted, mostly a late one."""
        found = [n for n, v in self.values.items() if want(v)]
        if not found:
            return None
        return found[-1 - min(int(self.random.expovariate(0.6)), len(found) - 1)]

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def add(self, line: str, sane: Callable[[Any], bool]) -> bool:
        """Keep a statement if it runs and all that it changes is sane."""
        scope = {**self.namespace, **self.values}
        try:
            exec(line, scope)
        except Exception:
            return False
        made = {n: v for n, v in scope.items() if n not in self.namespace and n != "__builtins__"}
        if not all(sane(v) for v in made.values()):
            return False
        self.values = made
        self.lines.append(line)
        return True


def leaves(value: Any) -> list[np.ndarray]:
    """The arrays of a nested result."""
    if isinstance(value, dict):
        return [a for v in value.values() for a in leaves(v)]
    if isinstance(value, (list, tuple)):
        return [a for v in value for a in leaves(v)]
    return [value.numpy() if hasattr(value, "numpy") else np.asarray(value)]


def structure(value: Any) -> Any:
    """A nested result without its values."""
    if isinstance(value, dict):
        return {k: structure(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(structure(v) for v in value)
    return None


def far(
    got: Sequence[np.ndarray], want: Sequence[np.ndarray], tolerance: float, *, dtypes: bool = True
) -> str:
    """What differs between two results, empty if nothing."""
    if len(got) != len(want):
        return f"{len(got)} results, not {len(want)}"
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape:
            return f"result {i} has shape {a.shape}, not {b.shape}"
        if dtypes and a.dtype != b.dtype:
            return f"result {i} has dtype {a.dtype}, not {b.dtype}"
        loose = 20 if b.dtype == np.float16 else 1
        x, y = a.astype(np.float64), b.astype(np.float64)
        if b.dtype.kind in "iub" and a.dtype.kind in "iub":
            loose = 0
        if not np.allclose(x, y, rtol=tolerance * loose, atol=tolerance * loose, equal_nan=True):
            with np.errstate(all="ignore"):
                return f"result {i} ({b.dtype} {b.shape}) differs by {np.abs(x - y).max()}"
    return ""
