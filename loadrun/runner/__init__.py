"""Replaying a bundle on an engine: one `Result` per testcase, with a verdict for every output."""

from ..compare.results import FileResult, OutputResult, Result, Verdict
from ..inputs.feeds import fit_inputs, random_inputs
from .plan import check_errors
from .runner import Runner, run
from .sized import faulty

__all__ = ["Runner", "check_errors", "faulty", "fit_inputs", "random_inputs", "run"]
__all__ += ["FileResult", "OutputResult", "Result", "Verdict"]
