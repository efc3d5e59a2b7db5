"""Plant faults in a small ONNX net, and see which tools find and locate them: the table of docs/comparison.md.

    pip install . onnx onnxruntime polygraphy pytest-regressions bioimageio.core
    python scripts/planted_faults.py          # prints what each tool says of each fault
    python scripts/planted_faults.py --write  # ... and writes the table

Expected outputs are ONNX Runtime's of the sound net, for three data sets. A tool finds a fault if it does not
pass, and locates it if the first operator or tensor that it names is of the node with the fault.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

PAGE = Path(__file__).resolve().parent.parent / "docs" / "comparison.md"
BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
INPUTS = {"a": (2, 3, 12, 12), "b": (2, 3, 12, 12)}
Found = tuple[bool, bool | None]
"""Whether a tool does not pass, and whether what it names is the node; None if it names none."""


def net() -> onnx.ModelProto:
    """Make a net of 11 nodes, each named by its only output, with two inputs and two outputs."""
    rng = np.random.default_rng(7)
    shapes = {"w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "mean": (8,), "w3": (8, 8), "b3": (8,)}
    weights = {name: rng.normal(0, 0.4, shape) for name, shape in shapes.items()}
    weights |= {"scale": rng.uniform(0.5, 2, 8), "shift": rng.normal(size=8), "var": rng.uniform(0.05, 1, 8)}
    node = helper.make_node
    nodes = [
        node("Sub", ["a", "b"], ["sub"]),
        node("Conv", ["sub", "w1", "b1"], ["conv1"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["conv1", "scale", "shift", "mean", "var"], ["norm"], epsilon=1e-5),
        node("Relu", ["norm"], ["relu"]),
        node("MaxPool", ["relu"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["pool", "w2"], ["conv2"], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["conv2"], ["mean_pool"]),
        node("Flatten", ["mean_pool"], ["flat"]),
        node("Gemm", ["flat", "w3", "b3"], ["logits"], transB=1),
        node("Softmax", ["conv2"], ["map"], axis=1),
        node("ReduceMean", ["map"], ["density"], axes=[2, 3], keepdims=0),
    ]
    for n in nodes:
        n.name = n.output[0]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in INPUTS.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, 8)) for n in ("logits", "density")],
        [numpy_helper.from_array(v.astype(np.float32), n) for n, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def node_of(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    """Find the node of a name."""
    return next(n for n in model.graph.node if n.name == name)


def weight(model: onnx.ModelProto, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change a weight."""
    tensor = next(t for t in model.graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(tensor).copy()), name))


def attribute(model: onnx.ModelProto, name: str, key: str, value: object) -> None:
    """Set an attribute of a node."""
    node = node_of(model, name)
    kept = [a for a in node.attribute if a.name != key]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(key, value)])


def part(value: np.ndarray, factor: float) -> np.ndarray:
    """Multiply the first 3x3 kernel of a weight."""
    value[0, 0] *= factor
    return value


def _kind(model: onnx.ModelProto, name: str, kind: str) -> None:
    node_of(model, name).op_type = kind


def _swapped(model: onnx.ModelProto) -> None:
    node_of(model, "sub").input[:] = ["b", "a"]


def _float64(model: onnx.ModelProto) -> None:
    node_of(model, "logits").output[0] = "logits32"
    model.graph.node.append(
        helper.make_node("Cast", ["logits32"], ["logits"], name="cast", to=TensorProto.DOUBLE)
    )
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def _lost(model: onnx.ModelProto) -> None:
    del model.graph.output[1]
    del model.graph.node[-2:]


def _reordered(model: onnx.ModelProto) -> None:
    model.graph.input.reverse()


FAULTS: list[tuple[str, str | None, Callable[[onnx.ModelProto], None]]] = [
    ("sign of a kernel", "conv1", lambda m: weight(m, "w1", lambda v: part(v, -1))),
    ("transposed weight", "logits", lambda m: weight(m, "w3", lambda v: v.T.copy())),
    ("axis of Softmax", "map", lambda m: attribute(m, "map", "axis", 2)),
    ("epsilon 1e-5 to 1e-2", "norm", lambda m: attribute(m, "norm", "epsilon", 1e-2)),
    ("NaN in a weight", "conv2", lambda m: weight(m, "w2", lambda v: part(v, np.nan))),
    ("stride 2 to 1", "pool", lambda m: attribute(m, "pool", "strides", [1, 1])),
    ("padding shifted", "conv1", lambda m: attribute(m, "conv1", "pads", [0, 0, 2, 2])),
    ("Relu to LeakyRelu", "relu", lambda m: _kind(m, "relu", "LeakyRelu")),
    ("MaxPool to AveragePool", "pool", lambda m: _kind(m, "pool", "AveragePool")),
    ("operands swapped", "sub", _swapped),
    ("bias zero", "logits", lambda m: weight(m, "b3", np.zeros_like)),
    (
        "weight rounded to 1/16",
        "conv2",
        lambda m: weight(m, "w2", lambda v: np.round(v * 16) / np.float32(16)),
    ),
    ("output as float64", None, _float64),
    ("output lost", None, _lost),
    ("inputs in another order", None, _reordered),
]
"""What is planted, the node whose value changes (None where no value does), and how."""


