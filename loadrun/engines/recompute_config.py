"""Settings of memory-saving execution: which values may be dropped and computed again."""

import re

from ..base.errors import UsageAssertionError

_UNITS = ("b", "kb", "mb", "gb")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?b)", re.IGNORECASE)


def parse_bytes(size: int | str, name: str = "value") -> int:
    """Parse a number of bytes, or a text with a unit as MegEngine's ``dtr`` module takes it.

    Units are B, KB, MB and GB, powers of 1024, in any case.

    Raises:
        UsageAssertionError: the text does not hold exactly one number with such a unit.
        TypeError: neither an integer nor a text.

    >>> parse_bytes("1.5 KB"), parse_bytes("5GB") == 5 * 2**30, parse_bytes(7)
    (1536, True, 7)
    """
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise TypeError(f"{name} must be a number of bytes or a text such as '5GB', found {size!r}")
    if isinstance(size, int):
        return size
    matches = _SIZE.findall(size)
    if len(matches) != 1:
        raise UsageAssertionError(f"{name} must be one number with a unit B, KB, MB or GB, found {size!r}")
    number, unit = matches[0]
    return int(float(number) * 1024 ** _UNITS.index(unit.lower()))


class DTRConfig:
    """Dynamic tensor rematerialization: values above a threshold are dropped and computed again where they are needed.

    Args:
        eviction_threshold: bytes of intermediate values above which values are evicted; an integer or a text
            as `parse_bytes` takes it.
        evictee_minimum_size: smaller values are never evicted; bytes or a text.
        recomp_memory_factor: exponent of the memory that recomputing a value takes: the larger, the rather are
            values evicted that take little.
        recomp_time_factor: exponent of the time that recomputing a value takes.

    Raises:
        UsageAssertionError: the threshold is not positive (its default is not, as in MegEngine), or another setting is
            negative.

    Source: MegEngine ``jit.DTRConfig``.

    >>> DTRConfig("5GB")
    DTRConfig(eviction_threshold=5368709120, evictee_minimum_size=1048576, recomp_memory_factor=1, recomp_time_factor=1)
    """

    def __init__(
        self,
        eviction_threshold: int | str = 0,
        evictee_minimum_size: int | str = 1 << 20,
        recomp_memory_factor: float = 1,
        recomp_time_factor: float = 1,
    ) -> None:
        self.eviction_threshold = parse_bytes(eviction_threshold, "eviction_threshold")
        if self.eviction_threshold <= 0:
            raise UsageAssertionError(
                f"eviction_threshold must be greater than zero, found {eviction_threshold!r}"
            )
        self.evictee_minimum_size = parse_bytes(evictee_minimum_size, "evictee_minimum_size")
        self.recomp_memory_factor = recomp_memory_factor
        self.recomp_time_factor = recomp_time_factor
        for name in ("evictee_minimum_size", "recomp_memory_factor", "recomp_time_factor"):
            _not_negative(name, getattr(self, name))

    def __repr__(self) -> str:
        return _config_text(self)


class SublinearMemoryConfig:
    """Sublinear memory: a plan of what to compute again is found before execution.

    Args:
        thresh_nr_try: how many thresholds of memory are tried between `lb_memory_mb` and the ordinary peak.
        genetic_nr_iter: accepted; nothing is drawn at random.
        genetic_pool_size: accepted.
        lb_memory_mb: peak memory in MB below which nothing is gained: recomputations that only push the peak
            further down are left out.
        num_worker: accepted; one thread searches.

    Raises:
        UsageAssertionError: a setting is negative, or there is no worker.

    Source: MegEngine ``jit.SublinearMemoryConfig``.

    >>> SublinearMemoryConfig(genetic_nr_iter=5).genetic_pool_size
    20
    """

    def __init__(
        self,
        thresh_nr_try: int = 10,
        genetic_nr_iter: int = 0,
        genetic_pool_size: int = 20,
        lb_memory_mb: int = 0,
        num_worker: int = 1,
    ) -> None:
        self.thresh_nr_try = thresh_nr_try
        self.genetic_nr_iter = genetic_nr_iter
        self.genetic_pool_size = genetic_pool_size
        self.lb_memory_mb = lb_memory_mb
        self.num_worker = num_worker
        for name in ("thresh_nr_try", "genetic_nr_iter", "genetic_pool_size"):
            _not_negative(name, getattr(self, name))
        if num_worker < 1:
            raise UsageAssertionError(f"num_worker must be greater or equal to one, found {num_worker!r}")

    def __repr__(self) -> str:
        return _config_text(self)


def _not_negative(name: str, number: float) -> None:
    # Written so that NaN is refused.
    if not number >= 0:
        raise UsageAssertionError(f"{name} must be greater or equal to zero, found {number!r}")


def _config_text(config: object) -> str:
    return f"{type(config).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(config).items())})"
