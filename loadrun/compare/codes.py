"""Exit codes: what verdicts come to for a shell."""

from __future__ import annotations

from collections.abc import Iterable

from ..base.failures import EXIT_ERROR, EXIT_FAULT
from .results import Verdict

__all__ = [
    "EXIT_CRASH",
    "EXIT_ERROR",
    "EXIT_FAIL",
    "EXIT_FAULT",
    "EXIT_NOT_COMPARED",
    "EXIT_PASS",
    "EXIT_TIMEOUT",
    "exit_code",
]

EXIT_PASS, EXIT_FAIL, EXIT_NOT_COMPARED = 0, 1, 3
EXIT_TIMEOUT, EXIT_CRASH = 4, 5
_CODES = {
    Verdict.CRASH: EXIT_CRASH,
    Verdict.TIMEOUT: EXIT_TIMEOUT,
    Verdict.ERROR: EXIT_ERROR,
    Verdict.FAIL: EXIT_FAIL,
}
"""Exit codes of verdicts; the first that is there counts."""


def exit_code(verdicts: Iterable[Verdict], *, no_check: bool = False, fault: bool = False) -> int:
    """Return the exit code for the verdicts of all files.

    A bug in loadrun outweighs a crash, that a timeout, that an error, that a failed check, and that a file with
    nothing compared.

    >>> exit_code([Verdict.PASS, Verdict.FAIL])
    1
    >>> exit_code([Verdict.PASS, Verdict.NOT_COMPARED]), exit_code([Verdict.NOT_COMPARED], no_check=True)
    (3, 0)
    """
    found = set(verdicts)
    if fault:
        return EXIT_FAULT
    for verdict, code in _CODES.items():
        if verdict in found:
            return code
    if Verdict.NOT_COMPARED in found or not found:
        return EXIT_PASS if no_check else EXIT_NOT_COMPARED
    return EXIT_PASS
