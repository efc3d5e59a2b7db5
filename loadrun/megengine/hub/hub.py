"""Entries of repositories: what their ``hubconf.py`` defines, and the weights of models that published code builds.

Source of semantics: MegEngine ``hub/hub.py``.
"""

import functools
import hashlib
import ipaddress
import os
import re
import shutil
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any
from urllib.parse import urlparse

from ...base.errors import UsageError, UsageRuntimeError
from ...base.logger import get_logger
from ...dump.checkpoint import load_checkpoint

__all__ = ["help", "import_module", "list", "load", "load_serialized_obj_from_url", "pretrained"]


# Repositories of git hosts, downloaded as archives into a cache.
#
# Source of semantics: MegEngine ``hub/fetcher.py``.

_log = get_logger(__name__)
_LABEL = r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)+[a-z][a-z0-9_-]{{0,61}}[a-z0-9]", re.ASCII)
_BRANCH = "master"
_SECONDS = 120
_MOST_BYTES = 1 << 30
"""The largest size that an archive may expand to."""


def downloaded(cache: Path, git_host: str, repo_info: str, use_cache: bool, commit: str | None) -> Path:
    """Return the folder that holds a repository.

    Args:
        cache: the folder in which repositories are kept.
        git_host: the host, such as github.com.
        repo_info: ``owner/name``, or ``owner/name:branch``.
        use_cache: take what was downloaded before, if it is there.
        commit: the commit, in place of the newest one.

    Raises:
        UsageError: a name is malformed, or the repository cannot be had.
    """
    owner, name, branch = _parts(repo_info)
    if not _is_host(git_host):
        raise UsageError(f"git_host: {git_host!r} is malformed; expected a name such as github.com")
    key = "_".join((git_host, owner, name, branch, commit or ""))
    folder = cache / f"loadrun_{hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:16]}"
    if use_cache and folder.is_dir():
        return folder
    url = f"https://{git_host}/{owner}/{name}/archive/{commit or branch}.zip"
    _log.info("downloading %s", url)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        extracted = _extracted(url, Path(scratch))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(extracted, folder)
    return folder


def _parts(repo_info: str) -> tuple[str, str, str]:
    """Return owner, name and branch."""
    path, _, branch = repo_info.partition(":")
    parts = path.split("/")
    if len(parts) != 2 or not all(parts) or ":" in branch:
        raise UsageError(f"repo_info: {repo_info!r} is invalid; expected owner/name or owner/name:branch")
    return parts[0], parts[1], branch or _BRANCH


def _is_host(name: str) -> bool:
    """Return whether a name is that of a domain or an IPv4 address."""
    try:
        if _DOMAIN.fullmatch(name.encode("idna").decode("ascii").lower()):
            return True
        ipaddress.IPv4Address(name)
    except ValueError:
        return False
    return True


def _extracted(url: str, target: Path) -> Path:
    """Return the only folder of an archive, unfolded below `target`."""
    with tempfile.TemporaryFile() as file:
        try:
            with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
                shutil.copyfileobj(answer, file)
        except OSError as e:
            raise UsageError(f"an error occurred when downloading from {url}: {e}") from None
        return _unfolded(file, target)


def _unfolded(file: Any, target: Path) -> Path:
    """Unfold an archive that holds one folder, with no file outside of it."""
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            tops = {PurePosixPath(i.filename).parts[0] for i in infos if i.filename.strip("/")}
            paths = [PurePosixPath(i.filename.replace("\\", "/")) for i in infos]
            if len(tops) != 1 or any(p.is_absolute() or ".." in p.parts for p in paths):
                raise UsageError("the archive does not hold one folder, as those of repositories do")
            if sum(i.file_size for i in infos) > _MOST_BYTES:
                raise UsageError(f"the archive unfolds to more than {_MOST_BYTES} bytes; clone it yourself")
            archive.extractall(target)
    except zipfile.BadZipFile as e:
        raise UsageError(f"what was downloaded is not an archive: {e}") from None
    return target / tops.pop()


_HOST = "github.com"
_CONF = "hubconf.py"


def _home() -> Path:
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return Path(os.path.expanduser(os.getenv("MGE_HOME", os.path.join(cache, "megengine"))))


def _folder(repo_info: str, git_host: str, use_cache: bool, commit: str | None, protocol: str) -> Path:
    """Return the folder of a repository: itself where it is one, else that to which it is downloaded."""
    local = Path(os.path.expanduser(repo_info))
    if (local / _CONF).is_file():
        return local.resolve()
    if protocol != "HTTPS":
        raise UsageError(
            f"protocol: expected 'HTTPS', found {protocol!r}, as loadrun starts no git; clone {repo_info} and give "
            "the folder's path"
        )
    return downloaded((_home() / "hub").resolve(), git_host, repo_info, use_cache, commit)


