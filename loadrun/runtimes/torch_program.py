"""An exported program as it is, run by torch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from ..base.about import About
from ..base.errors import EngineError
from ..engines import NATIVE
from ..engines.profile import Executed
from ..ops.numeric.parallel import threads
from ..testcase import FileValue, SourceFile
from ..torch.call import narrow
from ..torch.exporting import callable_of, changes_buffers
from ..torch.program import ProgramFile, arguments, run_program
from ..torch.signature import Signature
from .native import Ports, fitted


class TorchProgram:
    """A program of `torch.export` with its own operators; see `loadrun.engines.FileEngine`.

    Args:
        source: what a .pt2 file holds.
        profile: let torch's profiler watch the runs.
    """

    def __init__(self, source: SourceFile, *, profile: bool = False) -> None:
        self._profile = _TorchProfile(profile)
        if not isinstance(source, ProgramFile):
            raise EngineError(f"torch runs .pt2 files as they are, found {source.format}")
        self._source = source
        self._signature = Signature(source.program)
        self._changes = changes_buffers(source.program)
        self._module = callable_of(source.program)
        dtypes: dict[str, np.dtype[Any]] = {}
        for name, fake in self._signature.graph_inputs():
            kind = getattr(fake, "dtype", torch.int64)
            if not kind.is_complex:
                dtypes[name] = narrow(kind)
        names = self._signature.input_names()
        self._ports = Ports(names, (), dtypes, dict.fromkeys(names, ()))
        version = str(torch.__version__)
        self.about = About("torch", version, "", "cpu", operators=source.nodes, way=NATIVE)

    def fitted(self, feeds: Mapping[str, FileValue]) -> Mapping[str, object]:
        """See `FileEngine.fitted`."""
        args, kwargs = arguments(self._signature, fitted(self._source, self._ports, feeds))
        return {"args": args, "kwargs": kwargs}

    def run(self, inputs: Mapping[str, Any]) -> Mapping[str, FileValue]:
        """See `FileEngine.run`; a program that changes its buffers begins again each time."""
        module = callable_of(self._source.program) if self._changes else self._module
        with _torch_threads(), self._profile:
            return run_program(module, self._signature, inputs["args"], inputs["kwargs"])

    def executed(self) -> list[Executed]:
        """Return what operators took in the last run."""
        return self._profile.executed()


@contextmanager
def _torch_threads() -> Iterator[None]:
    """Let torch use as many threads as loadrun itself does; the program's own number stands again afterwards."""
    before, wanted = torch.get_num_threads(), threads()
    if before != wanted:
        torch.set_num_threads(wanted)
    try:
        yield
    finally:
        if before != wanted:
            torch.set_num_threads(before)


class _TorchProfile:
    """A context in which torch's profiler watches operators, if it is switched on; it keeps the last run.

    Args:
        enabled: whether it is.
    """

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._profile: Any = None

    def __enter__(self) -> None:
        if self._enabled:
            self._profile = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
            self._profile.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._enabled:
            self._profile.__exit__(*error)

    def executed(self) -> list[Executed]:
        """Return the operators that were called, without those that they call in turn."""
        if self._profile is None:
            return []
        events = [e for e in self._profile.events() if e.cpu_parent is None]
        began = min((e.time_range.start for e in events), default=0.0)
        return [
            Executed(
                e.name,
                e.name,
                (e.time_range.start - began) * 1e-6,
                (e.time_range.end - e.time_range.start) * 1e-6,
                f"thread {e.thread}",
                [shape for shape in e.input_shapes if shape],
            )
            for e in sorted(events, key=lambda e: e.time_range.start)
        ]
