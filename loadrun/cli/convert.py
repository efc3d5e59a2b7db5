"""`loadrun convert A B`: a model in another format, by the endings of the names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..base.errors import UsageError
from ..base.files import one_file
from ..base.text import clean
from ..dump import save
from ..report.text import table
from ..testcase import Bundle
from .groups import EXIT_PASS, Parser, target
from .inputs import add_dump_option, load_dump
from .models import add_model_options, model_options

__all__ = ["main"]

_ENDINGS = (".mge", ".onnx")


def parser() -> Parser:
    """The options of `loadrun convert`."""
    p = Parser(
        prog="loadrun convert",
        description="Convert the model in A and write it to B; the endings name the formats: "
        ".mge (MegEngine) or .onnx. Testcases go "
        "along: into a .mge file, or beside a file B.onnx as B.test_data_set_N.",
    )
    p.add_argument("source", metavar="A", help="the file to read")
    p.add_argument("target", metavar="B", type=target, help="the file to write")
    p.add_argument(
        "--format", choices=("FBS_V2", "FBS"), help="version of a .mge file (default that of A, or FBS_V2)"
    )
    add_dump_option(p)
    add_model_options(p)
    g = p.add_argument_group("writing ONNX")
    g.add_argument(
        "--opset", type=int, metavar="N", help="version of the operators, 7 to 26 (default 18 or later)"
    )
    g.add_argument(
        "--dynamic",
        action="append",
        metavar="INPUT:AXIS=NAME",
        help="a size that may change, such as data:0=batch (default: where the testcases of A differ)",
    )
    g.add_argument("--external-data", action="store_true", help="weights in a file of their own, B.data")
    g.add_argument(
        "--verify",
        action="store_true",
        help="check B with onnx.checker and compare ONNX Runtime with loadrun",
    )
    p.add_argument("-q", "--quiet", action="store_true", help="print no table")
    return p


def main(argv: list[str]) -> int:
    """Convert; 2 when something fails, and then B is as it was."""
    options = parser()
    args = options.parse_args(argv)
    args.source = one_file(args.source)
    source, ending = _ending(args.source), _ending(args.target)
    given = [n for n in ("opset", "dynamic", "external_data", "verify") if getattr(args, n)]
    if ending == ".mge" and given:
        options.error(f"--{given[0].replace('_', '-')} is for writing .onnx files")
    if ending == ".onnx" and source == ".onnx":
        options.error("A is an ONNX model already; B must end in .mge")
    if ending == ".onnx" and args.format:
        options.error("--format is for writing .mge files")
    bundle = load_dump(args.source, args.dump, **model_options(args))
    if ending == ".mge":
        found = save(bundle, args.target, format=args.format)
        count = len(bundle.testcases)
        text = f"{found.nr_opr} operators, {count} testcase{'s' * (count != 1)}"
    else:
        text = _to_onnx(bundle, args)
    print(f"{clean(args.target, 200)}: {text}, {Path(args.target).stat().st_size} bytes")
    return EXIT_PASS


def _ending(path: str) -> str:
    """The ending of a name.

    Raises:
        UsageError: it names no format.
    """
    found = Path(path).suffix.lower()
    if found not in _ENDINGS:
        raise UsageError(
            f"{clean(path, 200)}: the name must end in {' or '.join(_ENDINGS)} to say the format"
        )
    return found


def _to_onnx(bundle: Bundle, args: object) -> str:
    from ..onnx import export  # for start-up

    options = vars(args)
    made = export(
        bundle,
        f=options["target"],
        opset_version=options["opset"],
        dynamic_axes=_dynamic(options["dynamic"]) if options["dynamic"] else None,
        external_data=options["external_data"],
        verify=options["verify"],
    )
    if not options["quiet"]:
        rows = [(clean(text, 100), clean(where)) for text, where in made.approximated.items()]
        if rows:
            print(table(rows, ("approximated", "first at")))
            print()
        compared = [(clean(v.output), clean(v.sizes), f"{v.error:.3g}", v.quanta) for v in made.verification]
        if compared:
            print(table(compared, ("verified", "at", "error", "quanta"), right=(2, 3)))
            print()
    sets = made.test_data_sets
    also = f", {sets} test data set{'s' * (sets != 1)}" if sets else ""
    return f"opset {made.opset_version}, {len(made.written.model.graph.nodes)} nodes{also}"


def _dynamic(given: Iterable[str]) -> dict[str, dict[int, str]]:
    """What the ``--dynamic`` options say.

    Raises:
        UsageError: one is not of the form INPUT:AXIS=NAME.

    >>> _dynamic(["data:0=batch", "a:b:1=n"])
    {'data': {0: 'batch'}, 'a:b': {1: 'n'}}
    """
    found: dict[str, dict[int, str]] = {}
    for text in given:
        place, equals, symbol = text.rpartition("=")
        name, colon, axis = place.rpartition(":")
        if not (equals and colon and name and symbol) or not axis.lstrip("-").isdigit():
            raise UsageError(f"--dynamic takes INPUT:AXIS=NAME, such as data:0=batch, found {clean(text)!r}")
        found.setdefault(name, {})[int(axis)] = symbol
    return found
