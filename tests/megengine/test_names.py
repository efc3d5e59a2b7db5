"""Names that whole scripts for MegEngine import: there, and refused with a sentence where they mean nothing here."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loadrun
import loadrun.megengine.distributed as dist
import loadrun.megengine.functional.distributed as exchange
import loadrun.megengine.module as M
from loadrun import LoadRunError, Tensor
from loadrun.base.errors import UsageError, UsageTypeError
from loadrun.dump.checkpoint import load_checkpoint, save_checkpoint
from loadrun.megengine import amp, config, core, device, dtr, functional, optimizer
from loadrun.megengine.autodiff import Function, GradManager
from loadrun.megengine.data import transform


@pytest.mark.parametrize(
    "call",
    [
        lambda: optimizer.SGD([], lr=0.1),
        lambda: optimizer.MultiStepLR(None, [1]),
        lambda: optimizer.clip_grad_norm([], 1.0),
        GradManager,
        amp.GradScaler,
        lambda: M.Linear(1, 1).zero_grad(),
    ],
)
def test_training_is_refused_when_it_is_asked_for(call: Any) -> None:
    with pytest.raises(LoadRunError, match="runs networks, it does not train them"):
        call()


def test_classes_may_be_inherited_from() -> None:
    class Own(optimizer.Optimizer):
        pass

    assert issubclass(optimizer.Adam, optimizer.Optimizer)
    with pytest.raises(LoadRunError, match="Optimizer: "):
        Own([])
    assert Function
    assert transform.Compose


@pytest.mark.parametrize(
    "name",
    [
        "atlas_runtime_opr",
        "cambricon_runtime_opr",
        "extern_opr_subgraph",
        "magicmind_runtime_opr",
        "tensorrt_runtime_opr",
    ],
)
def test_operators_of_vendors_are_refused(name: str) -> None:
    with pytest.raises(LoadRunError, match=f"{name}: it runs only inside its vendor's runtime"):
        getattr(functional.external, name)([Tensor(1.0)], data=b"")


@pytest.mark.parametrize("name", exchange.__all__)
def test_exchange_between_processes_is_refused(name: str) -> None:
    with pytest.raises(LoadRunError, match=f"{name}: loadrun runs in one process"):
        getattr(exchange, name)(Tensor(1.0))


def test_one_process() -> None:
    assert (dist.get_rank(), dist.get_world_size(), dist.is_distributed(), dist.get_backend()) == (
        0,
        1,
        False,
        None,
    )
    assert dist.WORLD is None
    for call in (dist.init_process_group, dist.launcher, dist.Group):
        with pytest.raises(LoadRunError, match="one process"):
            call("localhost", 0, 1, 0, 0)


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("cpu0", "cpu0:0"),
        ("cpux", "cpux:0"),
        ("xpu0", "xpu0:0"),
        ("xpu", "xpux:0"),
        ("cpu0:1", "cpu0:1"),
        ("cpu:0", "cpu0:0"),
        ("xpu:2", "xpu0:2"),
        ("multithread4:0", "multithread4:0"),
        ("multithread:default:0", "multithread:default:0"),
        ("cpu:default", "cpu:default"),
    ],
)
def test_devices_of_tensors(name: str, full: str) -> None:
    x = Tensor([1.0], device=name)
    assert str(x.device) == full
    assert x.device == name
    assert x.to("xpux").device == "xpux"


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
        assert str(Tensor(1).device) == "cpu0:0"
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
    assert not any(
        (loadrun.megengine.is_cuda_available(), device.is_rocm_available(), device.is_atlas_available())
    )
    assert device.what_is_xpu() == "cpu"
    with pytest.raises(LoadRunError, match="no GPU"):
        loadrun.megengine.get_cuda_version()
    loadrun.megengine.coalesce_free_memory()


def test_levels() -> None:
    for level in (0, 1, 2):
        config.async_level = level
        assert config.async_level == level
    for wrong in (3, -1):
        with pytest.raises(AssertionError, match="0, 1 or 2"):
            config.async_level = wrong
    for no_number in ("1", None, 1.5):
        with pytest.raises(TypeError, match="0, 1 or 2"):
            config.async_level = no_number  # type: ignore[assignment]
    with pytest.raises(AssertionError, match="0, 1 or 2"), config._override(async_level=7):
        pass
    core.set_option("async_level", 1)
    assert core.get_option("async_level") == 1
    core.set_option("async_level", 2)
    with pytest.raises(LoadRunError, match="no option"):
        core.get_option("nonsense")


def test_dtr() -> None:
    assert (dtr.eviction_threshold, dtr.evictee_minimum_size, dtr.enable_sqrt_sampling) == (0, 1048576, False)
    dtr.eviction_threshold = "5GB"
    assert dtr.eviction_threshold == 5368709120
    dtr.eviction_threshold = 0
    with pytest.raises(ValueError, match="KB, MB or GB"):
        dtr.eviction_threshold = "5XB"
    dtr.enable()
    dtr.disable()


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


def test_mixed_precision_under_its_inner_name() -> None:
    inner = core.tensor.amp
    with amp.autocast(low_prec_dtype="bfloat16"):
        assert (inner._enabled, inner.enabled) == (True, True)
        assert (inner._get_amp_low_prec_dtype(), inner._get_amp_high_prec_dtype()) == ("bfloat16", "float32")
    assert not inner._enabled
    inner._set_amp_low_prec_dtype("bfloat16")
    try:
        assert amp.low_prec_dtype == inner.low_prec_dtype == "bfloat16"
    finally:
        inner.low_prec_dtype = "float16"
    assert amp.low_prec_dtype == "float16"


def test_levels_of_the_compiled_part() -> None:
    from loadrun.base.logger import set_mgb_log_level
    from loadrun.megengine.core._imperative_rt import Logger

    before = Logger().set_log_level(Logger.LogLevel.Error)
    try:
        assert logging.getLogger("megbrain").level == logging.ERROR
        assert set_mgb_log_level("INFO") == Logger.LogLevel.Error
        assert Logger.set_log_level(Logger.LogLevel.Warn) is Logger.LogLevel.Info
    finally:
        assert set_mgb_log_level(before) == logging.WARNING


def test_the_seed_of_all_random_numbers() -> None:
    from loadrun.megengine.core._imperative_rt.ops import set_global_rng_seed

    drawn = []
    for seed in (111, 111, 222):
        set_global_rng_seed(seed)
        drawn.append(functional.nn.dropout(Tensor(np.ones(64, np.float32)), 0.5).tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_nothing_waits() -> None:
    from loadrun.megengine.core._imperative_rt.core2 import full_sync, sync

    for wait in (loadrun.megengine._sync, loadrun.megengine._full_sync, full_sync, sync):
        assert wait() is None  # type: ignore[func-returns-value]


def test_symbolic_shapes_by_the_tracer_s_name() -> None:
    from loadrun.megengine.core._trace_option import use_symbolic_shape
    from loadrun.tracing.tracing import set_symbolic_shape

    assert set_symbolic_shape(True) is False
    assert use_symbolic_shape()
    assert set_symbolic_shape(False) is True


def test_a_module_that_is_absent_is_told_with_the_page_that_says_why(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "try:\n"
        "    import megengine.traced_module.expr\n"
        "except ModuleNotFoundError as e:\n"
        "    print(e.name, e)\n"
        "try:\n"
        "    from megengine.utils import profiler\n"
        "except ImportError as e:\n"
        "    print(type(e).__name__)\n"
    )
    command = [sys.executable, "-m", "loadrun.megengine", str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    name = "megengine.traced_module.expr"
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
    for absent, kind in (("nosuch.py", "script"), ("-m", "")):
        arguments = [absent] if kind else [absent, "nosuch.module"]
        ended = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == f"loadrun.megengine: {arguments[-1]}: there is no such {kind or 'module'}\n"


def test_generators_by_number() -> None:
    from loadrun.megengine.core._imperative_rt import ops
    from loadrun.megengine.core._imperative_rt.core2 import apply

    shape = Tensor(np.int32([1000]))
    ops.set_global_rng_seed(1024)
    assert ops.get_global_rng_seed() == 1024
    drawn = []
    for seed in (7, 7, 8):
        handle = ops.new_rng_handle("cpu0", seed)
        op = ops.GaussianRNG(seed=seed, mean=3.0, std=1.0, dtype="float32", handle=handle)
        drawn.append([apply(op, shape)[0].tolist() for _ in range(2)])
        ops.delete_rng_handle(handle)
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]
    assert abs(np.mean(drawn) - 3) < 0.1
    assert abs(np.std(drawn) - 1) < 0.1
    with pytest.raises(UsageError, match="there is no generator of the number"):
        apply(op, shape)


def test_formats_converted_by_themselves() -> None:
    from loadrun.megengine.core._config import get_auto_format_convert, set_auto_format_convert

    assert get_auto_format_convert() is True
    set_auto_format_convert(False)
    assert get_auto_format_convert() is False
    set_auto_format_convert(True)


def test_the_compute_mode_as_published_models_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from loadrun.megengine.core import _config

    monkeypatch.setattr(_config, "__compute_mode", "float32")
    assert loadrun.megengine.config._compute_mode == "float32"


def test_names_of_the_compiled_part_and_of_classes_that_are_absent() -> None:
    from loadrun.megengine.core._imperative_rt import ComputingGraph, core2, make_h2d

    before = core2.get_option("async_level")
    core2.set_option("async_level", 1)
    assert core2.get_option("async_level") == 1
    core2.set_option("async_level", before)
    var = make_h2d(ComputingGraph(), "cpu0", "float32", (2, 3), "x")
    assert (var.name, tuple(var.shape)) == ("x", (2, 3))
    with pytest.raises(
        AttributeError, match=r"PascalVOC\.class_names: loadrun downloads and unpacks no datasets"
    ):
        _ = loadrun.megengine.data.dataset.PascalVOC.class_names


def test_a_dtype_that_is_none():
    for wrong in ("nope", 3.5, object):
        with pytest.raises(UsageTypeError, match=r"no dtype|can hold"):
            loadrun.tensor([1.0], dtype=wrong)