def shell(*command: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the tools."""
    root = str(PAGE.parent.parent)
    environment = {**os.environ, "PYTHONPATH": root, **variables}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, env=environment, capture_output=True, text=True
    )


def loadrun(folder: Path, bad: Path, node: str | None) -> Found:
    """`loadrun bad.onnx`, then `loadrun diff bad.onnx --against good.onnx`."""
    found = shell("loadrun", str(bad), "-q", cwd=folder).returncode != 0
    said = shell("loadrun", "diff", str(bad), "--against", "good/good.onnx", cwd=folder).stdout
    blamed = [line for line in said.splitlines() if line.startswith("to blame")]
    return found, bool(blamed) and f"'{node}'" in blamed[0] if node else None


def polygraphy(folder: Path, bad: Path, node: str | None) -> Found:
    """Polygraphy's comparison with the sound net, of the outputs, then of all tensors."""
    import polygraphy.backend.onnx as of_onnx
    import polygraphy.backend.onnxrt as of_ort
    from polygraphy import constants
    from polygraphy.comparator import Comparator, RunResults, SimpleCompareFunc
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = {"": G_LOGGER.CRITICAL}

    def run(path: Path, whole: bool) -> RunResults:
        model = of_onnx.onnx_from_path(str(path))
        if whole:
            model = of_onnx.modify_outputs(model, outputs=constants.MARK_ALL)
        runner = of_ort.OnnxrtRunner(of_ort.SessionFromOnnx(model.SerializeToString()), name=path.stem)
        return Comparator.run([runner], data_loader=[feeds(folder, i) for i in range(3)])

    def compare(whole: bool) -> list[str]:
        results = RunResults([*run(folder / "good" / "good.onnx", whole), *run(bad, whole)])
        compared = Comparator.compare_accuracy(results, compare_func=SimpleCompareFunc())
        pairs = next(iter(compared[0].values()))
        return [name for case in pairs for name, same in case.items() if not same]

    failed = set(compare(whole=True)) if node else set()
    order = [n.name for n in onnx.load(bad).graph.node]
    first = next((name for name in order if name in failed), None)
    return bool(compare(whole=False)), first == node if node else None


def runner(folder: Path, bad: Path, node: str | None) -> Found:
    """ONNX's own runner of its backend tests, with ONNX Runtime as the backend."""
    from onnx.backend.test.case.test_case import TestCase
    from onnx.backend.test.runner import Runner
    from onnxruntime.backend.backend import OnnxRuntimeBackend

    class Backend(OnnxRuntimeBackend):  # its opset check refuses files of newer onnx packages
        @classmethod
        def is_opset_supported(cls, model: onnx.ModelProto) -> tuple[bool, str]:
            return True, ""

    tests = Runner(Backend, __name__)
    case = TestCase("test_fault", "fault", None, str(bad.parent), None, None, "real", 1e-3, 1e-7)
    tests._add_model_test(case, "Real")
    done = unittest.TestResult()
    tests.test_cases["OnnxBackendRealModelTest"]("test_fault_cpu").run(
        done
    )  # the class also holds ONNX's own models
    assert done.testsRun == 1, "nothing ran"
    assert not done.skipped, done.skipped
    return not done.wasSuccessful(), None


SNAPSHOT = """
import os
import numpy as np, onnxruntime
def test_model(ndarrays_regression):
    session = onnxruntime.InferenceSession(os.environ["MODEL"])
    names = [o.name for o in session.get_outputs()]
    values = {}
    for i in range(3):
        with np.load(f"feeds{i}.npz") as feeds:
            values |= {f"{n}{i}": v for n, v in zip(names, session.run(None, dict(feeds)))}
    ndarrays_regression.check(values)
"""


def regressions(folder: Path, bad: Path, node: str | None) -> Found:
    """pytest-regressions: `ndarrays_regression.check` of the outputs, with its own tolerances."""
    pytest = ("pytest", "-q", "-c", os.devnull, "--rootdir", ".", "test_model.py")
    if not (folder / "test_model").exists():
        (folder / "test_model.py").write_text(SNAPSHOT)
        shell(*pytest, "--force-regen", cwd=folder, MODEL="good/good.onnx")
        assert shell(*pytest, cwd=folder, MODEL="good/good.onnx").returncode == 0
    return shell(*pytest, cwd=folder, MODEL=str(bad)).returncode != 0, None


def bioimageio(folder: Path, bad: Path, node: str | None) -> Found:
    """bioimageio.core: the test of a described model, with the tolerances that its specification has by default."""
    from bioimageio.core import test_description

    def tensors(kind: str, names: Iterable[str]) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for k, name in enumerate(names):
            proto = onnx.load_tensor(bad.parent / "test_data_set_0" / f"{kind}_{k}.pb")
            value = numpy_helper.to_array(proto)
            file = bad.parent / f"{name}.npy"
            np.save(file, value)
            axes: list[dict[str, object]] = [{"type": "index", "size": len(value)}]
            axes += [
                {"type": "channel", "channel_names": [f"c{i}" for i in range(n)]}
                if not i
                else {"type": "space", "id": "zyx"[-i], "size": n}
                for i, n in enumerate(value.shape[1:])
            ]
            found.append({"id": name, "axes": axes, "test_tensor": {"source": file.name}})
        return found

    (bad.parent / "README.md").write_text("# A net\n\n## Validation\n\nNone.\n")
    described = bad.parent / "rdf.yaml"
    described.write_text(
        json.dumps(
            {
                "type": "model",
                "format_version": "0.5.4",
                "name": "small net",
                "description": "A net",
                "authors": [{"name": "A"}],
                "cite": [{"text": "none", "url": "https://example.org"}],
                "license": "MIT",
                "documentation": "README.md",
                "inputs": tensors("input", INPUTS),
                "outputs": tensors("output", ("logits", "density")),
                "weights": {"onnx": {"source": bad.name, "opset_version": 17}},
            }
        )
    )
    return bool(test_description(described, weight_format="onnx").errors), None


TOOLS = {
    "loadrun": (loadrun, None),
    "Polygraphy": (polygraphy, "polygraphy"),
    "ONNX's runner": (runner, "onnx"),
    "pytest-regressions": (regressions, "pytest_regressions"),
    "bioimageio.core": (bioimageio, "bioimageio.core"),
}


def feeds(folder: Path, index: int) -> dict[str, np.ndarray]:
    """The inputs of a data set."""
    with np.load(folder / f"feeds{index}.npz") as data:
        return dict(data)


def save(folder: Path, model: onnx.ModelProto, name: str, sound: onnx.ModelProto) -> Path:
    """Write a model beside the data sets of the sound one, in a folder of its own."""
    path = folder / name / f"{name if name == 'good' else 'model'}.onnx"
    path.parent.mkdir()
    onnx.save(model, path)
    session = onnxruntime.InferenceSession(sound.SerializeToString())
    for i in range(3):
        data = path.parent / f"test_data_set_{i}"
        data.mkdir()
        given = feeds(folder, i)
        for kind, tensors in (
            ("input", given.items()),
            ("output", zip(("logits", "density"), session.run(None, given), strict=True)),
        ):
            for k, (tensor, value) in enumerate(tensors):
                proto = numpy_helper.from_array(value, tensor)
                (data / f"{kind}_{k}.pb").write_bytes(proto.SerializeToString())
    return path


def measure() -> dict[str, list[Found]]:
    """Run every tool on every fault, and print what it says."""
    found: dict[str, list[Found]] = {tool: [] for tool in TOOLS}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rng = np.random.default_rng(1)
        for i in range(3):
            np.savez(
                folder / f"feeds{i}.npz",
                **{n: rng.normal(size=s).astype(np.float32) for n, s in INPUTS.items()},
            )
        sound = net()
        good = save(folder, sound, "good", sound)
        passing = save(folder, sound, "sound", sound)
        for tool, (check, _) in TOOLS.items():
            assert not check(folder, passing, None)[0], f"{tool} finds a fault in {good}"
        for number, (name, node, plant) in enumerate(FAULTS):
            bad = net()
            plant(bad)
            path = save(folder, bad, f"bad{number}", sound)
            for tool, (check, _) in TOOLS.items():
                found[tool].append(check(folder, path, node))
            print(f"{name:26}", *(f"{tool}: {found[tool][-1]}" for tool in TOOLS), flush=True)
    return found


def table(found: dict[str, list[Found]]) -> str:
    """Write a row for each fault."""
    from importlib.metadata import version

    packages = {"loadrun": "", **{t: f" {version(p.replace('_', '-'))}" for t, (_, p) in TOOLS.items() if p}}
    said = {True: "located", False: "found", None: "found"}
    lines = [
        "| fault | " + " | ".join(t + packages[t] for t in found) + " |",
        "| --- |" + " --- |" * len(found),
    ]
    for number, (name, _, _) in enumerate(FAULTS):
        cells = [said[at] if seen else "passes" for seen, at in (rows[number] for rows in found.values())]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    located = sum(node is not None for _, node, _ in FAULTS)
    cells = [f"{sum(s for s, _ in rows)}, {sum(bool(a) for _, a in rows)}" for rows in found.values()]
    lines.append(f"| found of {len(FAULTS)}, located of {located} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and write the table if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write the table of docs/comparison.md")
    write = parser.parse_args().write
    made = table(measure())
    print(made)
    if write:
        text = PAGE.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
