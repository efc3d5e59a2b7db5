"""Arguments that several public calls take."""

from numbers import Integral

from .errors import UsageError


def require_seed(seed: object) -> None:
    """Refuse what is no seed of random numbers.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(seed, Integral) or not 0 <= int(seed) < 2**64:
        raise UsageError(f"a seed must be a whole number from 0 to 2**64 - 1, found {seed!r}")
