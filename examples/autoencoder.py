"""One object with two methods, an encoder and a decoder: traced together, each written to a file.

python examples/autoencoder.py --output autoencoder
"""

from __future__ import annotations

import argparse
import os

import numpy as np

import loadrun
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun import tracing as jit


class AutoEncoder(M.Module):
    """Images of (N, 1, 16, 16) to 8 numbers and back; the decoder uses the encoder's weights transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.down = M.Conv2d(1, 4, 4, stride=4)
        self.weight = loadrun.Parameter((np.random.default_rng(0).normal(size=(8, 64)) / 8).astype("float32"))
        self.up = M.ConvTranspose2d(4, 1, 4, stride=4)

    def encode(self, image: loadrun.Tensor) -> loadrun.Tensor:
        """Return the code of every image."""
        return F.matmul(F.flatten(F.relu(self.down(image)), 1), self.weight, transpose_b=True)

    def decode(self, code: loadrun.Tensor) -> loadrun.Tensor:
        """Return the image of every code."""
        return F.sigmoid(self.up(F.matmul(code, self.weight).reshape(code.shape[0], 4, 4, 4)))

    def forward(self, image: loadrun.Tensor) -> loadrun.Tensor:
        """Return the image after both."""
        return self.decode(self.encode(image))


def main(argv: list[str] | None = None) -> int:
    """Trace both methods, check them at another batch size, write and replay them."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--output", default="autoencoder", help="a folder")
    args = p.parse_args(argv)

    net = AutoEncoder()
    net.eval()
    rng = np.random.default_rng(1)

    def example(n: int) -> dict[str, np.ndarray]:
        return {
            "encode": rng.random((n, 1, 16, 16), np.float32),
            "decode": rng.random((n, 8), np.float32),
        }

    traced = jit.trace_module(net, example(1), check_inputs=[example(3)])
    data = {"encode": "#rand(0,1)", "decode": ["#rand(0,1)", "#rand(0,1,4,8)"]}
    os.makedirs(args.output, exist_ok=True)
    for name in traced.methods:
        traced.dump(f"{args.output}/{name}.mge", name, input_data=data[name])
    verdicts = [r.verdict.value for n in traced.methods for r in loadrun.run(f"{args.output}/{n}.mge")]
    print(f"{args.output}: {', '.join(verdicts)}")
    return 0 if verdicts == ["pass"] * 3 else 1


if __name__ == "__main__":
    raise SystemExit(main())
