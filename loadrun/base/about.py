"""What records say of where they come from: the engine that computed a result, and who accepted it."""

from dataclasses import dataclass
from typing import Any

from .registry import late

with late(__name__):
    import getpass
    import platform


@dataclass(frozen=True)
class Island:
    """An operator that an engine leaves to the reference engine, and why.

    Attributes:
        operator: the operator with its place in the file.
        type: its type.
        reason: why the engine cannot run it.
    """

    operator: str
    type: str
    reason: str


@dataclass(frozen=True)
class About:
    """The engine that ran, and how it computes.

    Attributes:
        engine: its name.
        version: version of the runtime.
        arithmetic: in what it computes float32 operators, such as ``float32``, ``bfloat16``.
        provider: what of the runtime executes: an execution provider, a device, a program.
        islands: operators that the reference engine executed instead; known after the first run.
        operators: how many operators the targets need.
        way: ``native`` where the runtime got the model's own file, ``translated`` where it got models that loadrun
            wrote of its graph; empty for engines that execute graphs themselves.
        options: what else was chosen for the runtime, as it was written.

    >>> About("onnxruntime", "1.20.0", "float32", "CPUExecutionProvider", way="translated").text
    'onnxruntime 1.20.0 (CPUExecutionProvider), float32, translated'
    >>> About("onnxruntime", "1.20.0", "", way="native", options=("opt=basic",)).text
    'onnxruntime 1.20.0, native, opt=basic'
    """

    engine: str
    version: str
    arithmetic: str
    provider: str = ""
    islands: tuple[Island, ...] = ()
    operators: int = 0
    way: str = ""
    options: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line, with the number of operators that ran elsewhere."""
        provider = f" ({self.provider})" if self.provider else ""
        parts = (f"{self.engine} {self.version}{provider}", self.arithmetic, self.way, *self.options)
        line = ", ".join(p for p in parts if p)
        if self.islands:
            line += f"; {len(self.islands)} of {self.operators} operators on the reference engine"
        return line


def about_data(about: About) -> dict[str, Any]:
    """Describe the engine, its arithmetic, and what ran on the reference engine instead."""
    return {
        "engine": about.engine,
        "version": about.version,
        "provider": about.provider or None,
        "arithmetic": about.arithmetic or None,
        "way": about.way or None,
        "options": list(about.options),
        "operators": about.operators,
        "islands": [{"operator": i.operator, "type": i.type, "reason": i.reason} for i in about.islands],
    }


def author() -> str:
    """Return the current user as ``user@host``, from the environment."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "unknown"
    return f"{user}@{platform.node() or 'unknown'}"
