"""Repositories of git hosts, downloaded as archives into a cache.

Source of semantics: MegEngine ``hub/fetcher.py``.
"""

import hashlib
import ipaddress
import os
import re
import shutil
import tempfile
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from ...base.errors import UsageError
from ...base.logger import get_logger

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
