"""A report as one HTML page that needs nothing else: no fonts, images or scripts from elsewhere."""

import io
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TextIO

from ..base.errors import clean
from ..base.plain import plain
from ..runner import FileResult, OutputResult, Result, Verdict
from ..verify.bench import Timing
from ..verify.pictures import Picture
from .engines import entrants_lines
from .page import FOOT, HEAD, Series, bars, error_map, histogram, table_head, times
from .text import engine, shape_text, summary, timing_line, verdict_text

_ROWS = 100
"""Outputs of a file that pass and have a row; those that fail have one up to ten times as many."""
_PICTURED = 3
"""Files of one cause that show pictures: more of them would say the same."""
_LINKS = 5
"""Files of one cause that are named."""
_LOW, _HIGH = -8, 4
"""Decades of an error's part of its tolerance that the chart shows."""
_BAD = (Verdict.CRASH, Verdict.TIMEOUT, Verdict.ERROR, Verdict.FAIL)
_ORDER = (Verdict.CRASH, Verdict.TIMEOUT, Verdict.ERROR, Verdict.FAIL, Verdict.NOT_COMPARED, Verdict.PASS)


class HtmlWriter:
    """Writes a page at its end, because the overview stands before the sections of files.

    Args:
        file: where the text goes.
        about: environment and options of the run.

    >>> import io, loadrun
    >>> text, found = io.StringIO(), FileResult("fixtures/nets/mlp.mge")
    >>> page = HtmlWriter(text)
    >>> page.begin(found)
    >>> for result in loadrun.run(found.path):
    ...     found.add(result)
    ...     page.add(result)
    >>> page.end(found)
    >>> page.close(0)
    >>> text.getvalue().count("<tr class=pass")
    4
    """

    def __init__(self, file: TextIO, about: Mapping[str, Any] | None = None) -> None:
        self.file = file
        self._about = dict(about or {})
        self._skipped: dict[str, str] = self._about.pop("skipped", {})
        self._sections = io.StringIO()
        self._files: list[FileResult] = []
        self._index: list[tuple[int, str]] = []
        self._broke: dict[tuple[str, str], list[tuple[int, str, str]]] = {}
        self._decades: Counter[int] = Counter()
        self._start()

    def _start(self) -> None:
        self._rows: list[str] = []
        self._figures: list[str] = []
        self._beside: dict[tuple[str, str], dict[str, str]] = {}
        self._engines: dict[str, None] = {}
        self._left: dict[Verdict, int] = {}
        self._times = Series()
        self._facts: dict[str, Any] = {}
        self._case = ""
        self._failed = ""
        self._limits: dict[str, float | None] = {}
        self._worst = 0.0
        self._seconds = 0.0

    def begin(self, file: FileResult, facts: Mapping[str, Any] | None = None) -> None:
        """Begin a file; its results follow."""
        self._start()
        self._facts = dict(facts or {})

    def add(self, result: Result, extra: Mapping[str, Any] | None = None) -> None:
        """Take a result of the file."""
        self._case = "-" if result.index is None else str(result.index)
        if result.choice is not None:
            self._case += f" {clean(result.choice, 60)}"
            self._compare(result)
        self._times.add(result.seconds)
        self._seconds += result.seconds
        self._limits = {o.name: o.tolerance.maxerr for o in result.outputs}
        if result.verdict is Verdict.ERROR:
            self._failed = self._failed or (result.message or "").partition("\n")[0]
            self._row(Verdict.ERROR, [self._case, "", "", "", "", "", "error", ""], result.message or "")
        for i, out in enumerate(result.outputs):
            maxerr = out.tolerance.maxerr
            if out.error is not None and maxerr:
                self._worst = max(self._worst, out.error / maxerr)
                self._decades[_decade(out.error / maxerr)] += 1
            if out.verdict is Verdict.FAIL and not self._failed:
                self._failed = f"output {out.name}: {(_details(out) or 'the check failed').splitlines()[0]}"
            cells = [
                self._case,
                clean(out.name),
                shape_text(out.shape),
                out.dtype.text,
                "" if out.error is None else f"{out.error:.4g}",
                "" if maxerr is None else f"{maxerr:.4g}",
                verdict_text(out, result) + (" LOOSENED" if out.tolerance.loosened is not None else ""),
                f"{result.seconds * 1e3:.2f}" if i == 0 else "",
            ]
            self._row(out.verdict, cells, _details(out))

    def picture(self, name: str, picture: Picture) -> None:
        """Errors of an output of the last result."""
        head = f"<h4>testcase {escape(self._case)}, output {escape(clean(name))}</h4>"
        plots = histogram(picture, self._limits.get(name)) + error_map(picture)
        self._figures.append(f"<div class=picture>{head}<div class=plots>{plots}</div></div>")

    def graph(self, drawing: str) -> None:
        """Show the operators to blame, with those around them."""
        if drawing:
            self._figures.append(f"<h4>the operators to blame</h4>{drawing}\n")

    def _compare(self, result: Result) -> None:
        """Note a result of one of several engines for the table in which they stand side by side."""
        assert result.choice is not None
        self._engines[result.choice] = None
        case = "-" if result.index is None else str(result.index)
        if result.message is not None:
            said = escape(clean(result.message, 80))
            self._beside.setdefault((case, ""), {})[result.choice] = (
                f"<td class={_class(result.verdict)}>{said}</td>"
            )
        for out in result.outputs:
            if len(self._beside) >= _ROWS and (case, out.name) not in self._beside:
                return
            apart = result.apart.get(out.name)
            errors = ["" if out.error is None else f"{out.error:.3g}"]
            errors += [] if apart is None else [f"{apart.max_error:.3g} from the first"]
            said = "; ".join(x for x in errors if x) or out.verdict.value
            cell = f"<td class={_class(out.verdict)}>{escape(said)}</td>"
            self._beside.setdefault((case, out.name), {})[result.choice] = cell

    def _side_by_side(self) -> str:
        """Return the table of the engines: a row for each testcase and output, a column for each engine."""
        if len(self._engines) < 2:
            return ""
        rows = (
            f"<tr><td>{case}</td><td>{escape(clean(name))}</td>"
            + "".join(cells.get(engine, "<td></td>") for engine in self._engines)
            + "</tr>"
            for (case, name), cells in self._beside.items()
        )
        head = table_head(("testcase", "output", *self._engines))
        return f"<h4>engines, by their errors</h4><table class=engines>{head}<tbody>{''.join(rows)}</tbody></table>"

    def _row(self, verdict: Verdict, cells: Sequence[str], said: str) -> None:
        most = _ROWS if verdict is Verdict.PASS else 10 * _ROWS
        if len(self._rows) >= most:
            self._left[verdict] = self._left.get(verdict, 0) + 1
            return
        inside = "".join(f"<td>{escape(c)}</td>" for c in cells)
        row = f"<tr class={_class(verdict)}>{inside}</tr>"
        if said:
            row += f'<tr class=said><td></td><td colspan="7"><pre>{_lines(said)}</pre></td></tr>'
        self._rows.append(row)

    def end(self, file: FileResult, timings: Sequence[Timing] = (), explanation: Sequence[str] = ()) -> None:
        """End a file with what its results come to."""
        number = len(self._files)
        self._files.append(file)
        name = escape(clean(file.path, 300))
        verdict = file.verdict
        open_ = "" if verdict is Verdict.PASS else " open"
        out = self._sections
        badge = f"<span class='badge {_class(verdict)}'>{verdict.value}</span>"
        out.write(f'<details id="f{number}"{open_}><summary>{badge} <b>{name}</b></summary>\n')
        if file.failure is not None:
            out.write(f"<pre class=message>{_lines(file.failure.message)}</pre>\n")
        for w in file.warnings:
            out.write(f"<p class=warning>warning: {escape(clean(w, 500))}</p>\n")
        for line in [*entrants_lines(list(file.entrants.values())), engine(file)]:
            if line:
                out.write(f"<p class=engine>{escape(line.strip())}</p>\n")
        out.write(pairs(self._facts))
        out.write(self._side_by_side())
        if self._rows:
            heads = ("testcase", "output", "shape", "dtype", "max error", "tolerance", "verdict", "ms")
            out.write(f"<table class=outputs>{table_head(heads)}<tbody>\n")
            out.write("\n".join(self._rows))
            out.write("</tbody></table>\n")
        for kind, n in self._left.items():
            out.write(f"<p class=more>... and {n} more rows: {kind.value}</p>\n")
        if explanation:
            out.write(f"<h4>where it diverged</h4><pre>{_lines(explanation, 500)}</pre>\n")
        if verdict in _BAD and not file.excused:
            self._blame(number, file, _cause(file, explanation, self._failed))
        out.write("".join(self._figures))
        if self._times.count > 1:
            out.write(f"<div class=plots>{times(self._times)}</div>\n")
        for timing in timings:
            drawn = times(Series(timing.samples))
            out.write(f"<p>{escape(timing_line(timing))}</p><div class=plots>{drawn}</div>\n")
        out.write("</details>\n")
        self._index.append((_ORDER.index(verdict), self._overview(number, name, file)))

    def _blame(self, number: int, file: FileResult, cause: str) -> None:
        """Note why a file does not pass; of many with one cause, the first ones keep their pictures."""
        key = os.path.dirname(file.path), _alike(cause)
        files = self._broke.setdefault(key, [])
        files.append((number, os.path.basename(file.path), cause))
        if len(files) > _PICTURED and self._figures:
            self._figures = [
                f"<p class=more>pictures: see the first {_PICTURED} files of the same cause</p>\n"
            ]

    def _overview(self, number: int, name: str, file: FileResult) -> str:
        word = "xfail" if file.excused else file.verdict.value
        n, seconds = file.counts, file.load_seconds + self._seconds
        checks = f"{n.passed} passed" if n.passed else ""
        if n.failed:
            checks = f"{n.failed} of {n.passed + n.failed} failed"
        used = f"{100 * self._worst:.3g} %" if self._worst <= 1 else f"{self._worst:.4g}×"
        cells = [word, f'<a href="#f{number}">{name}</a>', str(n.testcases), checks]
        cells.append(used if n.passed + n.failed else "")
        cells.append(f"{seconds * 1e3:.1f}")
        values = ("", "", n.testcases, n.failed or -n.passed, self._worst, seconds)
        inside = "".join(
            f'<td data-value="{v}">{c}</td>' if v != "" else f"<td>{c}</td>"
            for c, v in zip(cells, values, strict=True)
        )
        return f'<tr class={word.replace(" ", "-")} data-part="f{number}">{inside}</tr>'

    def close(self, exit_code: int) -> None:
        """End the page; the file stays open."""
        out = self.file
        out.write(HEAD)
        # Where nothing was compared, a run that was allowed not to compare is no success either.
        good = exit_code == 0 and any(f.counts.passed for f in self._files)
        out.write(f"<p class='total {'pass' if good else 'fail'}'>{escape(summary(self._files))}</p>\n")
        out.write(self._what_broke() + self._chart(exit_code))
        heads = table_head(("verdict", "file", "testcases", "checks", "error / tolerance", "ms"))
        out.write(f"<div class=wide><table class='overview files'>{heads}<tbody>\n")
        rows = [row for _, row in sorted(self._index, key=lambda pair: pair[0])]
        for path, why in self._skipped.items():
            said = f"{escape(clean(path, 300))}<br>{escape(clean(why, 300))}"
            rows.append(f"<tr class=skipped><td>skipped</td><td>{said}</td>{'<td></td>' * 4}</tr>")
        out.write("\n".join(rows))
        out.write("</tbody></table></div>\n<h2>Files</h2>\n")
        out.write(self._sections.getvalue())
        out.write(FOOT)

    def _what_broke(self) -> str:
        """Return the table of causes, those of most files first."""
        if not self._broke:
            return ""
        rows = []
        for (folder, _), files in sorted(self._broke.items(), key=lambda item: -len(item[1])):
            links = [f'<li><a href="#f{n}">{escape(clean(name, 120))}</a>' for n, name, _ in files[:_LINKS]]
            links += [f"<li>and {len(files) - _LINKS} more"] if len(files) > _LINKS else []
            rows.append(
                f"<tr><td>{len(files)}</td><td>{escape(clean(folder or '.', 200))}</td>"
                f"<td>{escape(clean(files[0][2], 300))}<ul>{'</li>'.join(links)}</li></ul></td></tr>\n"
            )
        return (
            "<section aria-labelledby=broke><h2 id=broke>What broke</h2><table class=broke>"
            f"{table_head(('files', 'folder', 'cause'))}<tbody>\n{''.join(rows)}</tbody></table></section>\n"
        )

    def _chart(self, exit_code: int) -> str:
        """Return the errors against their tolerances, with the environment beside them."""
        counts = [self._decades[d] for d in range(_LOW, _HIGH)]
        said = [f"an error of 1e{d} to 1e{d + 1} of the tolerance: {n}" for d, n in enumerate(counts, _LOW)]
        caption = "outputs by error / tolerance; right of the dashed line they fail"
        drawn = bars(counts, said, caption, (f"1e{_LOW}", f"1e{_HIGH}"), -_LOW) if sum(counts) else ""
        about = pairs({**self._about, "exit_code": exit_code})
        return f"<div class=top>{drawn}<details><summary>Environment</summary>{about}</details></div>\n"


