"""Entries of repositories: what their ``hubconf.py`` defines.

Source of semantics: MegEngine ``hub/hub.py``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ...base.errors import UsageError, UsageRuntimeError
from ...dump.checkpoint.hub import load_serialized_obj_from_url, pretrained
from .const import (
    DEFAULT_CACHE_DIR,
    DEFAULT_GIT_HOST,
    DEFAULT_PROTOCOL,
    ENV_MGE_HOME,
    ENV_XDG_CACHE_HOME,
    HUBCONF,
    HUBDEPENDENCY,
)
from .exceptions import InvalidProtocol
from .fetcher import GitHTTPSFetcher, GitSSHFetcher, RepoFetcherBase
from .tools import cd, check_module_exists, load_module

__all__ = [
    "PROTOCOLS",
    "help",
    "import_module",
    "list",
    "load",
    "load_serialized_obj_from_url",
    "pretrained",
]

PROTOCOLS: dict[str, type[RepoFetcherBase]] = {"HTTPS": GitHTTPSFetcher, "SSH": GitSSHFetcher}
"""Ways to a repository."""


def _get_megengine_home() -> str:
    cache = os.getenv(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR)
    return os.path.expanduser(os.getenv(ENV_MGE_HOME, os.path.join(cache, "megengine")))


def _folder(repo_info: str, git_host: str, use_cache: bool, commit: str | None, protocol: str) -> Path:
    """Return the folder of a repository: itself where it is one, else that to which it is downloaded."""
    local = Path(os.path.expanduser(repo_info))
    if (local / HUBCONF).is_file():
        return local.resolve()
    if protocol not in PROTOCOLS:
        raise InvalidProtocol(
            f"invalid protocol {protocol!r}; the value should be one of {', '.join(PROTOCOLS)}"
        )
    cache = Path(_get_megengine_home()) / "hub"
    cache.mkdir(parents=True, exist_ok=True)
    with cd(cache):
        return cache.resolve() / PROTOCOLS[protocol].fetch(git_host, repo_info, use_cache, commit)


def import_module(
    repo_info: str,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
) -> ModuleType:
    """Run ``hubconf.py`` of a repository and return it as a module.

    Args:
        repo_info: a folder that holds it; or ``owner/name`` or ``owner/name:branch`` (default master), which is
            downloaded.
        git_host: the host.
        use_cache: take what was downloaded before, if it is there.
        commit: the commit, in place of the newest one.
        protocol: "HTTPS"; "SSH" takes only what is there.

    Raises:
        FetcherError: it cannot be had.
        UsageError: it holds no ``hubconf.py``.
    """
    folder = _folder(repo_info, git_host, use_cache, commit, protocol)
    if not (folder / HUBCONF).is_file():
        raise UsageError(f"{repo_info} holds no {HUBCONF}, which says what it offers")
    sys.path.insert(0, str(folder))
    try:
        return load_module(HUBCONF, folder / HUBCONF)
    finally:
        sys.path.remove(str(folder))


def _entry(module: ModuleType, name: str) -> Any:
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageRuntimeError(
            f"cannot find callable {name} in {HUBCONF}; it has {', '.join(_entries(module))}"
        )
    return function


def _entries(module: ModuleType) -> Any:
    return [n for n in dir(module) if not n.startswith("__") and callable(getattr(module, n))]


def load(
    repo_info: str,
    entry: str,
    *args: Any,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
    **kwargs: Any,
) -> Any:
    """Return what an entry of a repository gives, usually a model.

    Args:
        repo_info, git_host, use_cache, commit, protocol: see `import_module`, which runs the repository's code.
        entry: the name of a function in ``hubconf.py``.
        args, kwargs: what it is called with.

    Raises:
        RuntimeError: there is no such entry, or a module that it needs cannot be imported.
    """
    module = import_module(repo_info, git_host, use_cache, commit, protocol)
    function = _entry(module, entry)
    missing = [m for m in getattr(module, HUBDEPENDENCY, None) or () if not check_module_exists(m)]
    if missing:
        raise UsageRuntimeError(
            f"missing dependencies: {', '.join(missing)}; {repo_info} needs them installed"
        )
    return function(*args, **kwargs)


def list(
    repo_info: str,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
) -> Any:
    """Return the names of a repository's entries; see `import_module`, which runs its code."""
    return _entries(import_module(repo_info, git_host, use_cache, commit, protocol))


def help(
    repo_info: str,
    entry: str,
    git_host: str = DEFAULT_GIT_HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = DEFAULT_PROTOCOL,
) -> str | None:
    """Return the docstring of a repository's entry; see `import_module`, which runs its code.

    Raises:
        RuntimeError: there is no such entry.
    """
    doc: str | None = _entry(import_module(repo_info, git_host, use_cache, commit, protocol), entry).__doc__
    return doc
