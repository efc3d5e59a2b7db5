"""Repositories of git hosts, downloaded as archives into a cache.

Source of semantics: MegEngine ``hub/fetcher.py``.
"""

from __future__ import annotations

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

from ...base.logger import get_logger
from .const import DEFAULT_BRANCH_NAME, HTTP_READ_TIMEOUT
from .exceptions import GitPullError, HTTPDownloadError, InvalidGitHost, InvalidProtocol, InvalidRepo

__all__ = ["GitHTTPSFetcher", "GitSSHFetcher", "RepoFetcherBase"]

_log = get_logger(__name__)
_LABEL = r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)+[a-z][a-z0-9_-]{{0,61}}[a-z0-9]", re.ASCII)
_MOST_BYTES = 1 << 30
"""The largest size that an archive may expand to."""


class RepoFetcherBase:
    """Base of fetchers: what a repository is called, and where it is kept."""

    @classmethod
    def fetch(
        cls,
        git_host: str,
        repo_info: str,
        use_cache: bool = False,
        commit: str | None = None,
        silent: bool = True,
    ) -> str:
        """Return the name of the folder, below the current one, that holds a repository.

        Args:
            git_host: the host, such as github.com.
            repo_info: ``owner/name``, or ``owner/name:branch``.
            use_cache: take what was downloaded before, if it is there.
            commit: the commit, in place of the newest one.
            silent: accepted for MegEngine's sake.

        Raises:
            FetcherError: it cannot be had.
        """
        raise InvalidProtocol(f"{cls.__name__} knows no way to a repository; GitHTTPSFetcher does")

    @classmethod
    def _parse_repo_info(cls, repo_info: str) -> tuple[str, str, str]:
        """Return owner, name and branch."""
        path, _, branch = repo_info.partition(":")
        parts = path.split("/")
        if len(parts) != 2 or not all(parts) or ":" in branch:
            raise InvalidRepo(
                f"repo_info: {repo_info!r} is invalid; expected owner/name or owner/name:branch"
            )
        return parts[0], parts[1], branch or DEFAULT_BRANCH_NAME

    @classmethod
    def _check_git_host(cls, git_host: str) -> bool:
        return cls._is_valid_domain(git_host) or cls._is_valid_host(git_host)

    @classmethod
    def _is_valid_domain(cls, s: str) -> bool:
        try:
            return bool(_DOMAIN.fullmatch(s.encode("idna").decode("ascii").lower()))
        except UnicodeError:
            return False

    @classmethod
    def _is_valid_host(cls, s: str) -> bool:
        try:
            ipaddress.IPv4Address(s)
        except ValueError:
            return False
        return True

    @classmethod
    def _gen_repo_dir(cls, repo_dir: str) -> str:
        return hashlib.sha1(repo_dir.encode(), usedforsecurity=False).hexdigest()[:16]

    @classmethod
    def _folder(cls, git_host: str, repo_info: str, commit: str | None) -> str:
        """Return the name under which a repository is kept."""
        if not cls._check_git_host(git_host):
            raise InvalidGitHost(f"git_host: {git_host!r} is malformed; expected a name such as github.com")
        return "loadrun_" + cls._gen_repo_dir(
            "_".join((git_host, *cls._parse_repo_info(repo_info), commit or ""))
        )


class GitSSHFetcher(RepoFetcherBase):
    """Refuses: no program is started to clone repositories."""

    @classmethod
    def fetch(
        cls,
        git_host: str,
        repo_info: str,
        use_cache: bool = False,
        commit: str | None = None,
        silent: bool = True,
    ) -> str:
        """Return the folder of a repository that is in the cache.

        Raises:
            GitPullError: it is not.
        """
        folder = cls._folder(git_host, repo_info, commit)
        if use_cache and os.path.isdir(folder):
            return folder
        raise GitPullError(
            f"{repo_info} is not cloned over SSH, as loadrun starts no git; clone it and give the folder's path, "
            "or use protocol='HTTPS'"
        )


class GitHTTPSFetcher(RepoFetcherBase):
    """Downloads the archive of a public repository."""

    @classmethod
    def fetch(
        cls,
        git_host: str,
        repo_info: str,
        use_cache: bool = False,
        commit: str | None = None,
        silent: bool = True,
    ) -> str:
        """Return the name of the folder, below the current one, that holds a repository; see the base class."""
        folder = cls._folder(git_host, repo_info, commit)
        if use_cache and os.path.isdir(folder):
            return folder
        owner, name, branch = cls._parse_repo_info(repo_info)
        url = cls._git_archive_link(git_host, owner, name, branch, commit)
        _log.info("downloading %s", url)
        with tempfile.TemporaryDirectory(dir=".") as scratch:
            extracted = cls._download_zip_and_extract(url, scratch)
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(extracted, folder)
        return folder

    @classmethod
    def _git_archive_link(
        cls, git_host: str, repo_owner: str, repo_name: str, branch_info: str, commit: str | None
    ) -> str:
        return f"https://{git_host}/{repo_owner}/{repo_name}/archive/{commit or branch_info}.zip"

    @classmethod
    def _download_zip_and_extract(cls, url: str, target_dir: str) -> Path:
        """Return the only folder of an archive, unfolded below `target_dir`."""
        with tempfile.TemporaryFile() as file:
            try:
                with urllib.request.urlopen(url, timeout=HTTP_READ_TIMEOUT) as answer:
                    shutil.copyfileobj(answer, file)
            except OSError as e:
                raise HTTPDownloadError(f"an error occurred when downloading from {url}: {e}") from None
            return _unfolded(file, Path(target_dir))


def _unfolded(file: Any, target: Path) -> Path:
    """Unfold an archive that holds one folder, with no file outside of it."""
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            tops = {PurePosixPath(i.filename).parts[0] for i in infos if i.filename.strip("/")}
            paths = [PurePosixPath(i.filename.replace("\\", "/")) for i in infos]
            if len(tops) != 1 or any(p.is_absolute() or ".." in p.parts for p in paths):
                raise GitPullError("the archive does not hold one folder, as those of repositories do")
            if sum(i.file_size for i in infos) > _MOST_BYTES:
                raise GitPullError(f"the archive unfolds to more than {_MOST_BYTES} bytes; clone it yourself")
            archive.extractall(target)
    except zipfile.BadZipFile as e:
        raise GitPullError(f"what was downloaded is not an archive: {e}") from None
    return target / tops.pop()
