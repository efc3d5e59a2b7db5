"""What records say of where they come from: the engine that computed a result, and who accepted it."""

from dataclasses import dataclass
from typing import Any

from .registry import late

with late(__name__):
    import getpass
    import platform


@dataclass(frozen=True)
class About:
    """The engine that ran, and how it computes.

    Attributes:
        engine: its name.
        version: version of the runtime.
        arithmetic: in what it computes float32 operators, such as ``float32``, ``bfloat16``.
        provider: what of the runtime executes: an execution provider, a device, a program.
        operators: how many operators the targets need.
        way: ``native`` where the runtime got the model's own file, ``translated`` where it got a model that loadrun
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
    operators: int = 0
    way: str = ""
    options: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line."""
        provider = f" ({self.provider})" if self.provider else ""
        parts = (f"{self.engine} {self.version}{provider}", self.arithmetic, self.way, *self.options)
        return ", ".join(p for p in parts if p)


def about_data(about: About) -> dict[str, Any]:
    """Describe the engine and its arithmetic."""
    return {
        "engine": about.engine,
        "version": about.version,
        "provider": about.provider or None,
        "arithmetic": about.arithmetic or None,
        "way": about.way or None,
        "options": list(about.options),
        "operators": about.operators,
    }


def author() -> str:
    """Return the current user as ``user@host``, from the environment."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = "unknown"
    return f"{user}@{platform.node() or 'unknown'}"
