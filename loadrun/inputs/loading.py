"""Loading of input specifications: arrays, images and generated numbers, converted for a model's inputs.

The meaning of every form that MegEngine's ``trace.dump(input_data=...)`` accepts is MegEngine's; docs/howto-inputs.md
lists what differs.
"""

import difflib
import fnmatch
import json
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import NoReturn

import numpy as np

from ..base.arguments import require_seed
from ..base.errors import InputError, SpecError, UsageError
from ..base.pointing import point
from ..graph import StoredTensor, Var
from ..graph.dtypes import Array, DType
from ..inputspec import ArraySource, Generated, InputData, InputPart, PathSource, Source, Values
from .casting import cast, lost, require_exact
from .files import image_loss, members, read_array
from .generation import MAX_BYTES, fill_shape, fill_values, stream
from .lists import LocatedSpec, count_cases as count_cases, expand
from .pictures import image_array
from .transform import TransformExpression

_SHOWN_INPUTS = 8
_NUMBERS = re.compile(r"[-+0-9.eE, ]*[0-9][-+0-9.eE, ]*")


def load_cases(
    specs: InputData | Iterable[InputData],
    inputs: Sequence[Var],
    *,
    repeat: int = 1,
    resize_input: bool = False,
    input_transform: str | None = None,
    open_inputs: Collection[str] = (),
    seed: int | None = 0,
    warn: Callable[[str], None] | None = None,
) -> Iterator[dict[str, Array]]:
    """Load specifications one after another: each is a testcase, and a list file is as many as it has lines.

    Args:
        specs: the texts, see `loadrun.inputspec`, or arrays: one, or a dict of them by input name; `count_cases`
            tells how many testcases they stand for and checks them all before the first one is loaded.
        inputs: the model's inputs, such as `Bundle.inputs`.
        repeat: how often each row of axis 0 of data that was not generated is repeated.
        resize_input: scale images to the input's height and width; there must be one among all the data then.
        input_transform: an expression over ``data`` and ``np`` for data that was not generated, applied to what
            was read (8-bit pixels for an image) after resizing and repeating; see `TransformExpression`.
        open_inputs: inputs with sizes that nothing says, so that data of any sizes do.
        seed: seed of generated data that has none of its own. Testcase i and input j (in the order of names) draw
            from streams of their own, the same on every platform and with every numpy version. None draws from
            numpy's global generator, as MegEngine's ``trace.dump`` does.
        warn: called with what MegEngine would only warn of; default `warnings.warn`.

    Returns:
        an iterator of arrays by input name, in the inputs' storage dtypes. Only one testcase is held at a time.

    Raises:
        SpecError: at once or later: a text is malformed or does not fit the model's inputs. The message shows the
            text with a caret under the fault.
        InputError: later: a file cannot be read or holds something else than what the input takes.
        UsageError: at once: an option has no sense.

    >>> import loadrun
    >>> inputs = loadrun.load("fixtures/nets/mlp.mge").inputs
    >>> [{n: a.shape for n, a in case.items()} for case in load_cases(["#rand(0,1)", "#zeros(2,...)"], inputs)]
    [{'data': (1, 20)}, {'data': (2, 20)}]
    """
    how = repeat, resize_input, input_transform, seed, warn
    return Loader(inputs, *how, open_inputs=open_inputs).load_all(expand(specs))


@dataclass
class _Given:
    """Data before the cast; `generated` data is neither repeated nor transformed."""

    array: Array
    generated: bool = False


