"""The options of packing a file, as a record."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...base.limits import memory_limited, time_limited
from ...base.proving import proving
from ...compare.policy import Policy
from ...dump.options import DumpOptions
from ...engines import Choice
from ...inputs.feeds import DataOptions, ModelOptions


@dataclass(frozen=True, kw_only=True)
class PackOptions(ModelOptions, DataOptions):
    """Describe how a model and data become a file; the options of `ModelOptions` and `DataOptions` are among these.

    Attributes:
        test_data: the folder with the test data of an ONNX model.
        dump: which dump of a file that holds several, from 1.
        expect: specifications of what the outputs must be, ``NAME:golden.npy``, once for each testcase; what the model
            computes is expected of outputs that are not named.
        replace: whether testcases that the model's file has are dropped.
        maxerr: tolerance of the checks, one or by output name; None is 1e-4, or what existing
            checks have.
        suggest_maxerr: whether tolerances are measured on the first testcase; new checks get them unless `maxerr` is
            given.
        policies: what outputs must fulfil besides, by name, all others under the empty name; they go into the record.
        loosen: whether existing checks may let more through than before.
        silent: whether MegEngine keeps quiet about the errors that it finds; None is no, or as existing checks are.
        no_assert: whether inputs are packed alone.
        record: whether provenance and digests are written after the testcases.
        intermediates: whether statistics of every intermediate value go into the record.
        replay: whether what was written is replayed before it takes the file's place.
        states: which outputs of a step feed which inputs of the next one, ``past_*=present_*``; an input may be fed
            with the index of an output's largest element, ``ids=argmax(logits)``. With them each `steps` inputs are
            a scenario.
        steps: how many steps a scenario has.
        engine: what computes the outputs.
        passes: keywords of `loadrun.passes.inference.optimize_for_inference`, which changes the graph before it is
            written; None for none. The outputs that the file must give are those of the model before.
        file: how the graph is written.
        open_sizes: whether sizes that an ONNX model leaves open stay open in the file, as far as that holds; else those
            do in which the data differ.
        prove: how much of a translation from another format is proven before it is written, see `loadrun.proof`:
            ``none``, ``quick`` or ``full``.
        timeout: seconds after which packing is given up, the file being as it was.
        max_memory: bytes that this process may take beyond what it has; None for what the machine can give (Linux).
    """

    test_data: str | os.PathLike[str] | None = None
    dump: int | None = None
    expect: tuple[str, ...] = ()
    replace: bool = False
    maxerr: float | Mapping[str, float] | None = None
    suggest_maxerr: bool = False
    policies: Mapping[str, Policy] = field(default_factory=dict)
    loosen: bool = False
    silent: bool | None = None
    no_assert: bool = False
    record: bool = True
    intermediates: bool = False
    replay: bool = True
    states: tuple[str, ...] = ()
    steps: int = 0
    engine: str | Choice = "reference"
    passes: Mapping[str, object] | None = None
    file: DumpOptions = field(default_factory=DumpOptions)
    open_sizes: bool = False
    prove: str = "quick"
    timeout: float | None = None
    max_memory: int | None = None

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Hold what runs inside to `timeout` and `max_memory`, and prove as much as `prove` says.

        Raises:
            TimeLimitError: it took longer.
        """
        with memory_limited(self.max_memory), time_limited(self.timeout), proving(self.prove):
            yield
