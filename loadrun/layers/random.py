"""Random tensors: the numbers that MegEngine gives on a CPU for the same seed.

Numbers repeat for a seed. Inside a traced function the random operators themselves are recorded, so that each call
draws again; every run of a dump draws what the seeds in it lead to.
"""

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary, ref

from ..graph import params as P
from ..graph.params import DTypeEnum
from ..ops.numeric.stream import Stream
from ..ops.rng import drawing_from
from ..tensors import ShapeLike, Tensor, active, apply, as_tensor, shape_tensor
from ..tensors.access import as_vector
from ..tensors.applying import chosen_seed, seed as _start
from ..tensors.dtypes import graph_dtype
from ..tensors.shaping import broadcast_to
from ..tensors.switches import check_device

__all__ = ["RNG", "beta", "gamma", "normal", "permutation", "poisson", "seed", "shuffle", "uniform"]

_drawn: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""How many random operators each running trace holds."""


def seed_of_operator() -> int:
    """Return the seed of the next random operator in a graph: the global one, as in MegEngine, if `seed` set it.

    Else it is the operator's place in its trace: such seeds differ, and are the same in every call.
    """
    session, chosen = active(), chosen_seed()
    if chosen is not None:
        return chosen % (1 << 64)
    if session is None:
        return 0
    _drawn[session] = place = _drawn.get(session, 0) + 1
    return place


def _broadcast_sizes(tensors: list[Tensor]) -> tuple[int, ...]:
    """Return the sizes that tensors broadcast to.

    Raises:
        AssertionError: two sizes differ and neither is 1.
    """
    ndim = max(t.ndim for t in tensors)
    shapes = [(1,) * (ndim - t.ndim) + tuple(t.shape) for t in tensors]
    shape = []
    for axis, sizes in enumerate(zip(*shapes, strict=True)):
        wide = [n for n in sizes if n != 1]
        if any(n != wide[0] for n in wide):
            raise AssertionError(f"sizes {', '.join(map(str, sizes))} at dim {axis} must match or be 1")
        shape.append(wide[0] if wide else sizes[0])
    return tuple(shape)


def _parameters(name: str, size: ShapeLike | None, **values: float | Tensor) -> list[Tensor]:
    """Return the parameters of a distribution as float tensors of the wanted shape.

    Raises:
        AssertionError: a parameter that is not positive.
    """
    tensors = []
    for key, value in values.items():
        if not isinstance(value, Tensor) and not value > 0:
            raise AssertionError(f"{name} is not defined when {key} <= 0, found {value}")
        tensors.append(value if isinstance(value, Tensor) else as_tensor(value, "float32"))
    head = tuple(size) if isinstance(size, Iterable) else (size,) if size else ()
    want = (*head, *_broadcast_sizes(tensors))
    return [as_vector(t) if tuple(t.shape) == want else broadcast_to(t, want) for t in tensors]


class RNG:
    """A source of random tensors with a state of its own.

    Args:
        seed: where its numbers start; without one it shares the global source, which `seed` starts.
        device: a name that MegEngine knows.

    >>> first, second = RNG(seed=7), RNG(seed=7)
    >>> first.uniform(size=(2, 3)).tolist() == second.uniform(size=(2, 3)).tolist()
    True
    """

    def __init__(self, seed: int | None = None, device: str | None = None) -> None:
        self._seed = seed
        check_device(device)
        self._stream = None if seed is None else Stream(seed)
        self._trace = None if active() is None else ref(active())

    def _draw(
        self, type: str, kind: Callable[..., P.Record], inputs: list[Tensor], n: int = 1, **values: float
    ) -> Tensor:
        seed = seed_of_operator() if self._seed is None else self._seed % (1 << 64)
        param = kind(seed=seed, **values)
        if self._stream is not None:
            # A source created inside a traced function gives the same numbers in every call.
            inside = self._trace is not None and self._trace() is active()
            param = drawing_from(self._stream.next() if inside else self._stream, param)
        return apply(type, param, inputs=inputs, n=n, scalar=False)[0]

    def uniform(self, low: float = 0, high: float = 1, size: ShapeLike | None = None) -> Tensor:
        """Return numbers spread evenly between `low` and `high`.

        Args:
            low: the smallest number.
            high: the largest number.
            size: the shape of the result, one number by default.

        Raises:
            AssertionError: `low` is not below `high`.

        >>> 2 < RNG(seed=1).uniform(2, 3).item() <= 3
        True
        """
        if not low < high:
            raise AssertionError(f"Uniform is not defined when low >= high, found {low} and {high}")
        drawn = self._draw("UniformRNGV1", P.UniformRNG, [shape_tensor((1,) if size is None else size)])
        return drawn if low == 0 and high == 1 else low + (high - low) * drawn

    def normal(self, mean: float = 0, std: float = 1, size: ShapeLike | None = None) -> Tensor:
        """Draw normally distributed numbers.

        Args:
            mean: their expectation.
            std: their standard deviation.
            size: the shape of the result, one number by default.

        >>> abs(RNG(seed=1).normal(5, 2, size=(100, 100)).mean().item() - 5) < 0.1
        True
        """
        shape = shape_tensor((1,) if size is None else size)
        return self._draw("GaussianRNGV1", P.GaussianRNG, [shape], mean=float(mean), std=float(std))

    def gamma(
        self, shape: float | Tensor, scale: float | Tensor = 1, size: ShapeLike | None = None
    ) -> Tensor:
        """Draw gamma distributed numbers.

        Args:
            shape: the parameter *k*: a positive number, or a float tensor.
            scale: the parameter *theta*: likewise; both broadcast.
            size: leading axes in front of the parameters' shape.

        Raises:
            AssertionError: a number is not positive, or the tensors do not broadcast.

        >>> RNG(seed=1).gamma(Tensor([[1.0], [10.0]]), Tensor([1.0, 5.0]), size=3).shape
        (3, 2, 2)
        """
        inputs = _parameters("Gamma", size, shape=shape, scale=scale)
        return self._draw("GammaRNG", P.GammaRNG, inputs)

    def beta(self, alpha: float | Tensor, beta: float | Tensor, size: ShapeLike | None = None) -> Tensor:
        """Draw beta distributed numbers; the arguments are as those of `gamma`.

        >>> 0 <= RNG(seed=1).beta(2, 1).item() <= 1
        True
        """
        return self._draw("BetaRNG", P.BetaRNG, _parameters("Beta", size, alpha=alpha, beta=beta))

    def poisson(self, lam: float | Tensor, size: ShapeLike | None = None) -> Tensor:
        """Draw Poisson distributed integers (as floats) of the mean `lam`; the arguments are as those of `gamma`.

        >>> RNG(seed=1).poisson(2.0, size=(1, 3)).shape
        (1, 3)
        """
        return self._draw("PoissonRNG", P.PoissonRNG, _parameters("Poisson", size, lam=lam))

    def permutation(self, n: int | Tensor, *, dtype: object = "int32") -> Tensor:
        """Return the numbers from 0 to ``n - 1`` in random order, or a copy of a tensor with its rows in random order.

        Args:
            n: a number, or a tensor, which is shuffled along its first axis.
            dtype: int32, int16 or float32, for a number.

        Raises:
            AssertionError: `n` is negative, or neither number nor tensor.
            EngineError: another dtype.

        >>> sorted(RNG(seed=1).permutation(4).tolist())
        [0, 1, 2, 3]
        """
        if isinstance(n, Tensor):
            return self._shuffled(n)
        if not isinstance(n, int) or n < 0:
            raise AssertionError(f"Permutation is defined for numbers from 0 and tensors, found {n!r}")
        kind = DTypeEnum[graph_dtype(dtype).name]
        return self._draw("PermutationRNG", P.PermutationRNG, [shape_tensor((n,))], dtype=kind)

    def shuffle(self, inp: Tensor) -> None:
        """Bring the rows of a tensor (its entries along the first axis) into random order, in place.

        Raises:
            AssertionError: the tensor has no elements.

        >>> x = Tensor([1, 2, 3])
        >>> RNG(seed=1).shuffle(x)
        >>> sorted(x.tolist())
        [1, 2, 3]
        """
        inp.set_value(self._shuffled(inp))

    def _shuffled(self, inp: Tensor) -> Tensor:
        if not inp.size:
            raise AssertionError("size needs to be greater than 0")
        return self._draw("ShuffleRNG", P.ShuffleRNG, [as_vector(inp)], n=2)


def seed(seed: int) -> None:
    """Start the global source of random numbers again, for this thread.

    >>> seed(3); first = uniform(size=[4]); seed(3)
    >>> uniform(size=[4]).tolist() == first.tolist()
    True
    """
    _start(seed)


_default = RNG()
uniform = _default.uniform
normal = _default.normal
gamma = _default.gamma
beta = _default.beta
poisson = _default.poisson
permutation = _default.permutation
shuffle = _default.shuffle
