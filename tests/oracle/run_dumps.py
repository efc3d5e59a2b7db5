"""Runs under real MegEngine: load dumps, feed their testcases, print one JSON line a file.

  run_dumps.py FILE...              replay testcase files; a plain dump is loaded only
  run_dumps.py --feed A.npz FILE    run a plain dump on arrays by input name, save outputs as FILE.out.npz
  run_dumps.py --dump FORMAT FILE   load a plain dump and dump it again as FILE.again, print what dumping returned

Every file runs in a process of its own, because a bad one can kill the runtime.
"""

import io
import json
import os
import signal
import struct
import sys

import numpy as np


def dump_size(data):
    if data[8:12] == b"mgv2":
        return 4 + struct.unpack_from("<I", data)[0]
    header = 24 if data[:4] == b"MGBC" else 16
    at = header + struct.unpack_from("<Q", data, header - 8)[0]
    return at + 4 + struct.unpack_from("<I", data, at)[0]


class Model:
    """A dump whose inputs can be fed by name."""

    def __init__(self, data):
        from megengine.core.tensor import megbrain_graph as graph_module
        from megengine.utils import comp_graph_tools as tools

        loaded = graph_module.load_graph(io.BytesIO(data))
        inputs = sorted(tools.get_dep_vars(loaded.output_vars_list, "Host2DeviceCopy"), key=lambda v: v.name)
        self.nodes, self.dtypes, replaced = {}, {}, {}
        for var in inputs:
            node = graph_module.InputNode(device="xpux", dtype=var.dtype, shape=var.shape, graph=loaded.graph)
            self.nodes[var.name], self.dtypes[var.name] = node, var.dtype
            replaced[var] = getattr(node.outputs[0], "_node", node.outputs[0])
        outs = tools.replace_vars(loaded.output_vars_list, replaced) if replaced else loaded.output_vars_list
        self.errors = [
            graph_module.OutputNode(v.owner.inputs[2]) for v in tools.get_dep_vars(outs, "AssertEqual")
        ]
        self.outs = [graph_module.OutputNode(v) for v in outs if v.owner.type != "AssertEqual"]
        asserts = [v for v in outs if v.owner.type == "AssertEqual"]
        fetched = [n.outputs[0] for n in self.errors + self.outs]
        self.run_graph = loaded.graph.compile(asserts + [getattr(v, "_node", v) for v in fetched])

    def run(self, feeds):
        from megengine import tensor

        for name, node in self.nodes.items():
            node.set_value(tensor(feeds[name], dtype=self.dtypes[name], device="xpux")._dev_tensor())
        self.run_graph.execute()
        self.run_graph.wait()
        self.values = [float(n.get_value().numpy().reshape(-1)[0]) for n in self.errors]
        return [n.get_value().numpy() for n in self.outs]


def constants(data):
    from megengine.core.tensor import megbrain_graph as graph_module

    loaded = graph_module.load_graph(io.BytesIO(data))
    nodes = [graph_module.OutputNode(v) for v in loaded.output_vars_list]
    func = loaded.graph.compile([getattr(n.outputs[0], "_node", n.outputs[0]) for n in nodes])
    func.execute()
    func.wait()
    return [n.get_value().numpy() for n in nodes]


def replay(path, feed):
    with open(path, "rb") as f:
        data = f.read()
    if data[:8] != b"mgbtest0":
        model = Model(data)
        if feed:
            with np.load(feed) as arrays:
                outs = model.run(dict(arrays))
            np.savez(path + ".out.npz", **{f"out.{i}": v for i, v in enumerate(outs)})
        return {"result": "loaded"}
    count, at, parts = struct.unpack_from("<I", data, 8)[0], 12, []
    for _ in range(count + 1):
        size = dump_size(data[at:])
        parts.append(data[at : at + size])
        at += size
    errors = []
    for part in parts[1:]:
        model = Model(parts[0])
        model.run(dict(zip(sorted(model.nodes), constants(part), strict=True)))
        errors.append(model.values)
    return {"result": "pass", "errors": errors}


def dump_again(path, format):
    from megengine.core.tensor import megbrain_graph as graph_module

    with open(path, "rb") as f:
        loaded = graph_module.load_graph(f)
    keep = {"keep_var_name": 2, "keep_param_name": True, "no_change_graph": True}
    content, info = graph_module.dump_graph(loaded.output_vars_list, dump_format=format, **keep)
    with open(path + ".again", "wb") as f:
        f.write(content)
    return {"result": "dumped", "info": info._asdict()}


def main():
    args = sys.argv[1:]
    dump = args.pop(args.index("--dump") + 1) if "--dump" in args else None
    feed = args.pop(args.index("--feed") + 1) if "--feed" in args else None
    args = [a for a in args if a not in ("--feed", "--dump")]
    import megengine

    megengine.set_log_level("ERROR")
    for path in args:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            out = os.dup(1)
            os.dup2(2, 1)
            signal.alarm(300)
            try:
                row = dump_again(path, dump) if dump else replay(path, feed)
            except Exception as e:
                row = {"result": "fail" if "nequal" in str(e) else "error", "text": str(e)[:300]}
            os.write(out, (json.dumps(dict(row, file=path)) + "\n").encode())
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if status:
            # The alarm is there for kernels that never return; a busy machine may take long, too.
            result = "timeout" if status == signal.SIGALRM else "crash"
            print(json.dumps({"file": path, "result": result, "text": f"status {status}"}))


main()