def import_module(
    repo_info: str,
    git_host: str = _HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = "HTTPS",
) -> ModuleType:
    """Run ``hubconf.py`` of a repository and return it as a module.

    Args:
        repo_info: a folder that holds it; or ``owner/name`` or ``owner/name:branch`` (default master), which is
            downloaded.
        git_host: the host.
        use_cache: take what was downloaded before, if it is there.
        commit: the commit, in place of the newest one.
        protocol: "HTTPS"; loadrun starts no git, which MegEngine's "SSH" needs.

    Raises:
        UsageError: it cannot be had, or holds no ``hubconf.py``.
    """
    folder = _folder(repo_info, git_host, use_cache, commit, protocol)
    if not (folder / _CONF).is_file():
        raise UsageError(f"{repo_info} holds no {_CONF}, which says what it offers")
    sys.path.insert(0, str(folder))
    try:
        spec: Any = spec_from_file_location(_CONF, folder / _CONF)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def _entry(module: ModuleType, name: str) -> Any:
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageRuntimeError(
            f"cannot find callable {name} in {_CONF}; it has {', '.join(_entries(module))}"
        )
    return function


def _entries(module: ModuleType) -> Any:
    return [n for n in dir(module) if not n.startswith("__") and callable(getattr(module, n))]


def load(
    repo_info: str,
    entry: str,
    *args: Any,
    git_host: str = _HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = "HTTPS",
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
    missing = [m for m in getattr(module, "dependencies", None) or () if find_spec(m) is None]
    if missing:
        raise UsageRuntimeError(
            f"missing dependencies: {', '.join(missing)}; {repo_info} needs them installed"
        )
    return function(*args, **kwargs)


def list(
    repo_info: str,
    git_host: str = _HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = "HTTPS",
) -> Any:
    """Return the names of a repository's entries; see `import_module`, which runs its code."""
    return _entries(import_module(repo_info, git_host, use_cache, commit, protocol))


def help(
    repo_info: str,
    entry: str,
    git_host: str = _HOST,
    use_cache: bool = True,
    commit: str | None = None,
    protocol: str = "HTTPS",
) -> str | None:
    """Return the docstring of a repository's entry; see `import_module`, which runs its code.

    Raises:
        RuntimeError: there is no such entry.
    """
    doc: str | None = _entry(import_module(repo_info, git_host, use_cache, commit, protocol), entry).__doc__
    return doc


def load_serialized_obj_from_url(url: str, model_dir: str | os.PathLike[str] | None = None) -> Any:
    """Return the checkpoint that MegEngine keeps for `url`.

    Args:
        url: where it was published; only its name matters here.
        model_dir: the folder; by default ``$MGE_HOME/serialized``, as MegEngine has it (MGE_HOME is
            ``$XDG_CACHE_HOME/megengine``, which is ``~/.cache/megengine`` if nothing is set).

    Returns:
        what `loadrun.megengine.load` gives.

    Raises:
        FileNotFoundError: it is not there; nothing is ever downloaded.
        FormatError: it is not a checkpoint.

    Source of semantics: MegEngine ``hub/hub.py``.

    >>> load_serialized_obj_from_url("https://host/net.pkl", "folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: no folder/..._net.pkl: loadrun downloads nothing; put https://host/net.pkl there, ...
    """
    folder = _home() / "serialized" if model_dir is None else Path(model_dir)
    digest = hashlib.sha256(url.encode()).hexdigest()[:6]
    path = folder / f"{digest}_{os.path.basename(urlparse(url).path)}"
    if not path.exists():
        raise FileNotFoundError(
            f"no {path}: loadrun downloads nothing; put {url} there, or load its state dict into the net: "
            "net.load_state_dict(loadrun.megengine.load(file))"
        )
    return load_checkpoint(path)


def pretrained(url: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a function that builds a module the parameter ``pretrained``: whether to load the weights of `url`.

    >>> import loadrun.megengine.module as M
    >>> @pretrained("https://host/linear.pkl")
    ... def linear(width=2):
    ...     return M.Linear(width, 1)
    >>> linear(width=3).weight.shape
    (1, 3)
    """

    def decorate(build: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(build)
        def model(pretrained: bool = False, **kwargs: Any) -> object:
            net = build(**kwargs)
            if pretrained:
                net.load_state_dict(load_serialized_obj_from_url(url))
            return net

        return model

    return decorate
