"""Errors of repositories, as ``megengine.hub.exceptions`` has them."""

from __future__ import annotations

from ...base.errors import UsageError

__all__ = [
    "FetcherError",
    "GitCheckoutError",
    "GitPullError",
    "HTTPDownloadError",
    "InvalidGitHost",
    "InvalidProtocol",
    "InvalidRepo",
]


class FetcherError(UsageError):
    """A repository cannot be had."""


class InvalidRepo(FetcherError):
    """It is not named ``owner/name`` or ``owner/name:branch``."""


class InvalidGitHost(FetcherError):
    """The host has no such name."""


class GitPullError(FetcherError):
    """It cannot be downloaded."""


class GitCheckoutError(FetcherError):
    """The commit cannot be had."""


class InvalidProtocol(FetcherError):
    """The protocol is none of those that are known."""


class HTTPDownloadError(FetcherError):
    """A download failed."""
