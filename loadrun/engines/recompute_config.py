"""Settings of memory-saving execution: which values may be dropped and computed again."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.errors import UsageAssertionError

_UNITS = ("b", "kb", "mb", "gb")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?b)", re.IGNORECASE)
_SUBLINEAR = "MGB_SUBLINEAR_MEMORY_"


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
    """Dynamic tensor rematerialization: values are evicted above a threshold and computed again on need.

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
        thresh_nr_try: how many block sizes are tried, both over all sizes and around the best one.
        genetic_nr_iter: rounds of the genetic search for better blocks; 0 leaves it out.
        genetic_pool_size: how many divisions into blocks a round of the genetic search keeps.
        lb_memory_mb: peak memory in MB below which nothing is gained: recomputations that only push the peak
            further down are left out.
        num_worker: threads of the search, default half the processors; the plan does not depend on it.

    The environment variables ``MGB_SUBLINEAR_MEMORY_THRESH_NR_TRY``, ``.._GENETIC_NR_ITER``,
    ``.._GENETIC_POOL_SIZE``, ``.._LOWER_BOUND_MB`` and ``.._WORKERS`` go before the arguments, see `resolve`.

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
        num_worker: int = max(1, (os.cpu_count() or 1) // 2),
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

    def resolve(self, environ: Mapping[str, str] | None = None) -> Search:
        """Return the settings that a search uses: the arguments, or what the environment says instead.

        Raises:
            UsageAssertionError: an environment variable is not a number, or the pool is empty while the genetic
                search is on.

        >>> SublinearMemoryConfig().resolve({"MGB_SUBLINEAR_MEMORY_THRESH_NR_TRY": "3"}).thresh_nr_try
        3
        """
        env = os.environ if environ is None else environ
        settings = Search(
            _int_from_env(env, "THRESH_NR_TRY", self.thresh_nr_try),
            _int_from_env(env, "GENETIC_NR_ITER", self.genetic_nr_iter),
            _int_from_env(env, "GENETIC_POOL_SIZE", self.genetic_pool_size),
            _int_from_env(env, "LOWER_BOUND_MB", self.lb_memory_mb) << 20,
            _int_from_env(env, "WORKERS", self.num_worker),
        )
        if settings.workers < 1:
            raise UsageAssertionError(f"{_SUBLINEAR}WORKERS must be at least 1, found {settings.workers}")
        if settings.genetic_nr_iter and not settings.genetic_pool_size:
            raise UsageAssertionError("the genetic search needs a genetic_pool_size of at least 1, found 0")
        return settings


@dataclass(frozen=True)
class Search:
    """Settings of one search for a plan; `lower_bound` in bytes."""

    thresh_nr_try: int
    genetic_nr_iter: int
    genetic_pool_size: int
    lower_bound: int
    workers: int


def sublinear_from_environment(environ: Mapping[str, str] | None = None) -> SublinearMemoryConfig | None:
    """Return the configuration that ``MGB_COMP_GRAPH_OPT`` asks for, None when it does not.

    >>> sublinear_from_environment({"MGB_COMP_GRAPH_OPT": "enable_sublinear_memory_opt=1"}) is not None
    True
    """
    options = (os.environ if environ is None else environ).get("MGB_COMP_GRAPH_OPT", "")
    asked = "enable_sublinear_memory_opt=1" in re.split(r"[;,\s]+", options)
    return SublinearMemoryConfig() if asked else None


def _int_from_env(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(_SUBLINEAR + name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        raise UsageAssertionError(f"{_SUBLINEAR}{name} must be a whole number, found {text!r}") from None
    _not_negative(_SUBLINEAR + name, number)
    return number


def _not_negative(name: str, number: float) -> None:
    # Written so that NaN is refused.
    if not number >= 0:
        raise UsageAssertionError(f"{name} must be greater or equal to zero, found {number!r}")


def _config_text(config: object) -> str:
    return f"{type(config).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(config).items())})"
