"""The options of packing a file, as a record."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...base.limits import memory_limited, time_limited
from ...base.proving import proving
from ...base.stages import stage
from ...compare.policy import Policy
from ...dump.options import DumpOptions
from ...inputs.feeds import DataOptions, ModelOptions


@dataclass(frozen=True, kw_only=True)
class PackOptions(ModelOptions, DataOptions):
    """Describe how a model and data become a file; the options of `ModelOptions` and `DataOptions` are among these.

    Attributes:
        test_data: the folder with the test data of an ONNX model.
        dump: use the N-th dump of a file that has several, counted from 1.
        expect: expected outputs, as "NAME:golden.npy", once for each testcase, @FILE, or the testcases.json of an
            unpacked file; for outputs that are not named, what the model computes.
        replace: drop the testcases in MODEL.
        maxerr: tolerance for all outputs or for one; may be repeated (default: 1e-4, 0 for integers; existing checks
            keep theirs); auto: what the rounding error of the first testcase suggests, for new checks without another
            X. In Python, a number, or numbers by output name.
        suggest_maxerr: measure tolerances on the first testcase; new checks get them unless `maxerr` is given.
        policies: criteria for outputs besides the tolerance, such as "prob: cosine>=0.9999, top1=1", "ids: exact" or
            "x: rtol=1e-3, atol=1e-6", stored in the file's record; may be repeated. In Python, policies by name, those
            of all other outputs under the empty name.
        loosen: allow existing checks to be loosened.
        silent: keep MegEngine from printing the errors of failed checks. None is no, or as existing checks are.
        no_assert: embed only the inputs, without outputs and checks.
        record: write provenance, digests and the order of the inputs after the testcases.
        replay: replay the file before it takes its place.
        engine: what computes the outputs.
        passes: keywords of `loadrun.passes.inference.optimize_for_inference`, which changes the graph before it is
            written; None for none. The expected outputs are those of the model before.
        file: how the graph is written.
        open_sizes: leave open the sizes that an ONNX model leaves open, as far as that holds (default: those in which
            data differ).
        prove: how much is proven before a file is written: nothing, what a second allows, or data of every kind; see
            `loadrun.proof`.
        timeout: give up after this time and leave the output file unchanged.
        max_memory: bytes that this process may take beyond what it has; None for what the machine has available
            (Linux).
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
    replay: bool = True
    engine: str = "reference"
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
        limits = memory_limited(self.max_memory), time_limited(self.timeout)
        with limits[0], limits[1], proving(self.prove), stage("packing"):
            yield
