"""Arrays for the inputs of a model: converted to its dtypes, or random."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..base.arguments import require_seed
from ..base.errors import InputError, UsageError
from ..base.registry import late
from ..graph import StoredTensor, Var
from ..graph.dtypes import Array, numpy_array
from ..testcase import EXPECT, Bundle

with late(__name__):
    from . import lists, loading

if TYPE_CHECKING:
    from ..inputspec import InputData

Data = TypeVar("Data", bound="DataOptions")
MOST_RANDOM = 2**27
"""Maximum elements of all random inputs: a few bytes of a file can request any number."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelOptions:
    """Fill in what an ONNX model leaves open.

    Attributes:
        input_shapes: shape of an input whose size neither the file nor the data determines, such as x:1,3,224,224;
            NAME: alone means a scalar; or a size that the file leaves open, by its name, such as seq:7. In Python, a
            dict: shapes by name.
        constants: turn an input into a constant, such as axes:[0,2], rate:16000 or axes:axes.npy. In Python, a dict:
            values by name.
    """

    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict, compare=False)

    @property
    def read(self) -> dict[str, Any]:
        """Keyword arguments of `loadrun.load`.

        >>> ModelOptions(input_shapes={"x": (1, 3)}).read
        {'input_shapes': {'x': (1, 3)}}
        """
        options = {"input_shapes": self.input_shapes, "constants": self.constants}
        return {k: v for k, v in options.items() if v}


@dataclass(frozen=True, kw_only=True, eq=False)
class DataOptions:
    """Choose the data that a model runs on.

    Attributes:
        input_data: input data as "NAME:SOURCE;NAME:SOURCE", where SOURCE is an image, .npy, .npz or .json file,
            #rand(0,255), #randn(0,1), #randint(0,10), #zeros, #ones, #full(3), {1,3,224,224} for random numbers of that
            shape, or [[1,2],[3,4]]; NAME: is optional for a single input; @FILE reads one specification per line; each
            use of the option is a testcase. In Python, an array or tensor, or a dict of them by input name, is a
            testcase as well; None takes what the file itself has. See `loadrun.inputspec`.
        repeat: repeat data from files N times along axis 0.
        resize_input: resize images to the input's height and width.
        input_transform: numpy expression in data (the array as read) and np, such as "data.astype('float32') / 255".
        seed: seed for everything that is drawn at random (default 0).
        numpy_random: draw random data from numpy's global generator instead, as in MegEngine.
    """

    input_data: tuple[InputData, ...] | None = None
    repeat: int = 1
    resize_input: bool = False
    input_transform: str | None = None
    seed: int = 0
    numpy_random: bool = False

    def check_data(self) -> None:
        """Refuse options that have no effect.

        Raises:
            UsageError: there is no data that `repeat`, `resize_input` or `input_transform` could be for.
        """
        if self.input_data is None and (self.repeat != 1 or self.resize_input or self.input_transform):
            raise UsageError("--repeat, --resize-input and --input-transform apply to input data; give some")

    def without_pipes(self: Data) -> Data:
        """Return options with lists from pipes already read, since that can be done only once.

        Raises:
            SpecError: a pipe cannot be read.
        """
        if self.input_data is None:
            return self

        return replace(self, input_data=tuple(lists.read_pipes(self.input_data)))

    def cases(self, bundle: Bundle, warn: Callable[[str], None]) -> Iterator[dict[str, Array]]:
        """Load the testcases one at a time.

        Raises:
            SpecError: a specification is malformed.
            InputError: data cannot be read or does not fit.

        >>> import loadrun
        >>> model = loadrun.load("fixtures/nets/mlp.mge")
        >>> [c["data"].shape for c in DataOptions(input_data=("{2,20}", "#ones")).cases(model, print)]
        [(2, 20), (1, 20)]
        """
        return loading.load_cases(
            self.input_data or (),
            bundle.inputs,
            repeat=self.repeat,
            resize_input=self.resize_input,
            input_transform=self.input_transform,
            open_inputs=bundle.source.open_inputs,
            seed=None if self.numpy_random else self.seed,
            warn=warn,
        )


def repeated_to(array: Array, size: int) -> Array:
    """Return the items of axis 0, repeated or cut to that many; a scalar, and an array without items, as it is.

    >>> repeated_to(np.array([5, 6, 7]), 4).tolist()
    [5, 6, 7, 5]
    """
    return array[np.arange(size) % len(array)] if array.ndim and len(array) else array