def _decade(share: float) -> int:
    """Return the decade of an error's part of its tolerance, the nearest that the chart has.

    >>> _decade(0.5), _decade(2.0), _decade(0.0), _decade(math.nan)
    (-1, 0, -8, 3)
    """
    if not share <= 10.0**_HIGH:
        return _HIGH - 1
    return max(_LOW, min(_HIGH - 1, math.ceil(math.log10(share)) - 1)) if share > 0 else _LOW


def _cause(file: FileResult, explanation: Sequence[str], failed: str) -> str:
    """Return why a file does not pass: the operator to blame, what stopped it, or its first failing output."""
    blamed = (line.strip() for line in explanation)
    first = next((line for line in blamed if line.startswith("to blame: ")), "")
    return first or ("" if file.failure is None else file.failure.message.partition("\n")[0]) or failed


def _alike(cause: str) -> str:
    """Return what causes of one kind have in common.

    >>> _alike("3 of 10 values exceed the tolerance") == _alike("4 of 12 values exceed the tolerance")
    True
    """
    return re.sub(r"\d[\d.e+-]*", "0", cause)


def _lines(text: str | Sequence[str], most: int = 2000) -> str:
    """Return lines as they stand in a page, each cut to some characters."""
    return escape(
        "\n".join(clean(line, most) for line in (text.splitlines() if isinstance(text, str) else text))
    )


