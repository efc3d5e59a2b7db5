"""What the subcommands share: their parser, groups of options."""

import argparse
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from typing import Any, NoReturn, TextIO, TypeVar

from ..base.errors import EXIT_ERROR, UsageError, clean, indented
from ..base.files import files_of, skipped_line
from ..base.registry import late

with late(__name__):
    import difflib

    from ..base import limits as resource_limits, stages
    from . import parsers

T = TypeVar("T")
R = TypeVar("R")
_UNITS = ("", "K", "M", "G", "T")


class _Formatter(argparse.HelpFormatter):
    """Format help as wide as the terminal; argparse's own way of asking for the width imports compression modules."""

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isascii() and columns.isdigit() else 0
        if not width:
            try:
                width = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else -1).columns
            except (OSError, ValueError):
                width = 0
        super().__init__(prog, width=(width or 80) - 2)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        # Of the two spellings of MegEngine's flags, --io-dump and --io_dump, one is shown.
        every = action.option_strings
        action.option_strings = [o for o in every if "_" not in o or o.replace("_", "-") not in every]
        try:
            return super()._format_action_invocation(action)
        finally:
            action.option_strings = every


class Parser(argparse.ArgumentParser):
    """Parse arguments without abbreviations; error messages end by pointing to ``--help``."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)
        self._given: list[str] = []

    def format_help(self) -> str:
        """Return the help, whose first line leaves the options to the list of them."""
        words = [f"{self.prog} [options]"]
        for a in self._actions:
            if a.option_strings and a.required:
                words.append(f"{a.option_strings[0]} {a.metavar}")
            elif not a.option_strings:
                words.append(
                    {
                        "+": f"{a.metavar} [{a.metavar} ...]",
                        "*": f"[{a.metavar} ...]",
                        "?": f"[{a.metavar}]",
                    }.get(str(a.nargs), str(a.metavar))
                )
        self.usage = " ".join(words)
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # noqa: ANN401
        """Parse as argparse does, and keep the arguments for hints in error messages."""
        self._given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def _get_formatter(self) -> argparse.HelpFormatter:
        return _Formatter(self.prog)

    def error(self, message: str) -> NoReturn:
        """Print the message and leave with exit code 2."""
        hints = "".join(f"; {hint}" for hint in self._hints())
        print(
            f"{self.prog}: {clean(message, 500)}{hints}\n`{self.prog} --help` lists the options.",
            file=sys.stderr,
        )
        raise SystemExit(EXIT_ERROR)

    def record(self, kind: Callable[..., R], arguments: Mapping[str, object], **others: object) -> R:
        """Return the options of a command as its record.

        Args:
            kind: the record's class, a dataclass.
            arguments: values by argument name; those that are fields of the record go into it.
            others: values of fields that are no arguments, or that are converted first.
        """
        names = {f.name for f in fields(kind)} - set(others)  # type: ignore[arg-type]
        values = {n: tuple(v) if isinstance(v, list) else v for n, v in arguments.items() if n in names}
        try:
            return kind(**values, **others)
        except UsageError as e:
            self.error(str(e))

    def only(self, arguments: Mapping[str, object], names: Collection[str], why: str) -> None:
        """Refuse options that were given and have no effect.

        Args:
            arguments: values by argument name.
            names: arguments that have one.
            why: the rest of the sentence that begins with the option.
        """
        for action in self._actions:
            changed = arguments.get(action.dest, action.default) != action.default
            if action.option_strings and changed and action.dest not in names:
                self.error(f"{action.option_strings[-1]} {why}")

    def _hints(self) -> Iterator[str]:
        """Yield for each unknown option the known one that it resembles, or else the commands that have it."""
        every = self._option_string_actions
        known = [o for o in every if o.startswith("--") and not ("_" in o and o.replace("_", "-") in every)]
        for text in self._given:
            name = text.split("=")[0]
            if text == "--":
                return
            if name.startswith("--") and name not in every:
                close = [o for o in known if o.startswith(name)] or difflib.get_close_matches(
                    name, known, 1, 0.75
                )
                whole = [o for o in close if all(other.startswith(o) for other in close)]
                if whole:
                    yield f"did you mean {whole[0]} for {clean(name)}?"
                elif owners := parsers.commands_with(name):
                    yield f"{clean(name)} belongs to {' and '.join(owners)}"


def model_files(names: Iterable[str], out: TextIO) -> list[str]:
    """Expand names, patterns and folders to model files; a line says which files in folders were skipped."""
    skipped: list[str] = []
    paths = list(files_of(names, skipped=skipped))
    if line := skipped_line(skipped):
        print(line, file=out)
    return paths


@contextmanager
def limited(max_memory: int | None = None, timeout: float | None = None, doing: str = "") -> Iterator[None]:
    """Hold what runs inside to ``--max-memory`` and ``--timeout``; a terminal shows what it is `doing`, and how long.

    Raises:
        TimeLimitError: it took longer.
    """
    shown = stages.stage(doing) if doing else nullcontext()
    with resource_limits.memory_limited(max_memory), resource_limits.time_limited(timeout), shown:
        yield


def add_quiet_option(p: argparse._ActionsContainer) -> None:
    """Add ``--quiet``."""
    p.add_argument("-q", "--quiet", action="store_true", help="print only problems and the summary")


def integer(
    least: int = 0, most: int = 10**18, what: str = "a whole number of at least {}"
) -> Callable[[str], int]:
    """Make the type of an option with whole numbers in a range, of which `what` says what is expected.

    >>> integer(1)("0")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected a whole number of at least 1, found '0'
    """

    def read(text: str) -> int:
        # Python refuses to read numbers of thousands of digits.
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else -1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"expected {what.format(least)}, found {text!r}")
        return number

    return read


def decimal(
    least: float = 0.0, most: float = sys.float_info.max, what: str = "a number of at least {:g}"
) -> Callable[[str], float]:
    """Make the type of an option with numbers in a range, which NaN and infinity are not.

    >>> decimal()("nan")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected a number of at least 0, found 'nan'
    """

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"expected {what.format(least)}, found {text!r}")
        return number

    return read


whole = integer()
seed = integer(0, 2**64 - 1, "a whole number from 0 to 2**64 - 1")
tolerance = decimal()
seconds = decimal(math.ulp(0.0), 1e8, "a number of seconds above 0")


def slowdown(text: str) -> float:
    """Read a slowdown from a percentage, a factor or a fraction.

    >>> slowdown("50%"), slowdown("1.5x"), slowdown("0.5")
    (0.5, 0.5, 0.5)
    """
    number = text.rstrip("%x")
    try:
        value = tolerance(number)
    except argparse.ArgumentTypeError:
        value = -1.0
    unit = text[len(number) :]
    if unit == "x" and value >= 1:
        return value - 1
    if unit == "%" and value >= 0:
        return value / 100
    if unit == "" and 0 <= value <= 1:
        return value
    if unit == "" and value > 1:
        raise argparse.ArgumentTypeError(
            f"is {number}% or {number}x meant? ({number}x is {100 * (value - 1):g}% slower)"
        )
    raise argparse.ArgumentTypeError(
        f"expected a percentage such as 10% or a factor such as 1.1x, found {text!r}"
    )


def size(value: str) -> int:
    """Read a number of bytes, with an optional suffix K, M, G or T for powers of 1024."""
    digits, unit = (value[:-1], value[-1:].upper()) if value[-1:].upper() in _UNITS[1:] else (value, "")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16) or not int(digits):
        raise argparse.ArgumentTypeError(f"expected a number of bytes, such as 500M or 4G, found {value!r}")
    return int(digits) * 1024 ** _UNITS.index(unit)


def target(value: str) -> str:
    """Read the name of a file to write."""
    if value == "-":
        raise argparse.ArgumentTypeError(
            "this output cannot go to standard output (-); name a file (./- for a file called -)"
        )
    return os.path.expanduser(value)


def warn(text: str) -> None:
    """Print a warning to standard error."""
    print(f"warning: {indented(text)}", file=sys.stderr)


def chosen_data(
    p: Parser, given: Sequence[str] | None, endings: tuple[str, ...] = ()
) -> tuple[tuple[str, ...] | None, str | None]:
    """Return specifications of inputs and the test data of an ONNX model, of which one was given as ``--input``.

    Args:
        p: the parser.
        given: the option's values.
        endings: endings of files that hold test data, besides folders.
    """
    sets = [text for text in given or () if text.lower().endswith(endings) or _holds_sets(text)]
    if sets and given is not None and len(given) > 1:
        p.error(f"{clean(sets[0])} is test data of an ONNX model; give no other data beside it")
    return None if sets or given is None else tuple(given), sets[0] if sets else None


def _holds_sets(text: str) -> bool:
    """Return whether a specification is a folder with the test data of an ONNX model."""
    names = os.listdir(text) if os.path.isdir(text) else ()
    return any(name == "input_0.pb" or name.startswith("test_data_set_") for name in names)


def tolerances(options: list[str] | None) -> float | dict[str, float] | None:
    """Read ``--maxerr``: tolerances by output name, that of all others under the empty name.

    Raises:
        UsageError: no number, or two for one name.

    >>> tolerances(["a=0.5", "b:0=1e-3", "1e-6"])
    {'a': 0.5, 'b:0': 0.001, '': 1e-06}
    """
    if not options:
        return None
    limits: dict[str, float] = {}
    for text in options:
        name, equals, number = text.rpartition("=")
        name = name if equals else ""
        try:
            value = tolerance(number)
        except argparse.ArgumentTypeError as e:
            raise UsageError(f"--maxerr takes a number or NAME=NUMBER: {e}") from None
        if name in limits:
            raise UsageError(
                f"--maxerr is given twice for {f'the output {name!r}' if name else 'all outputs'}"
            )
        limits[name] = value
    return limits[""] if list(limits) == [""] else limits
