"""Names of MegEngine's: those that are not here can be imported, and end in a sentence where they are used."""

from __future__ import annotations

import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.module as M
from loadrun import LoadRunError, Tensor
from loadrun.base.errors import UsageTypeError
from loadrun.dump.checkpoint import load_checkpoint, save_checkpoint
from loadrun.megengine import absent

NAMES: dict[str, list[str] | None] = json.loads(
    (Path(__file__).resolve().parents[1] / "data" / "megengine_names.json").read_text(encoding="utf-8")
)
"""The public names of every module of MegEngine 1.13.0."""
WHOLE = ("functional", "module", "quantization", "random", "serialization", "tensor", "logger")
INNER = {
    "megengine.functional.nn": {"expand_dhw", "expand_hw", "layerPixelShuffle_traceable"},
    "megengine.functional.vision": {"nvof"},
    "megengine.jit.tracing": {"array_comparator"},
    "megengine.logger": {
        "MegBrainLogFormatter",
        "MegEngineLogFormatter",
        "replace_mgb_log_level",
        "set_mgb_log_level",
    },
    "megengine.quantization.utils": {"Round", "register_method_to_class"},
    "megengine.serialization": {"dmap"},
}
"""Names of modules that are here which are inner workings of MegEngine, or a vendor's."""


def of_megengine(module: str) -> Any:
    return importlib.import_module(f"loadrun.{module}")


@pytest.mark.parametrize("module", [m for m in NAMES if m.split(".")[1:2] and m.split(".")[1] in WHOLE])
def test_what_inference_needs_is_here(module: str) -> None:
    inside = module.removeprefix("megengine.")
    if inside in (
        "module.external",
        "functional.tensor_cache",
        "functional.debug_param",
        "functional.external",
    ):
        pytest.skip("a vendor's, MegEngine's own, or settings that mean nothing here")
    if inside == "module.Module":
        found, missing = dir(M.Module), {"replace_param"}
    else:
        found = dir(of_megengine(module if inside != "random.rng" else "megengine.random"))
        missing = INNER.get(module, set())
    assert set(NAMES[module] or ()) - {*found} == missing


@pytest.mark.parametrize("path", absent._HOMES)
def test_names_that_other_files_hold_are_imported_from_where_megengine_has_them(path: str) -> None:
    names = set(NAMES.get(f"megengine.{path}") or ()) - INNER.get(f"megengine.{path}", set())
    found = of_megengine("megengine")
    for part in path.split("."):
        found = getattr(found, part)
    assert found is of_megengine(f"megengine.{path}")
    assert names
    assert {n for n in names if not hasattr(found, n)} == set()


@pytest.mark.parametrize(("why", "modules", "names"), absent._ROWS)
def test_names_that_went_are_imported_from_where_megengine_has_them(
    why: str, modules: list[str], names: list[str]
) -> None:
    for module in modules:
        imported = of_megengine(f"megengine.{module}")
        public = NAMES.get(f"megengine.{module}") or ()
        for name in (*names, *public) if "*" in names else names:
            if name == "*" or name in vars(imported):
                continue
            found = getattr(imported, name)
            with pytest.raises(LoadRunError, match=f"^{name}: ") as called:
                found(1, of="anything")
            assert str(called.value) == f"{name}: {why}; MegEngine has it"


@pytest.mark.parametrize(
    "module",
    ["amp", "autodiff", "config", "core.ops.builtin", "data", "distributed.functional", "dtr", "optimizer"]
    + [
        "data.dataset",
        "data.transform",
        "utils.comp_graph_tools",
        "utils.module_stats",
        "utils.network_node",
    ],
)
def test_no_public_name_of_a_module_that_went_is_missing(module: str) -> None:
    names = {*(NAMES[f"megengine.{module}"] or ())}
    assert names
    assert all(hasattr(of_megengine(f"megengine.{module}"), name) for name in names)


def test_inheriting_from_a_name_that_went() -> None:
    from loadrun.megengine.data.dataset import Dataset
    from loadrun.megengine.optimizer import Optimizer

    for bases in ((Dataset,), (M.Module, Optimizer), (Optimizer, M.Module)):
        with pytest.raises(LoadRunError, match=r"^(Dataset|Optimizer): loadrun .*; MegEngine has it$"):
            type("Own", bases, {})
    assert not isinstance(M.ReLU(), Optimizer)
    assert isinstance(M.ReLU(), M.Module)


def test_a_setting_that_went_is_neither_read_nor_set() -> None:
    from loadrun.megengine import amp, config, core, distributed

    for read in (lambda: bool(amp.enabled), lambda: not distributed.WORLD):
        with pytest.raises(LoadRunError, match="MegEngine has it"):
            read()
    with pytest.raises(LoadRunError, match="deterministic_kernel: loadrun computes with numpy"):
        config.deterministic_kernel = True
    with pytest.raises(LoadRunError, match="_compute_mode: "):
        core._config._compute_mode = "float32"
    with pytest.raises(AttributeError, match="Mode of SGD: loadrun runs networks"):
        _ = loadrun.megengine.optimizer.SGD.Mode
    with pytest.raises(ImportError, match="cannot import name 'Sgd'"):
        exec("from loadrun.megengine.optimizer import Sgd")
    names: dict[str, Any] = {}
    exec("from loadrun.megengine.data.transform import *", names)
    assert "ToMode" in names


