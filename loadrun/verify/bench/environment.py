"""The environment of a report: versions, processor, BLAS, limits."""

import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ...base import __version__
from ...ops.numeric.parallel import blas_threads, quota, threads

_CGROUP = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""Version 1 of control groups writes about that much for no limit."""


def environment() -> dict[str, Any]:
    """Describe what results and times may depend on, as data for JSON.

    >>> found = environment()
    >>> found["numpy"] == np.__version__, found["threads"] >= 1
    (True, True)
    """
    return {
        "loadrun": __version__,
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "numpy": np.__version__,
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "usable_processors": _usable(),
        "container": {"processors": quota(), "memory_bytes": _memory_limit()},
        "blas": {**_blas(), "threads": blas_threads()},
        "threads": threads(),
    }


def _usable() -> int | None:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count()


def _text_of_file(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _processor() -> str:
    """Return the processor's name as the system gives it, the architecture where it gives none."""
    for line in _text_of_file(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.processor() or platform.machine()


def _memory_limit() -> int | None:
    """Bytes that the control group may use, None without a limit."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        text = _text_of_file(_CGROUP / name).strip()
        if text.isdigit() and int(text) < _UNLIMITED:
            return int(text)
    return None


def _blas() -> dict[str, str | None]:
    """Name and version of the library that numpy was built with."""
    config: Any = getattr(np, "__config__", None)
    built = getattr(config, "CONFIG", None)
    if isinstance(built, dict):
        entry = built.get("Build Dependencies", {}).get("blas", {})
        return {"name": entry.get("name"), "version": entry.get("version")}
    # Before numpy 1.26 it is known by what was linked.
    for name in ("openblas64__info", "openblas_info", "blas_mkl_info", "accelerate_info", "blas_opt_info"):
        about = getattr(config, name, None)
        if about:
            return {"name": ", ".join(about.get("libraries", [])) or name, "version": None}
    return {"name": None, "version": None}
