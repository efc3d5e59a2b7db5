"""Checkpoints that loadrun writes are loaded by real MegEngine, and hold what was given."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadrun.dump.checkpoint import load_checkpoint, save_checkpoint
from tests.support.oracle import ORACLE, ROOT

pytestmark = pytest.mark.oracle


def about(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        mark = dict(value.dtype.metadata or {}).get("mgb_dtype")
        if mark == {"name": "BFloat16"}:
            return ["bfloat16", None, list(value.shape), np.asarray(value).ravel().tolist()]
        return [
            value.dtype.newbyteorder("=").str,
            mark,
            list(value.shape),
            np.asarray(value).ravel().tolist(),
        ]
    if isinstance(value, dict):
        return {str(k): about(v) for k, v in value.items()}
    return [about(v) for v in value] if isinstance(value, (list, tuple)) else value


def test_written_checkpoints_load_in_megengine(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    quantized = np.dtype(
        "u1", metadata={"mgb_dtype": {"name": "Quantized8Asymm", "scale": 0.5, "zero_point": 7}}
    )
    values: dict[str, Any] = {
        "state.pkl": {
            "linear.weight": rng.random((2, 3), "f4"),
            "linear.bias": rng.random(2, "f4"),
            "bn.weight": rng.random(2, "f4"),
            "bn.bias": rng.random(2, "f4"),
            "bn.running_mean": rng.random(2, "f4"),
            "bn.running_var": rng.random(2, "f4"),
        },
        "dtypes.pkl": {
            "half": np.arange(3, dtype="f2"),
            "quantized": np.arange(3, dtype="u1").view(quantized),
            "brain": np.arange(3, dtype="f4").view(
                np.dtype("f4", metadata={"mgb_dtype": {"name": "BFloat16"}})
            ),
            "bool": np.array([True, False]),
            "big": np.arange(3, dtype=">i4"),
            "scalar": np.float32(2),
            "nested": [{"epoch": 3, "name": "net"}, (None, True, 2.5, -(2**40))],
        },
    }
    for path in sorted((ROOT / "checkpoints").glob("*state_dict.pkl")):
        values[path.name] = load_checkpoint(path)
    for name, value in values.items():
        save_checkpoint(value, tmp_path / name)
    script = str(Path(__file__).with_name("run_checkpoints.py"))
    command = [str(ORACLE), script, *(str(tmp_path / n) for n in values)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [Path(r["file"]).name for r in rows] == list(values), done.stderr
    for row in rows:
        assert "error" not in row
        expected = json.loads(json.dumps(about(values[Path(row["file"]).name])))
        assert row["state"] == expected
        assert row.get("loaded", expected).keys() == expected.keys()
        assert all(row.get("loaded", expected)[k] == expected[k] for k in expected)