def _class(verdict: Verdict) -> str:
    return verdict.value.replace(" ", "-")


def _details(out: OutputResult) -> str:
    """Return what is said below the row of an output."""
    lines = [f"not compared: {out.reason}"] if out.reason else []
    if out.verdict is Verdict.FAIL and out.comparison is not None:
        lines.append(out.comparison.explain())
    return "\n".join([*lines, *out.notes])


def pairs(data: Mapping[str, Any]) -> str:
    """Nested data as a list of names and values."""
    if not data:
        return ""
    items = []
    for key, value in plain(data).items():
        inside = _value(value)
        items.append(f"<dt>{escape(clean(str(key)))}</dt><dd>{inside}</dd>")
    return f"<dl>{''.join(items)}</dl>\n"


def _value(value: object) -> str:
    if isinstance(value, dict):
        said = ", ".join(f"{k} {v}" for k, v in value.items() if not isinstance(v, (dict, list)))
        nested = "".join(pairs({k: v}) for k, v in value.items() if isinstance(v, (dict, list)) and v)
        return escape(clean(said, 1000)) + nested
    if isinstance(value, list) and all(isinstance(v, dict) for v in value):
        return "<br>".join(
            _value(v | {"shape": shape_text(v.get("shape"))} if "shape" in v else v) for v in value
        )
    return escape(clean(str(value), 1000))