def test_training_is_refused_when_it_is_asked_for() -> None:
    with pytest.raises(LoadRunError, match="zero_grad: loadrun runs networks, it does not train them"):
        M.Linear(1, 1).zero_grad()


@pytest.mark.parametrize("name", ["cuda0", "cpu", "CPU0", "tpu0", "cpu-1", "multithread", "cambricon", ""])
def test_names_of_no_device(name: str) -> None:
    with pytest.raises(RuntimeError, match="invalid device name"):
        Tensor(1.0, device=name)
    with pytest.raises(AssertionError, match="invalid device name"):
        loadrun.megengine.set_default_device(name)


def test_default_device() -> None:
    assert loadrun.megengine.get_default_device() == "xpux"
    assert Tensor(1).device == "xpux"
    loadrun.megengine.set_default_device("cpu0")
    try:
        assert loadrun.megengine.get_default_device() == "cpu0"
        assert Tensor(1).device == "cpu0"
    finally:
        loadrun.megengine.set_default_device("xpux")
    for name in ("cpu:0", "xpu", "multithread:default:0"):
        with pytest.raises(AssertionError, match="invalid device name"):
            loadrun.megengine.set_default_device(name)


def test_what_there_is() -> None:
    assert (
        loadrun.megengine.get_device_count("cpu")
        == loadrun.megengine.get_device_count("xpu")
        == os.cpu_count()
    )
    assert loadrun.megengine.get_device_count("gpu") == loadrun.megengine.get_device_count("rocm") == 0
    for name in ("CPU", "cuda", "cambricon", "multithread"):
        with pytest.raises(AssertionError, match="device must be one of"):
            loadrun.megengine.get_device_count(name)
    assert not loadrun.megengine.is_cuda_available()
    with pytest.raises(LoadRunError, match="no GPU"):
        loadrun.megengine.get_cuda_version()
    with pytest.raises(LoadRunError, match="memory of devices is not counted"):
        loadrun.megengine.get_allocated_memory()


def test_saved_tensors_come_back_as_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    file = io.BytesIO()
    save_checkpoint({"t": Tensor([1.0]), "p": loadrun.Parameter([2.0]), "a": np.ones(1)}, file)
    found = load_checkpoint(file.getvalue(), map_location={"gpu0": "cpu0"})
    assert [type(v).__name__ for v in found.values()] == ["Tensor", "Parameter", "ndarray"]
    plain = load_checkpoint(file.getvalue(), tensors=False)
    assert [type(v).__name__ for v in plain.values()] == ["ndarray"] * 3
    for fine in ("cpu0", lambda name: "cpu0", None):
        load_checkpoint(file.getvalue(), fine)
    for wrong in ("cuda0", {"gpu0": "nowhere"}, 3):
        with pytest.raises(AssertionError, match="invalid device name"):
            load_checkpoint(file.getvalue(), wrong)  # type: ignore[arg-type]


def test_saving_a_module_says_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    logger = loadrun.megengine.get_logger("loadrun.dump.checkpoint.emit")
    monkeypatch.setattr(logger.handlers[0], "stream", stream)
    file = io.BytesIO()
    save_checkpoint(M.Linear(2, 3), file)
    assert "wrote the state dict of the Linear, 2 tensors, and no code" in stream.getvalue()
    assert list(load_checkpoint(file.getvalue())) == ["bias", "weight"]


def test_a_module_that_is_absent_is_told_with_the_page_that_says_why(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "try:\n"
        "    import megengine.xla\n"
        "except ModuleNotFoundError as e:\n"
        "    print(e.name, e)\n"
        "try:\n"
        "    from megengine.utils import profilers\n"
        "except ImportError as e:\n"
        "    print(type(e).__name__)\n"
    )
    command = [sys.executable, "-m", "loadrun.megengine", str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    name = "megengine.xla"
    assert ended.stdout.splitlines() == [
        f"{name} No module named '{name}' in loadrun; docs/megengine.md lists what is not there, and why",
        "ImportError",
    ]


def test_a_script_s_processes_and_modules_stand_in_too(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, subprocess, sys\n"
        "import megengine\n"
        "from megengine import functional as F\n"
        "def work(queue):\n"
        "    queue.put((megengine.Tensor.__module__, F.relu(megengine.tensor([-1.0, 2.0])).tolist()))\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=work, args=(queue,))\n"
        "    process.start()\n"
        "    print(*queue.get())\n"
        "    process.join()\n"
        "    code = 'import megengine.module as M; print(M.ReLU.__module__)'\n"
        "    subprocess.run([sys.executable, '-c', code], check=True)\n"
        "    print(sys.argv[1:])\n"
    )
    expected = ["loadrun.tensors.value [0.0, 2.0]", "loadrun.megengine.module.activation"]
    command = [sys.executable, "-u", "-m", "loadrun.megengine"]
    ended = subprocess.run([*command, str(script), "-x"], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [*expected, "['-x']"]
    ended = subprocess.run(
        [*command, "-m", "script"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert ended.stdout.splitlines() == [*expected, "[]"]
    for missing, kind in (("nosuch.py", "script"), ("-m", "")):
        arguments = [missing] if kind else [missing, "nosuch.module"]
        ended = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == f"loadrun.megengine: {arguments[-1]}: there is no such {kind or 'module'}\n"


def test_a_dtype_that_is_none():
    for wrong in ("nope", 3.5, object):
        with pytest.raises(UsageTypeError, match=r"no dtype|can hold"):
            loadrun.tensor([1.0], dtype=wrong)
