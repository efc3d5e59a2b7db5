"""Runs under real MegEngine: print numbers and names that it gives to what it loads, one JSON line a file.

Every file is loaded in a process of its own, because numbers begin anew there and a bad file can kill the runtime.
"""

import io
import json
import os
import struct
import sys


def dump_size(data):
    if data[8:12] == b"mgv2":
        return 4 + struct.unpack_from("<I", data)[0]
    header = 24 if data[:4] == b"MGBC" else 16
    at = header + struct.unpack_from("<Q", data, header - 8)[0]
    return at + 4 + struct.unpack_from("<I", data, at)[0]


def names(path, graph_module):
    with open(path, "rb") as f:
        data = f.read()
    if data[:8] == b"mgbtest0":
        data = data[12:]
    loaded = graph_module.load_graph(io.BytesIO(data[: dump_size(data)]))
    loaded.graph.options.graph_opt_level = 0
    oprs, todo = {}, [v.owner for v in loaded.output_vars_list]
    while todo:
        opr = todo.pop()
        if opr.id not in oprs:
            oprs[opr.id] = [opr.name, opr.type, [[v.id, v.name] for v in opr.outputs]]
            todo += [v.owner for v in opr.inputs]
    order = json.loads(loaded.graph.compile(loaded.output_vars_list)._to_json())["comp_seq"]
    return {"oprs": oprs, "order": [int(i) for i in order]}


def main():
    # Once, before processes are forked.
    from megengine.core.tensor import megbrain_graph as graph_module

    for path in sys.argv[1:]:
        here, there = os.pipe()
        if os.fork() == 0:
            os.close(here)
            with os.fdopen(there, "w") as out:
                json.dump({"file": path, **names(path, graph_module)}, out)
            os._exit(0)
        os.close(there)
        with os.fdopen(here) as answer:
            print(answer.read() or json.dumps({"file": path}), flush=True)
        os.wait()


main()
