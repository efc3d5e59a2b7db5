"""Replaying: a bundle on an engine (`running`), or the model's own file on a runtime that reads it (`native`)."""

from ..compare.results import FileResult, OutputResult, Result, Verdict
from ..inputs.feeds import fit_inputs, random_inputs
from .running import Runner, faulty, own_errors, run

__all__ = [
    "FileResult",
    "OutputResult",
    "Result",
    "Runner",
    "Verdict",
    "faulty",
    "fit_inputs",
    "own_errors",
    "random_inputs",
    "run",
]