class Loader:
    """Loads specifications for the inputs of one model.

    Args:
        exact: refuse numbers that an integer or boolean dtype does not hold, which are truncated or wrap otherwise.
        open_inputs: inputs with sizes that nothing says.
    """

    def __init__(
        self,
        inputs: Sequence[Var],
        repeat: int,
        resize: bool,
        transform: str | None,
        seed: int | None,
        warn: Callable[[str], None] | None,
        exact: bool = False,
        open_inputs: Collection[str] = (),
    ) -> None:
        self.exact = exact
        if not isinstance(repeat, (int, float)) or repeat != int(repeat) or repeat < 1:
            raise UsageError(f"repeat must be a whole number of at least 1, found {repeat!r}")
        if seed is not None:
            require_seed(seed)
        self.known = {v.name or "": v.owner.tensors[0] for v in sorted(inputs, key=lambda v: v.name or "")}
        self.repeat = int(repeat)
        self.resize = resize
        self.transform = TransformExpression(transform) if transform else None
        self.seed = seed
        self.warn = warn or partial(warnings.warn, stacklevel=4)
        self.open = open_inputs
        self.images = 0
        self.read = 0
        self.archives: dict[str, dict[str, Callable[[], Array]]] = {}

    def load_all(self, cases: Iterator[LocatedSpec]) -> Iterator[dict[str, Array]]:
        """Load the data of testcases; options that change none of them are refused with the last one."""
        last: LocatedSpec | None = next(cases, None)
        index = 0
        while last is not None:
            case, last = last, next(cases, None)
            arrays = self.load(case, index)
            if last is None and self.resize and not self.images:
                raise case.fault("resize_input: there is no image to resize")
            if last is None and self.transform is not None and not self.read:
                raise case.fault("input_transform: generated data is not transformed")
            yield arrays
            index += 1

    def load(self, case: LocatedSpec, index: int) -> dict[str, Array]:
        """Load the data of one testcase."""
        try:
            return self._load(case, index)
        except (SpecError, InputError) as e:
            if not case.where:
                raise
            raise type(e)(f"{case.where}: {e}") from None
        except MemoryError:
            raise InputError(str(case.fault("this needs more memory than is available"))) from None
        finally:
            self.archives.clear()

    def _load(self, case: LocatedSpec, index: int) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for name, part, seed_index in self._assigned(case):
            try:
                data = self._source(part.source, name, case, (index, seed_index))
                self.read += not data.generated
                arrays[name] = self._finish(data, name)
            except (SpecError, InputError) as e:
                at = part.source_at
                shown = str(e) if "\n" in str(e) else point(f"input {_name(name)}: {e}", case.text, at)
                raise type(e)(shown) from None
        return arrays

    def _named_part(self, part: InputPart, only: str | None, case: LocatedSpec) -> tuple[str, InputPart]:
        """Return the input that a part feeds, and the part; `only` is the input of a part without a name."""
        part = self._drive(part)
        self._refuse_equals(part, case)
        if part.name is None and only is not None:
            return only, InputPart(only, part.source, part.at, part.source_at)
        if part.name is None:
            self._fail(f"say which input this is for, as in NAME:{part}", case, part.at)
        if part.name not in self.known:
            close = difflib.get_close_matches(part.name, [n for n in self.known if n], 1, 0.6)
            quoted = ', quoted as in "a:0":FILE' if close and any(c in close[0] for c in ":;") else ""
            hint = f"; did you mean {_name(close[0])}{quoted}?" if close else ""
            self._fail(f"the model has no input {_name(part.name)}{hint}", case, part.at)
        return part.name, part

    def _assigned(self, case: LocatedSpec) -> list[tuple[str, InputPart, int]]:
        """Yield which part feeds which input, with the input's number."""
        parts = case.spec.parts
        numbers = {name: i for i, name in enumerate(self.known)}
        wanted = [n for n, t in self.known.items() if t.data is None]
        if not self.known:
            raise SpecError("the model has no inputs")
        if len(parts) == 1 and parts[0].name is None and len(self.known) > 1:
            part, source = parts[0], parts[0].source
            if isinstance(source, Generated):
                return [(n, part, numbers[n]) for n in self.known]
            if isinstance(source, PathSource) and source.is_archive and source.member is None:
                return [(n, part, numbers[n]) for n in self._archived(source.path, part, case, wanted)]
        only = next(iter(self.known)) if len(parts) == len(self.known) == 1 else None
        part_of = dict(self._named_part(p, only, case) for part in parts for p in self._each(part))
        for name in wanted:
            if name not in part_of:
                self._fail(f"no data for the input {_name(name)}", case, len(case.text))
        # With its own seed, data is the same for any input; the run's seed varies by input.
        return [
            (n, p, 0 if isinstance(p.source, Generated) and p.source.seed is not None else numbers[n])
            for n, p in part_of.items()
        ]

    def _each(self, part: InputPart) -> list[InputPart]:
        """Return a part, or one for each input that a pattern in place of its name stands for."""
        name = part.name or ""
        names = fnmatch.filter(self.known, name) if "*" in name and name not in self.known else []
        return [replace(part, name=n) for n in names] or [part]

    def _archived(self, path: str, part: InputPart, case: LocatedSpec, wanted: list[str]) -> list[str]:
        """Return the inputs that an archive feeds by name: all that it holds, which must be all that need data."""
        try:
            members = self._members(case.path(path))
        except InputError as e:
            raise InputError(point(str(e), case.text, part.source_at)) from None
        for name in wanted:
            if name not in members:
                said = f"{path} has no array {_name(name)}; its arrays are {_names(members)}"
                self._fail(said, case, part.at)
        return [n for n in self.known if n in members]

    def _members(self, path: str) -> dict[str, Callable[[], Array]]:
        if path not in self.archives:
            self.archives[path] = members(path)
        return self.archives[path]

    def _drive(self, part: InputPart) -> InputPart:
        """Treat ``C:/x.npy`` as a Windows path, unless the model has an input of that letter."""
        source, name = part.source, part.name
        if name is None or name in self.known or len(name) > 1 or not isinstance(source, PathSource):
            return part
        if not source.path.startswith("/"):
            return part
        return InputPart(None, PathSource(f"{name}:{source.path}", source.member), part.at, part.at)

    def _refuse_equals(self, part: InputPart, case: LocatedSpec) -> None:
        """Refuse ``data=#ones``, which parses as a file name, unless there is such a file; say what was meant."""
        if part.name is None and isinstance(part.source, PathSource):
            name = part.source.path.split("=")[0].rstrip()
            if (
                name in self.known
                and name != part.source.path
                and not os.path.exists(case.path(part.source.path))
            ):
                said = f"a name is followed by ':', not '=', as in {name}:SOURCE"
                self._fail(said, case, part.at + len(name))

    def _fail(self, message: str, case: LocatedSpec, at: int) -> NoReturn:
        shown = [f"{_name(n)} ({t.dtype} {_shape(t)})" for n, t in list(self.known.items())[:_SHOWN_INPUTS]]
        more = f" and {len(self.known) - len(shown)} more" if len(self.known) > len(shown) else ""
        what = "its input is" if len(self.known) == 1 else "its inputs are"
        raise SpecError(point(f"{message}; {what} {', '.join(shown)}{more}", case.text, at))

    def _source(self, source: Source, name: str, case: LocatedSpec, place: tuple[int, int]) -> _Given:
        tensor = self.known[name]
        if isinstance(source, Generated):
            shape = fill_shape(source, tensor)
            if said := _constant(source, tensor.dtype):
                self.warn(f"input {_name(name)}: {said}")
            seed, number = (self.seed, place[0]) if source.seed is None else (source.seed, 0)
            bits = None if seed is None else stream(seed, number, place[1])
            return _Given(fill_values(source, shape, bits), True)
        if isinstance(source, ArraySource):
            array = source.array
            return _Given(array.reshape(1) if not array.ndim and tensor.shape == (1,) else array)
        if isinstance(source, Values):
            array = np.array(json.loads(source.text))
            if array.dtype.kind not in "fiub":
                raise SpecError("these numbers are too large")
            # load_and_run adds a batch axis to the values in brackets.
            batch = tensor.shape is not None and array.ndim + 1 == len(tensor.shape)
            return _Given(array[None] if batch else array)
        path = case.path(source.path)
        if _NUMBERS.fullmatch(source.path) and not os.path.exists(path):
            raise InputError(f"there is no file {source.path}; values go in brackets, as in [{source.path}]")
        if source.is_archive:
            arrays = self._members(path)
            key = name if source.member is None else source.member
            if key not in arrays and source.member is None and len(arrays) == 1:
                key = next(iter(arrays))
            if key not in arrays:
                raise InputError(f"{path} has no array {_name(key)}; its arrays are {_names(arrays)}")
            return _Given(arrays[key]())
        before = self.images
        read = read_array(path, partial(self._image, tensor=tensor))
        if self.images > before and (lost := image_loss(path)):
            self.warn(
                f"input {_name(name)}: information in the image {os.path.basename(path)} is lost: {lost}"
            )
        return _Given(read)

    def _image(self, pixels: Array, tensor: StoredTensor) -> Array:
        self.images += 1
        return image_array(pixels, tensor.shape, resize=self.resize)

    def _finish(self, data: _Given, name: str) -> Array:
        """Repeat, transform, check and cast."""
        tensor, array = self.known[name], data.array
        if not data.generated:
            if self.repeat > 1:
                if array.nbytes * self.repeat > MAX_BYTES:
                    raise InputError(f"{array.nbytes} bytes repeated {self.repeat} times are too many")
                array = np.repeat(array, self.repeat, axis=0)
            if tensor.shape == () and array.size == 1:
                # One number may stand in brackets.
                array = array.reshape(())
            if self.transform is not None:
                _check_rank(array, tensor)
                array = self.transform(array)
        if tensor.shape == () and array.shape == (1,):
            # Specifications have no numbers without axes.
            array = array.reshape(())
        _check_rank(array, tensor)
        if tensor.shape is not None and array.shape[1:] != tensor.shape[1:] and name not in self.open:
            self.warn(f"input {_name(name)} has shape {_shape(tensor)}, its data {list(array.shape)}")
        result = cast(array, tensor.dtype)
        if self.exact and result.dtype.kind in "iub":
            require_exact(array, result, tensor.dtype)
        # #rand(0,255) for signed bytes wraps, as in MegEngine.
        if (said := lost(array, result, tensor.dtype)) and not (data.generated and "wrap" in said):
            self.warn(f"input {_name(name)}: {said}")
        return result


