"""Repositories in folders and from a host; nothing is downloaded here, a local archive stands for the host."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from loadrun import LoadRunError
from loadrun.megengine import hub
from loadrun.megengine.hub import fetcher
from loadrun.megengine.hub.exceptions import (
    GitPullError,
    HTTPDownloadError,
    InvalidGitHost,
    InvalidProtocol,
    InvalidRepo,
)
from loadrun.megengine.hub.fetcher import GitHTTPSFetcher, GitSSHFetcher, RepoFetcherBase
from loadrun.megengine.hub.tools import load_module

CONF = '''
import helper
dependencies = ["numpy"]
SIZE = 3
def net(width, height=1):
    """A net of some width."""
    return helper.double(width), height
'''


def folder(path: Path, conf: str = CONF) -> Path:
    path.mkdir(parents=True)
    (path / "hubconf.py").write_text(conf)
    (path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    return path


@pytest.fixture(autouse=True)
def forget() -> Any:
    yield
    sys.modules.pop("helper", None)


def test_a_folder(tmp_path: Path) -> None:
    repo = str(folder(tmp_path / "repo"))
    before = list(sys.path)
    assert hub.list(repo) == ["net"]
    assert hub.load(repo, "net", 4, height=2) == (8, 2)
    assert hub.help(repo, "net") == "A net of some width."
    assert hub.import_module(repo).SIZE == 3
    assert sys.path == before
    with pytest.raises(RuntimeError, match=r"cannot find callable SIZE in hubconf\.py; it has net"):
        hub.load(repo, "SIZE")


def test_missing_dependencies(tmp_path: Path) -> None:
    repo = folder(tmp_path / "repo", 'dependencies = ["nowhere_at_all"]\ndef net():\n    return 1\n')
    with pytest.raises(RuntimeError, match="missing dependencies: nowhere_at_all"):
        hub.load(str(repo), "net")


def archive(files: dict[str, str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as z:
        for name, text in files.items():
            z.writestr(name, text)
    return file.getvalue()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the host gives next, and then the addresses that were asked for."""
    asked: list[Any] = [archive({"name-main/hubconf.py": CONF, "name-main/helper.py": "double = abs"})]

    def opened(url: str, timeout: float) -> io.BytesIO:
        asked.append(url)
        if isinstance(asked[0], OSError):
            raise asked[0]
        return io.BytesIO(asked[0])

    monkeypatch.setattr(fetcher.urllib.request, "urlopen", opened)
    monkeypatch.setenv("MGE_HOME", str(tmp_path / "home"))
    return asked


def test_a_host_is_asked_once(host: list[Any], tmp_path: Path) -> None:
    assert hub.load("owner/name:main", "net", -4) == (4, 1)
    assert hub.list("owner/name:main") == ["net"]
    assert host[1:] == ["https://github.com/owner/name/archive/main.zip"]
    assert hub.list("owner/name:main", use_cache=False, git_host="host.org", commit="abc") == ["net"]
    assert host[-1] == "https://host.org/owner/name/archive/abc.zip"
    assert len(list((tmp_path / "home" / "hub").iterdir())) == 2


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (OSError("no route"), HTTPDownloadError, "no route"),
        (b"<html>", GitPullError, "is not an archive"),
        (archive({"a/x": "", "b/y": ""}), GitPullError, "does not hold one folder"),
        (archive({"a/../../x": ""}), GitPullError, "does not hold one folder"),
    ],
)
def test_what_a_host_may_give(host: list[Any], given: Any, error: type[Exception], text: str) -> None:
    host[0] = given
    with pytest.raises(error, match=text):
        hub.list("owner/name")


def test_other_refusals(host: list[Any]) -> None:
    with pytest.raises(InvalidProtocol, match="HTTPS, SSH"):
        hub.list("owner/name", protocol="FTP")
    with pytest.raises(GitPullError, match="starts no git"):
        hub.list("owner/name", protocol="SSH")
    for wrong in ("name", "a/b/c", "/b", "a/b:c:d"):
        with pytest.raises(InvalidRepo, match="owner/name:branch"):
            hub.list(wrong)
    for wrong in ("localhost", "host/", "a..b", "256.0.0.1.5"):
        with pytest.raises(InvalidGitHost, match="malformed"):
            hub.list("owner/name", git_host=wrong)
    assert host[1:] == []
    host[0] = archive({"name-main/readme": ""})
    with pytest.raises(LoadRunError, match=r"holds no hubconf\.py"):
        hub.list("owner/name")
    with pytest.raises(InvalidProtocol, match="no way"):
        RepoFetcherBase.fetch("github.com", "owner/name")


def test_names_of_hosts() -> None:
    for fine in ("github.com", "git.example.co.uk", "10.0.0.1"):
        assert GitHTTPSFetcher._check_git_host(fine)
    assert GitSSHFetcher._parse_repo_info("a/b") == ("a", "b", "master")


def test_a_file_that_is_no_module(tmp_path: Path) -> None:
    with pytest.raises(LoadRunError, match="no Python file"):
        load_module("x", tmp_path / "x.txt")
