"""Runs dumps in MegEngine's own Python, told what to do through its standard input; it imports nothing of loadrun.

A message is a line of JSON and the bytes of the arrays that it lists (``arrays``: name, dtype, shape), in that order;
so is an answer. Written for Python 3.7 and later, the versions that MegEngine comes for.
"""

from __future__ import annotations

import sys

del sys.path[0]  # this script's folder holds files that are called like packages

import json  # noqa: E402
import os  # noqa: E402
from typing import IO, TYPE_CHECKING, Any  # noqa: E402

import numpy as np  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable

    Arrays = dict[str, Any]


class Model:
    """A dump that is loaded: inputs are fed by name, outputs come in order.

    Args:
        path: a dump without testcases.
    """

    def __init__(self, path: str) -> None:
        from megengine.core.tensor import megbrain_graph  # optional
        from megengine.utils import comp_graph_tools  # optional

        self.api, self.tools, self.path = megbrain_graph, comp_graph_tools, path
        self.func: Any = None
        self.compile()

    def compile(self) -> None:
        """Load the dump and make the function of its graph."""
        with open(self.path, "rb") as file:
            loaded = self.api.load_graph(file)
        graph, outputs = loaded.graph, list(loaded.output_vars_list)
        self.inputs: Arrays = {}
        self.dtypes: Arrays = {}
        instead: Arrays = {}
        for var in self.tools.get_dep_vars(outputs, "Host2DeviceCopy"):
            node = self.api.InputNode(device="xpux", dtype=var.dtype, shape=var.shape, graph=graph)
            self.inputs[var.name], self.dtypes[var.name] = node, var.dtype
            instead[var] = variable(node.outputs[0])
        replaced = self.tools.replace_vars(outputs, instead) if instead else outputs
        self.outputs = [self.api.OutputNode(v) for v in replaced]
        self.func = graph.compile([variable(o.outputs[0]) for o in self.outputs])

    def run(self, feeds: Arrays) -> list[Any]:
        """Execute once: arrays by input name; the outputs' arrays."""
        from megengine import tensor  # optional

        if self.func is None:
            self.compile()
        # A function that failed cannot be executed again.
        func, self.func = self.func, None
        for name, node in self.inputs.items():
            value = tensor(feeds[name], dtype=self.dtypes[name], device="xpux")
            node.set_value(value._dev_tensor())
        func.execute()
        func.wait()
        outputs = [np.ascontiguousarray(o.get_value().numpy()) for o in self.outputs]
        self.func = func
        return outputs


def variable(output: object) -> object:
    """Return the graph's variable behind what nodes list as their outputs, which differs between versions."""
    return getattr(output, "_node", output)


def read(stream: IO[bytes]) -> tuple[Arrays, Arrays] | None:
    """Read the next message and its arrays by name, or None at the end."""
    line = stream.readline()
    if not line:
        return None
    message = json.loads(line.decode())
    arrays: Arrays = {}
    for name, dtype, shape in message.get("arrays", ()):
        kind = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        data = stream.read(count * kind.itemsize)
        arrays[name] = np.frombuffer(data, kind, count).reshape(shape)
    return message, arrays


def write(stream: IO[bytes], message: Arrays, arrays: Iterable[Any] = ()) -> None:
    """Answer with a message and arrays."""
    message["arrays"] = [["", a.dtype.str, list(a.shape)] for a in arrays]
    stream.write(json.dumps(message).encode() + b"\n")
    for array in arrays:
        stream.write(array.tobytes())
    stream.flush()


def answer(message: Arrays, arrays: Arrays, models: dict[str, Model]) -> tuple[Arrays, Iterable[Any]]:
    """Do what a message asks; the answer and its arrays."""
    if message["do"] == "hello":
        import megengine  # optional

        megengine.set_log_level("ERROR")
        return {"version": megengine.__version__}, ()
    if message["do"] == "load":
        models[message["model"]] = Model(message["path"])
        return {}, ()
    if message["do"] == "drop":
        models.pop(message["model"], None)
        return {}, ()
    return {}, models[message["model"]].run(arrays)


def main() -> None:
    """Answer messages until there are none."""
    # MegEngine prints to standard output, which is for answers alone.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    models: dict[str, Model] = {}
    while True:
        message = read(sys.stdin.buffer)
        if message is None:
            break
        try:
            write(out, *answer(message[0], message[1], models))
        except Exception as e:
            write(out, {"error": str(e) or type(e).__name__})
    # The runtime's own teardown may hang or crash.
    os._exit(0)


if __name__ == "__main__":
    main()
