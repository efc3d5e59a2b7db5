"""One round of real MegEngine (Lite runtime): prints a JSON line.

run_megengine.py MODEL ITERATIONS WARMUP THREADS [tuned]; tuned profiles every algorithm first (up to minutes) and
preprocesses the weights.
"""

import io
import json
import os
import resource
import struct
import sys
import tempfile
import time


def parts(data):
    """The model and the first testcase of a testcase file."""
    sizes, at = [], 12
    for _ in range(2):
        size = 4 + struct.unpack_from("<I", data, at)[0]
        sizes.append(data[at : at + size])
        at += size
    return sizes


def constants(data):
    """Values of a testcase dump, in the order of the sorted input names."""
    from megengine.core.tensor import megbrain_graph as graph_module

    loaded = graph_module.load_graph(io.BytesIO(data))
    nodes = [graph_module.OutputNode(v) for v in loaded.output_vars_list]
    func = loaded.graph.compile([getattr(n.outputs[0], "_node", n.outputs[0]) for n in nodes])
    func.execute()
    func.wait()
    return [n.get_value().numpy() for n in nodes]


def main():
    """Time the model with its checks, as load_and_run does."""
    path, iterations, warmup, threads = sys.argv[1], *map(int, sys.argv[2:5])
    import megengine
    from megenginelite import LiteAlgoSelectStrategy, LiteConfig, LiteNetwork, LiteOptions

    megengine.set_log_level("ERROR")
    with open(path, "rb") as f:
        model, testcase = parts(f.read())
    tuned = sys.argv[5:] == ["tuned"]
    options = LiteOptions()
    options.weight_preprocess = tuned
    net = LiteNetwork(config=LiteConfig(option=options))
    if threads > 1:
        net.threads_number = threads
    if tuned:
        net.set_network_algo_policy(LiteAlgoSelectStrategy.LITE_ALGO_PROFILE)
    with tempfile.NamedTemporaryFile(suffix=".mge") as f:
        f.write(model)
        f.flush()
        net.load(f.name)
    for name, value in zip(sorted(net.get_all_input_name()), constants(testcase)):  # noqa: B905
        net.get_io_tensor(name).set_data_by_copy(value)
    samples, processor = [], []
    shown = os.dup(1)
    os.dup2(2, 1)
    for i in range(warmup + iterations):
        start, begun = time.perf_counter(), time.process_time()
        net.forward()
        net.wait()
        if i >= warmup:
            processor.append(time.process_time() - begun)
            samples.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    os.write(
        shown, (json.dumps({"samples": samples, "processor": processor, "peak_mib": peak}) + "\n").encode()
    )


main()
