"""Replaying a file that was just written, before it takes its place: whatever was requested, it must run and hold."""

import numpy as np

from ...base.errors import EngineError, FormatError, LoadRunError
from ...base.files import give_back_pages
from ...base.stages import stage
from ...compare.judging import ABSURD
from ...compare.results import OutputResult, Verdict
from ...dump import load_all
from ...engines import Choice
from ...graph.dtypes import Array
from ...runner import Runner


class TrialReplay:
    """The replay of a file that was just written, before it takes its place.

    Args:
        engine: name of the engine, or a `loadrun.engines.Choice`.
        seed: seed of random operators, that of the ground truth.
    """

    def __init__(self, engine: str | Choice = "reference", seed: int = 0) -> None:
        self.engine, self.seed = engine, seed
        self.failed: list[str] = []
        """Outputs whose checks do not hold, or compare nothing."""
        self._blind: list[str] = []

    @stage("replaying the written file")
    def look(self, path: str) -> None:
        """Replay the last dump of a file.

        Raises:
            FormatError: it cannot be read, or does not run.
        """
        # What the model was read from lies in memory beside what is read now.
        give_back_pages()
        try:
            written = load_all(path)[-1]
            for result in Runner(written, self.engine, seed=self.seed).replay():
                if result.verdict is Verdict.ERROR:
                    raise EngineError(str(result.message))
                for o in result.outputs:
                    if o.verdict is Verdict.FAIL and _is_finite(o.expect):
                        self.failed.append(f"{o.name} of testcase {result.index}")
                    elif _is_blind(o):
                        self.failed.append(f"{o.name} of testcase {result.index}")
                        self._blind.append(f"the check of {o.name} compares nothing: {o.reason}")
        except LoadRunError as e:
            raise FormatError(
                f"with these options the file would not run, so it was not written: {e}; leave out options that change "
                "the graph, or testcases whose sizes differ from the first"
            ) from e

    def warning(self) -> str | None:
        """Say which checks fail, None if every one holds."""
        if not self.failed:
            return None
        if self._blind:
            return f"the written file fails its checks: {self._blind[0]}"
        more = f" and {len(self.failed) - 3} more" if len(self.failed) > 3 else ""
        return (
            f"the written file fails its checks: {', '.join(self.failed[:3])}{more}; the options or the values (NaN, "
            "random numbers) change the outputs beyond maxerr"
        )


def _is_blind(output: OutputResult) -> bool:
    """Return whether a check misses faults for another reason than the tolerance that was requested."""
    unseen = output.verdict is Verdict.NOT_COMPARED and output.expect is not None
    return unseen and not (output.reason or "").startswith(ABSURD)


def _is_finite(value: Array | None) -> bool:
    """Return whether a check of a value can hold; that it cannot is told when it is captured."""
    return value is None or value.dtype.kind != "f" or bool(np.isfinite(value).all())
