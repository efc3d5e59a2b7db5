"""Specifications from arguments and list files, one after another, so that memory does not grow with their number."""

import glob
import io
import os
import select
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from .. import inputspec
from ..base import pointing
from ..base.errors import SpecError
from ..base.files import files_of, opened
from ..graph.dtypes import Array, numpy_array

_DATA = (".npy", ".npz", ".json", ".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of the files that a folder of data stands for."""
_MAX_DEPTH = 16
_MAX_LINE = 2**20
_MAX_PIPE = 2**24
_MOST_TIMES = 8
_MIN_UNFOLDED = 2**18
"""Maximum total bytes of small list files that include one another."""
_PATIENCE = 10


@dataclass(frozen=True)
class LocatedSpec:
    """A specification and where it stands.

    Attributes:
        spec: what was parsed; never a list file.
        where: ``list.txt:3``, ``specification 2``, or empty when there is only one.
        folder: the list file's folder, which its paths start from; None outside list files.
    """

    spec: inputspec.InputSpec
    where: str = ""
    folder: Path | str | None = None

    @property
    def text(self) -> str:
        """The specification as it was given, or would be."""
        return self.spec.text or str(self.spec)

    def fault(self, message: str) -> SpecError:
        """Make an error that says where the specification stands and shows it."""
        message = pointing.point(message, self.text, 0)
        return SpecError(f"{self.where}: {message}" if self.where else message)

    def path(self, path: str) -> str:
        """Return a path of the specification as the process can open it.

        Paths in a list file start from the list's own folder; one that is not there is looked for in the current
        folder, where MegEngine looks.
        """
        if path.startswith("~") and not os.path.exists(path):
            path = os.path.expanduser(path)
        if self.folder is None or os.path.isabs(path):
            return path
        beside = os.path.join(self.folder, path)
        return path if not os.path.exists(beside) and os.path.exists(path) else beside


def expand(specs: inputspec.InputData | Iterable[inputspec.InputData]) -> Iterator[LocatedSpec]:
    """Yield every specification in order, those of list files in their place.

    List files are UTF-8 text with a specification a line. Blank lines are skipped, and comments: lines that start
    with ``#`` and no letter right after it. A line ``@other.txt`` takes in another list file. A folder, or a pattern
    such as ``*.png`` that no file is called like, makes one of each file that it stands for.

    Raises:
        SpecError: a specification is malformed, a list file cannot be read, is empty or takes in itself; the
            message names list file and line.

    >>> [str(case.spec) for case in expand(["#rand(0, 1)", "data:[1, 2]"])]
    ['#rand(0,1)', 'data:[1,2]']
    """
    entries = located(specs)

    def cases() -> Iterator[LocatedSpec]:
        unfolded = _Unfolded()
        for case in entries:
            if case.spec.listed is None:
                yield from _matching(case)
            else:
                yield from _lines(case.spec.listed, case, (), unfolded)

    return cases()


def files_named(specs: Iterable[inputspec.InputData]) -> list[str]:
    """List the files named directly in specifications; malformed ones are reported when loaded.

    >>> files_named(["a:x.npy; b:y.npz!k", "@list.txt", "#rand(0,1)", "a:[1"])
    ['x.npy', 'y.npz', 'list.txt']
    """
    paths = []
    for text in specs:
        if not isinstance(text, str):
            continue
        try:
            spec = inputspec.parse(text)
        except SpecError:
            continue
        paths += [p.source.path for p in spec.parts if isinstance(p.source, inputspec.PathSource)]
        paths += [spec.listed.path] if spec.listed is not None else []
    return paths


def _matching(case: LocatedSpec) -> Iterator[LocatedSpec]:
    """Yield the specification itself, or one for each file that a pattern or a folder in it stands for."""
    paths = {
        i: p.source.path for i, p in enumerate(case.spec.parts) if isinstance(p.source, inputspec.PathSource)
    }
    # A long specification may contain a path many times.
    standing = {path: _several(case.path(path)) for path in set(paths.values())}
    matches = [(i, standing[path]) for i, path in paths.items() if standing[path]]
    if not matches:
        yield case
        return
    if len(matches) > 1:
        raise case.fault("a specification may have only one pattern or folder, found two")
    at, files = matches[0]
    for file in files:
        parts = list(case.spec.parts)
        source = parts[at].source
        assert isinstance(source, inputspec.PathSource)
        parts[at] = replace(
            parts[at],
            source=inputspec.PathSource(os.path.abspath(file), source.member),
        )
        where = ", ".join(filter(None, (case.where, os.path.basename(file))))
        yield LocatedSpec(replace(case.spec, parts=tuple(parts)), where, case.folder)


def _several(path: str) -> list[str]:
    """Return the files that a folder or pattern stands for."""
    if "\0" in path:
        return []
    if os.path.isdir(path):
        names = sorted(n for n in os.listdir(path) if n.lower().endswith(_DATA) and not n.startswith("."))
        return [os.path.join(path, n) for n in names]
    if os.path.lexists(path) or not (glob.has_magic(path) or path.startswith("~")):
        return []
    paths = [p for p in files_of([path], _DATA) if os.path.isfile(p)]
    return [] if paths == [path] or paths == [os.path.expanduser(path)] else paths


class _Unfolded:
    """The total size of the list files, those included counted each time; it is bounded by their size."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.read = 0

    def add(self, real: str, size: int) -> bool:
        """Count a list file that is about to be read; return whether the total is still in proportion."""
        self.sizes[real] = size
        self.read += size
        return self.read <= _MIN_UNFOLDED + _MOST_TIMES * sum(self.sizes.values())


def read_pipes(specs: Sequence[inputspec.InputData]) -> list[inputspec.InputData]:
    """Replace lists that are not regular files by their lines, since such can be read only once.

    Raises:
        SpecError: nobody writes to the pipe, or it gives more than a list may have.
    """
    lines: list[inputspec.InputData] = []
    for text in specs:
        listed = (
            inputspec.parse(text).listed if isinstance(text, str) and text.lstrip().startswith("@") else None
        )
        try:
            pipe = listed is not None and not stat.S_ISREG(os.stat(listed.path).st_mode)
        except (OSError, ValueError):
            pipe = False
        if listed is None or not pipe or os.path.isdir(listed.path):
            lines.append(text)
            continue
        with _pipe(listed.path) as f:
            lines += [line for _, line in _text_lines(f, listed.path)]
    return lines


def _pipe(path: str) -> BinaryIO:
    """Open something other than a regular file; a pipe without a writer would block forever."""
    if not hasattr(select, "poll"):
        # Windows can wait only for sockets.
        return os.fdopen(os.open(path, os.O_RDONLY), "rb")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    if not waiting.poll(_PATIENCE * 1000):
        os.close(fd)
        raise SpecError(f"no data came through the pipe {path} for {_PATIENCE} seconds")
    os.set_blocking(fd, True)
    return os.fdopen(fd, "rb")


def items_of(specs: inputspec.InputData | Iterable[inputspec.InputData]) -> list[inputspec.InputData]:
    """List what makes a testcase each: one text, array or dict stands for itself.

    >>> items_of("#rand(0,1)"), items_of([{"x": 1}, "#ones"])
    (['#rand(0,1)'], [{'x': 1}, '#ones'])
    """
    if isinstance(specs, (str, Mapping)) or hasattr(specs, "__array__") or not isinstance(specs, Iterable):
        return [specs]
    return list(specs)


def located(specs: inputspec.InputData | Iterable[inputspec.InputData]) -> list[LocatedSpec]:
    """Parse the specifications, without opening list files among them; arrays are taken as they are.

    Raises:
        SpecError: one is malformed, or there is none.
    """
    texts = items_of(specs)
    if not texts:
        raise SpecError("no input specification was given")
    cases = []
    for i, text in enumerate(texts):
        where = f"specification {i + 1}" if len(texts) > 1 else ""
        cases.append(LocatedSpec(_parse(text, where), where))
    return cases


def count_cases(specs: inputspec.InputData | Iterable[inputspec.InputData]) -> int:
    """Count the testcases that the specifications stand for; reads list files, and nothing that they name.

    Raises:
        SpecError: as `expand`, so this is also the check of all texts before the first one is loaded.
    """
    return sum(1 for _ in expand(specs))


class TextSource:
    """The text that a testcase comes from, with its line in a list file; for messages.

    Asked for testcases in their order, of each as many times as there is something to say, it reads the lists once.
    """

    def __init__(self, specs: inputspec.InputData | Iterable[inputspec.InputData]) -> None:
        self._specs = specs
        self._begin()

    def _begin(self) -> None:
        self._at, self._text = -1, ""
        self._rest = expand(self._specs)

    def __call__(self, index: int) -> str:
        """Return what is said of testcase `index`, counted over all specifications."""
        if index < self._at:
            self._begin()
        if index > self._at:
            case = next(islice(self._rest, index - self._at - 1, None))
            self._at, self._text = index, f"{case.where}: {case.text}" if case.where else case.text
        return self._text


def _parse(text: inputspec.InputData, where: str) -> inputspec.InputSpec:
    try:
        return inputspec.parse(text) if isinstance(text, str) else _given(text)
    except SpecError as e:
        raise SpecError(f"{where}: {e}" if where else str(e)) from None


def _given(data: inputspec.InputData) -> inputspec.InputSpec:
    """Return the specification that stands for an array, or for arrays and texts by input name."""
    if not isinstance(data, Mapping):
        if not (hasattr(data, "__array__") or hasattr(data, "detach")):
            raise SpecError(
                "a specification must be a string such as 'data:cat.jpg', an array, or a dict of arrays by input name, "
                f"found {type(data).__name__} {data!r:.60}"
            )
        return inputspec.InputSpec((inputspec.InputPart(None, inputspec.ArraySource(_array(data))),))
    parts = []
    for name, value in data.items():
        source: inputspec.Source
        if isinstance(value, str):
            text = inputspec.parse(value)
            if len(text.parts) != 1 or text.parts[0].name is not None:
                raise SpecError(
                    f"the data of {name!r} must be one source such as '#rand(0,1)', found {value!r:.80}"
                )
            source = text.parts[0].source
        else:
            source = inputspec.ArraySource(_array(value))
        parts.append(inputspec.InputPart(str(name), source))
    return inputspec.InputSpec(tuple(parts))


def _array(value: object) -> Array:
    """Return an array or tensor of any package as an ndarray.

    Raises:
        SpecError: it is something else.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        array = numpy_array(value)
    except (ValueError, TypeError, RuntimeError) as e:
        raise SpecError(f"{type(value).__name__} cannot be converted to an array: {e}") from None
    if array.dtype.kind not in "fiubc":
        raise SpecError(f"input data must be numbers, found {type(value).__name__} {value!r:.60}")
    return array


def _lines(
    listed: inputspec.ListFile, case: LocatedSpec, above: Sequence[str], unfolded: _Unfolded
) -> Iterator[LocatedSpec]:
    """Yield the specifications of a list file; `above` are the list files that led here."""
    path = case.path(listed.path)
    if "\0" in path:
        raise case.fault(f"a path cannot contain a null character: {listed.path!r:.80}")
    real = os.path.realpath(path)
    if real in above:
        raise case.fault(f"the list file {listed.path} includes itself")
    if len(above) >= _MAX_DEPTH:
        raise case.fault(f"list files are nested more than {_MAX_DEPTH} deep")
    empty = True
    folder = Path(path).parent
    try:
        with opened(path, "a list file") as f:
            if not unfolded.add(real, os.fstat(f.fileno()).st_size):
                raise case.fault(
                    f"list files that include one another expand to more than {_MOST_TIMES} times their size"
                )
            for number, line in _text_lines(f, path):
                empty = False
                here = LocatedSpec(_line(line, f"{path}:{number}"), f"{path}:{number}", folder)
                if here.spec.listed is None:
                    yield from _matching(here)
                else:
                    yield from _lines(here.spec.listed, here, (*above, real), unfolded)
    except (OSError, ValueError) as e:
        if isinstance(e, SpecError):
            raise
        reason = (e.strerror or str(e)) if isinstance(e, OSError) else str(e)
        hint = "; a list file (@) is the whole specification" if listed.path.endswith(";") else ""
        raise case.fault(f"cannot read the list file {listed.path}: {reason}{hint}") from None
    if empty:
        raise case.fault(f"the list file {listed.path} holds no specification")


def _text_lines(file: BinaryIO, path: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines, which end with LF, CRLF or CR, without blank ones and comments."""
    with io.TextIOWrapper(file, "utf-8-sig", "surrogateescape") as text:
        size = 0
        for number, line in enumerate(iter(partial(text.readline, _MAX_LINE + 1), ""), 1):
            raw = line.rstrip("\n").encode("utf-8", "surrogateescape")
            size += len(raw) + 1
            if size > _MAX_PIPE and not file.seekable():
                raise SpecError(f"{path}: this pipe gives more than {_MAX_PIPE} bytes")
            if len(raw) > _MAX_LINE:
                raise SpecError(f"{path}:{number}: this line is longer than {_MAX_LINE} bytes")
            try:
                line = raw.decode().strip()
            except UnicodeDecodeError as e:
                raise SpecError(f"{path}:{number}: a list file must be UTF-8 text: {e}") from None
            if line and not (line[0] == "#" and (len(line) == 1 or not line[1].isalpha())):
                yield number, line


def _line(line: str, where: str) -> inputspec.InputSpec:
    try:
        return _parse(line, where)
    except SpecError as e:
        word = line[1:].split("(")[0].split()
        if line[0] == "#" and word and word[0] not in inputspec.FILLS:
            message, _, rest = str(e).partition("\n")
            raise SpecError(f"{message} (a comment starts with '# ')\n{rest}") from None
        raise