def _constant(fill: Generated, dtype: DType) -> str:
    """Report that a random range gives one number when it is cast to integers; empty if it gives more."""
    if fill.kind != "rand" or dtype.np.kind not in "iu":
        return ""
    first, last = int(fill.args[0]), int(np.nextafter(fill.args[1], fill.args[0]))
    return (
        f"all numbers of {fill} are {first} as {dtype}; use a wider range, or #randint"
        if first == last
        else ""
    )


def _names(arrays: Iterable[str]) -> str:
    shown = [_name(n) for n in islice(arrays, _SHOWN_INPUTS + 1)]
    return ", ".join([*shown[:_SHOWN_INPUTS], "..."] if len(shown) > _SHOWN_INPUTS else shown) or "nothing"


def _check_rank(array: Array, tensor: StoredTensor) -> None:
    if tensor.shape is not None and array.ndim != len(tensor.shape):
        raise InputError(
            f"the data has shape {list(array.shape)}, the input {_shape(tensor)}: the axes must agree"
        )


def _name(name: str) -> str:
    """Return a name from a file for messages."""
    shown = repr(name)
    return shown if len(shown) <= 60 else f"{shown[:40]}...{shown[-12:]}"


def _shape(t: StoredTensor) -> str:
    return "of any shape" if t.shape is None else re.sub(r"\s", " ", str(list(t.shape)))