def random_inputs(bundle: Bundle, seed: int = 0) -> dict[str, Array]:
    """Draw seeded random inputs for a model: the same bytes on every platform and numpy version.

    Floating-point inputs are uniform in [0, 1), 8-bit ones cover their whole range, other integers (often
    indices) are 0 or 1, booleans are coin flips.

    Raises:
        InputError: the file does not say what shape an input has, or asks for more than 2**27 elements.
        UsageError: the seed is negative, or 2**64 and more.

    >>> import loadrun
    >>> {k: v.shape for k, v in random_inputs(loadrun.load("fixtures/nets/mlp.mge")).items()}
    {'data': (1, 20)}
    """
    require_seed(seed)
    bits = np.random.PCG64(seed)
    feeds: dict[str, Array] = {}
    left = MOST_RANDOM
    for var in sorted(bundle.inputs, key=lambda v: v.name or ""):
        tensor = var.owner.tensors[0]
        if tensor.data is not None:
            continue
        if tensor.shape is None:
            raise InputError(f"the file has no shape for the input {var.name!r}; give its value with --input")
        left -= prod(tensor.shape)
        if left < 0:
            raise InputError(
                f"the input {var.name!r} of shape {list(tensor.shape)} would need {prod(tensor.shape)} random values, "
                f"and no more than {MOST_RANDOM} are made for a model; give its value with --input"
            )
        try:
            feeds[var.name or ""] = _random(bits, tensor.shape, tensor.dtype.np)
        except (MemoryError, ValueError):
            raise InputError(
                f"a random value for the input {var.name!r} of shape {list(tensor.shape)} does not fit in memory"
            ) from None
    return feeds


def _random(bits: np.random.PCG64, shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    count = prod(shape)
    raw = bits.random_raw(count) if count else np.zeros(0, np.uint64)
    if kind.kind == "f":
        values = ((raw >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)).astype(kind)
    elif kind.itemsize == 1 and kind.kind in "iu":
        values = (raw >> np.uint64(56)).astype(np.uint8).view(kind)
    else:
        values = (raw >> np.uint64(63)).astype(kind)
    return values.reshape(shape)


def _fitted(name: str, array: Array, tensor: StoredTensor, fixed: Sequence[int | None]) -> Array:
    """Convert one array to the dtype of its input; the number of axes must agree, and sizes that are fixed."""
    want = tensor.dtype.np
    if array.dtype != want:
        if array.dtype.kind not in "fiub" or not _castable(array, want):
            raise InputError(
                f"input {name!r} takes {tensor.dtype}; the given {array.dtype} array holds values that do not fit"
            )
        array = array.astype(want)
    if tensor.shape == () and array.size == 1:
        # Testcases hold it with an axis.
        array = array.reshape(())
    if tensor.shape is not None and array.ndim != len(tensor.shape) and array.ndim:
        shown = f"{len(tensor.shape)} axes" if tensor.ranked else f"shape {list(tensor.shape)}"
        raise InputError(
            f"input {name!r} has {shown}, the given array has {list(array.shape)}; "
            "the number of axes must agree"
        )
    if any(want not in (None, n) for want, n in zip(fixed, array.shape, strict=False)):
        sizes = ", ".join("any" if n is None else str(n) for n in fixed)
        raise InputError(
            f"input {name!r} has shape {list(array.shape)}, but the file is made for [{sizes}] and may give other "
            "values elsewhere; pack it with data of these sizes, or trace it with dynamic_shapes"
        )
    return array


def fit_inputs(
    bundle: Bundle, inputs: Mapping[str, Array], known: Mapping[str, Var] | None = None
) -> dict[str, Array]:
    """Convert arrays to the inputs' dtypes; refuse conversions that would change values.

    Args:
        known: the bundle's inputs by name, where they were looked for before.
    """
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"expected arrays by input name, found {type(inputs).__name__}; a testcase has them as its inputs"
        )
    known = {v.name or "": v for v in bundle.fed} if known is None else known
    unknown = [n for n in inputs if n not in known]
    if unknown:
        names = ", ".join(v.name or "" for v in bundle.inputs) or "none"
        raise InputError(f"the model has no input {unknown[0]!r}; its inputs are {names}")
    fed: dict[str, Array] = {}
    fixed = bundle.fixed_shapes
    for name, array in inputs.items():
        try:
            value = numpy_array(array)
        except (ValueError, TypeError) as e:
            raise InputError(f"the value for the input {name!r} is not an array: {e}") from None
        fed[name] = _fitted(name, value, known[name].owner.tensors[0], fixed.get(name, ()))
    left = [] if len(fed) == len(known) else bundle.inputs
    missing = [v.name for v in left if v.name not in fed and v.owner.tensors[0].data is None]
    if missing and bundle.source.refusal is None and len(missing) <= len(bundle.fed) - len(fed):
        # Unused inputs may be fed, but need not be.
        read = {id(o) for o in bundle.graph.needed()}
        missing = [v.name for v in bundle.inputs if v.name in missing and id(v.owner) in read]
    if missing:
        raise InputError(
            f"no value was given for the input {missing[0]!r}; given: {', '.join(fed) or 'none'}"
        )
    return {n: a for n, a in fed.items() if not n.endswith(EXPECT)}


def _castable(array: Array, want: np.dtype[Any]) -> bool:
    """Return whether a conversion keeps the values: any real number as a float (rounded), otherwise exactly."""
    return want.kind == "f" or bool(np.array_equal(array.astype(want), array))
