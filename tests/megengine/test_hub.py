"""Repositories in folders and from a host; nothing is downloaded here, a local archive stands for the host."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from loadrun import LoadRunError
from loadrun.megengine import hub

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

    monkeypatch.setattr(hub.hub.urllib.request, "urlopen", opened)
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
    ("given", "text"),
    [
        (OSError("no route"), "no route"),
        (b"<html>", "is not an archive"),
        (archive({"a/x": "", "b/y": ""}), "does not hold one folder"),
        (archive({"a/../../x": ""}), "does not hold one folder"),
    ],
)
def test_what_a_host_may_give(host: list[Any], given: Any, text: str) -> None:
    host[0] = given
    with pytest.raises(LoadRunError, match=text):
        hub.list("owner/name")


def test_other_refusals(host: list[Any]) -> None:
    for protocol in ("FTP", "SSH"):
        with pytest.raises(LoadRunError, match=f"expected 'HTTPS', found '{protocol}'.*starts no git"):
            hub.list("owner/name", protocol=protocol)
    for wrong in ("name", "a/b/c", "/b", "a/b:c:d"):
        with pytest.raises(LoadRunError, match="owner/name:branch"):
            hub.list(wrong)
    for wrong in ("localhost", "host/", "a..b", "256.0.0.1.5"):
        with pytest.raises(LoadRunError, match="malformed"):
            hub.list("owner/name", git_host=wrong)
    assert host[1:] == []
    host[0] = archive({"name-main/readme": ""})
    with pytest.raises(LoadRunError, match=r"holds no hubconf\.py"):
        hub.list("owner/name")


@pytest.mark.parametrize("fine", ["github.com", "git.example.co.uk", "10.0.0.1"])
def test_names_of_hosts(host: list[Any], fine: str) -> None:
    hub.list("owner/name", git_host=fine)
    assert host[1:] == [f"https://{fine}/owner/name/archive/master.zip"]


RESNET = """
import megengine.functional as F
import megengine.module as M
import megengine.distributed as dist
from megengine.amp import autocast
from megengine.autodiff import GradManager
from megengine.data import DataLoader, RandomSampler, transform as T
from megengine.data.dataset import ImageNet
from megengine.optimizer import SGD, MultiStepLR
from megengine.utils.module_stats import module_stats

class Block(M.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = M.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.bn1 = M.BatchNorm2d(outside)
        self.conv2 = M.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = M.BatchNorm2d(outside)
        self.downsample = M.Conv2d(inside, outside, 1, stride) if stride > 1 else M.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))

def resnet(classes: int = 10):
    return M.Sequential(
        M.Conv2d(3, 8, 3, padding=1), Block(8, 8, 1), Block(8, 16, 2), M.AdaptiveAvgPool2d(1), Flat(),
        M.Linear(16, classes),
    )

class Flat(M.Module):
    def forward(self, x):
        return F.flatten(x, 1)

def train(net, optimizer: SGD, data: DataLoader | None = None):
    loader = DataLoader(ImageNet("."), RandomSampler(None), T.Compose([]))
    gm = GradManager().attach(net.parameters(), [dist.make_allreduce_cb("mean")])

def inherited():
    class Cifar(ImageNet):
        pass
"""


def test_a_repository_that_imports_what_trains_builds_its_model(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text(RESNET)
    script = tmp_path / "script.py"
    script.write_text(
        "import megengine, numpy\n"
        "net = megengine.hub.load('.', 'resnet', classes=4)\n"
        "net.eval()\n"
        "print(net(megengine.tensor(numpy.ones((2, 3, 8, 8), 'float32'))).shape)\n"
        "for entry, args in (('train', (net, None)), ('inherited', ())):\n"
        "    try:\n"
        "        megengine.hub.load('.', entry, *args)\n"
        "    except Exception as e:\n"
        "        print(e)\n"
    )
    command = [sys.executable, "-m", "loadrun.megengine", str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    why = "loadrun loads and transforms no data sets; give it arrays, for instance with --input; MegEngine has it"
    assert ended.stdout.splitlines() == ["(2, 4)", f"ImageNet: {why}", f"ImageNet: {why}"]
