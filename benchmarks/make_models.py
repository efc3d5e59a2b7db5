"""Write the benchmark models with MegEngine: ResNet-18, ResNet-50, VGG16, MobileNetV2, a U-Net, ViT-S/16 and BERT-base.

resnet18_int8 and mobilenetv2_int8 are quantized with MegEngine's default scheme (min-max observers, int8).

Run with a Python that has MegEngine 1.13:

    python benchmarks/make_models.py FOLDER [MODEL ...]

Every file is a default dump (FBS_V2, ``optimize_for_inference``) with one testcase.  Weights are random but
seeded, and batch norm takes its statistics from a random batch, so activations stay bounded in all layers.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import megengine as mge
import megengine.functional as F
import megengine.module as M
import megengine.quantization as Q
import numpy as np
from megengine.core.tensor import megbrain_graph
from megengine.jit import trace

IMAGE = (1, 3, 224, 224)
LARGER = (1, 3, 256, 256)
"""For the U-Net."""
MAXERR = 1e-3
PLAN = ((16, 1, 1), (24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1))
"""Stages of MobileNetV2: channels, blocks, stride."""


def wait_after_execute() -> None:
    """Make ground-truth runs finish before the dump goes on; MegEngine 1.13 forgets to wait for them."""
    plain = megbrain_graph.Graph.execute

    def execute(self: megbrain_graph.Graph, *args: object) -> None:
        plain(self, *args)
        self.wait()

    megbrain_graph.Graph.execute = execute


class ConvBn(M.Module):
    """Convolution without bias, batch norm and an optional activation."""

    def __init__(
        self,
        inp: int,
        out: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        act: Callable[[mge.Tensor], mge.Tensor] | None = F.relu,
    ) -> None:
        super().__init__()
        self.conv = M.Conv2d(inp, out, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = M.BatchNorm2d(out)
        self.act = act

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = self.bn(self.conv(x))
        return self.act(x) if self.act else x


class Residual(M.Module):
    """A residual block of ResNet: two 3x3 convolutions, or 1x1, 3x3, 1x1 when it is a bottleneck."""

    def __init__(self, inp: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        self.out = width * 4 if bottleneck else width
        if bottleneck:
            body = [ConvBn(inp, width), ConvBn(width, width, 3, stride), ConvBn(width, self.out, act=None)]
        else:
            body = [ConvBn(inp, width, 3, stride), ConvBn(width, width, 3, act=None)]
        self.body = M.Sequential(*body)
        same = inp == self.out and stride == 1
        self.short = M.Identity() if same else ConvBn(inp, self.out, 1, stride, act=None)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return F.relu(self.body(x) + self.short(x))


class ResNet(M.Module):
    """ResNet with four stages of residual blocks."""

    def __init__(self, depths: tuple[int, ...], bottleneck: bool) -> None:
        super().__init__()
        layers: list[M.Module] = [ConvBn(3, 64, 7, 2), M.MaxPool2d(3, 2, 1)]
        channels = 64
        for stage, depth in enumerate(depths):
            for block in range(depth):
                stride = 2 if stage and not block else 1
                layers.append(Residual(channels, 64 << stage, stride, bottleneck))
                channels = layers[-1].out
        self.body = M.Sequential(*layers)
        self.fc = M.Linear(channels, 1000)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.fc(F.flatten(F.avg_pool2d(self.body(x), 7), 1))


class Vgg16(M.Module):
    """VGG16 without batch norm."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[M.Module] = []
        channels = 3
        for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(depth):
                layers += [M.Conv2d(channels, width, 3, 1, 1), M.ReLU()]
                channels = width
            layers.append(M.MaxPool2d(2, 2))
        self.body = M.Sequential(*layers)
        self.head = M.Sequential(
            M.Linear(25088, 4096), M.ReLU(), M.Linear(4096, 4096), M.ReLU(), M.Linear(4096, 1000)
        )

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.head(F.flatten(self.body(x), 1))


class UNet(M.Module):
    """A U-Net of four levels, two classes."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256)) -> None:
        super().__init__()
        self.down = [self.pair(i, o) for i, o in zip((3, *widths[:-1]), widths, strict=True)]
        self.up = [M.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1]]
        self.merge = [self.pair(2 * w, w) for w in widths[-2::-1]]
        self.out = M.Conv2d(widths[0], 2, 1)

    def pair(self, inp: int, out: int) -> M.Module:
        """Two convolutions of one level."""
        return M.Sequential(ConvBn(inp, out, 3), ConvBn(out, out, 3))

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        kept = []
        for level in self.down[:-1]:
            kept.append(level(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.down[-1](x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(F.concat([kept.pop(), up(x)], 1))
        return self.out(x)


class Inverted(M.Module):
    """Inverted residual block of MobileNetV2."""

    def __init__(self, inp: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        mid = inp * expand
        body = [ConvBn(inp, mid, act=F.relu6)] if expand > 1 else []
        body += [ConvBn(mid, mid, 3, stride, mid, F.relu6), ConvBn(mid, out, act=None)]
        self.body = M.Sequential(*body)
        self.add = stride == 1 and inp == out

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        y = self.body(x)
        return x + y if self.add else y


class MobileNetV2(M.Module):
    """MobileNetV2, width 1."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[M.Module] = [ConvBn(3, 32, 3, 2, act=F.relu6)]
        channels = 32
        for out, depth, stride in PLAN:
            expand = 1 if out == 16 else 6
            for block in range(depth):
                layers.append(Inverted(channels, out, 1 if block else stride, expand))
                channels = out
        layers.append(ConvBn(channels, 1280, act=F.relu6))
        self.body = M.Sequential(*layers)
        self.fc = M.Linear(1280, 1000)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.fc(F.flatten(F.avg_pool2d(self.body(x), 7), 1))


class QuantizedResidual(M.Module):
    """A residual block of two 3x3 convolutions whose sum and activation are one quantized operator."""

    def __init__(self, inp: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = M.Sequential(
            M.ConvBnRelu2d(inp, out, 3, stride, 1, bias=False), M.ConvBn2d(out, out, 3, 1, 1, bias=False)
        )
        same = inp == out and stride == 1
        self.short = M.Identity() if same else M.ConvBn2d(inp, out, 1, stride, bias=False)
        self.add = M.Elemwise("fuse_add_relu")

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        return self.add(self.body(x), self.short(x))


class QuantizedInverted(M.Module):
    """Inverted residual block of MobileNetV2; ReLU stands for ReLU6, which quantization makes of it."""

    def __init__(self, inp: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        mid = inp * expand
        body = [M.ConvBnRelu2d(inp, mid, 1, bias=False)] if expand > 1 else []
        body += [
            M.ConvBnRelu2d(mid, mid, 3, stride, 1, groups=mid, bias=False),
            M.ConvBn2d(mid, out, 1, bias=False),
        ]
        self.body = M.Sequential(*body)
        self.add = M.Elemwise("add") if stride == 1 and inp == out else None

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        y = self.body(x)
        return self.add(x, y) if self.add else y


class QuantizedNet(M.Module):
    """ResNet-18 or MobileNetV2 (width 1) of layers that MegEngine quantizes."""

    def __init__(self, mobile: bool) -> None:
        super().__init__()
        self.quant, self.dequant = M.QuantStub(), M.DequantStub()
        if mobile:
            layers: list[M.Module] = [M.ConvBnRelu2d(3, 32, 3, 2, 1, bias=False)]
            channels = 32
            for out, depth, stride in PLAN:
                for block in range(depth):
                    expand = 1 if out == 16 else 6
                    layers.append(QuantizedInverted(channels, out, 1 if block else stride, expand))
                    channels = out
            layers.append(M.ConvBnRelu2d(channels, 1280, 1, bias=False))
            channels = 1280
        else:
            layers = [M.ConvBnRelu2d(3, 64, 7, 2, 3, bias=False), M.MaxPool2d(3, 2, 1)]
            channels = 64
            for stage in range(4):
                for block in range(2):
                    layers.append(QuantizedResidual(channels, 64 << stage, 2 if stage and not block else 1))
                    channels = 64 << stage
        self.body = M.Sequential(*layers)
        self.fc = M.Linear(channels, 1000)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = F.avg_pool2d(self.body(self.quant(x)), 7)
        return self.dequant(self.fc(F.flatten(x, 1)))


def quantized(net: M.Module, rng: np.random.RandomState) -> M.Module:
    """Quantize a net to int8, with the ranges of a few random batches."""
    Q.quantize_qat(net, Q.min_max_fakequant_qconfig)
    net.eval()
    Q.enable_observer(net)
    for _ in range(2):
        net(mge.Tensor(rng.uniform(-1, 1, IMAGE).astype(np.float32)))
    Q.disable_observer(net)
    Q.quantize(net)
    net.eval()
    return net


class BertLayer(M.Module):
    """One encoder layer: self attention and a feed-forward net, each with a residual and a layer norm."""

    def __init__(self, hidden: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (M.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = M.Linear(hidden, inner), M.Linear(inner, hidden)
        self.norm1, self.norm2 = M.LayerNorm(hidden), M.LayerNorm(hidden)

    def split(self, x: mge.Tensor) -> mge.Tensor:
        """Shape (N, T, C) to (N, heads, T, C / heads)."""
        n, t, c = x.shape
        return F.transpose(F.reshape(x, (n, t, self.heads, c // self.heads)), (0, 2, 1, 3))

    def forward(self, x: mge.Tensor, mask: mge.Tensor) -> mge.Tensor:
        n, t, c = x.shape
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        score = F.matmul(q, k, transpose_b=True) * float((c // self.heads) ** -0.5) + mask
        mix = F.matmul(F.softmax(score, axis=-1), v)
        mix = F.reshape(F.transpose(mix, (0, 2, 1, 3)), (n, t, c))
        x = self.norm1(x + self.o(mix))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(M.Module):
    """BERT-base encoder: inputs are token ids (N, T) int32 and a mask (N, T) float32 of zeros and ones."""

    def __init__(self) -> None:
        super().__init__()
        layers, hidden, heads, inner, length = 12, 768, 12, 3072, 128
        self.tokens = M.Embedding(8192, hidden)
        self.places = M.Embedding(length, hidden)
        self.norm = M.LayerNorm(hidden)
        self.layers = [BertLayer(hidden, heads, inner) for _ in range(layers)]

    def forward(self, ids: mge.Tensor, mask: mge.Tensor) -> mge.Tensor:
        x = self.norm(self.tokens(ids) + self.places.weight)
        bias = F.expand_dims((mask - 1) * 1e4, (1, 2))
        for layer in self.layers:
            x = layer(x, bias)
        return x


class VitLayer(M.Module):
    """One layer of ViT: the norms stand before attention and feed-forward net."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = M.LayerNorm(hidden), M.LayerNorm(hidden)
        self.qkv, self.o = M.Linear(hidden, 3 * hidden), M.Linear(hidden, hidden)
        self.up, self.down = M.Linear(hidden, 4 * hidden), M.Linear(4 * hidden, hidden)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        n, t, c = x.shape
        each = c // self.heads
        qkv = F.reshape(self.qkv(self.norm1(x)), (n, t, 3, self.heads, each))
        q, k, v = F.transpose(qkv, (2, 0, 3, 1, 4))
        score = F.matmul(q, k, transpose_b=True) * float(each**-0.5)
        mix = F.matmul(F.softmax(score, axis=-1), v)
        x = x + self.o(F.reshape(F.transpose(mix, (0, 2, 1, 3)), (n, t, c)))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Vit(M.Module):
    """ViT-S/16."""

    def __init__(self) -> None:
        super().__init__()
        hidden = 384
        self.patches = M.Conv2d(3, hidden, 16, 16)
        self.first = mge.Parameter(np.zeros((1, 1, hidden), np.float32))
        self.places = mge.Parameter(np.zeros((1, 197, hidden), np.float32))
        self.layers = M.Sequential(*[VitLayer(hidden, 6) for _ in range(12)])
        self.norm = M.LayerNorm(hidden)
        self.fc = M.Linear(hidden, 1000)

    def forward(self, x: mge.Tensor) -> mge.Tensor:
        x = F.transpose(F.flatten(self.patches(x), 2), (0, 2, 1))
        x = F.concat([self.first, x], 1) + self.places
        return self.fc(self.norm(self.layers(x))[:, 0])


def set_weights(net: M.Module, rng: np.random.RandomState) -> None:
    """Give every weight matrix and filter He's standard deviation and every vector small random values."""
    for name, param in net.named_parameters():
        shape = param.shape
        if name.endswith(("tokens.weight", "places.weight")):
            value = rng.randn(*shape) * 0.5
        elif len(shape) > 1 and max(shape) != np.prod(shape):
            fan_in = np.prod(shape[1:]) if len(shape) == 2 else np.prod(shape[-3:])
            gain = 2.0 if len(shape) > 2 else 1.0
            value = rng.randn(*shape) * np.sqrt(gain / fan_in)
        else:
            around = (
                1.0 if name.endswith(("bn.weight", "norm1.weight", "norm2.weight", "norm.weight")) else 0.0
            )
            value = around + rng.randn(*shape) * 0.05
        param[...] = mge.Tensor(value.astype(np.float32))


def settle_batch_norm(net: M.Module, shape: tuple[int, ...], rng: np.random.RandomState) -> None:
    """Set the running statistics of every batch norm to those of one random batch."""
    for module in net.modules():
        if isinstance(module, M.BatchNorm2d):
            module.momentum = 0.0
    net.train()
    net(mge.Tensor(rng.uniform(-1, 1, size=(2, *shape[1:])).astype(np.float32)))
    net.eval()


def make(name: str, folder: Path) -> None:
    """Write one model into the folder."""
    rng = np.random.RandomState(7)
    np.random.seed(7)
    start = time.perf_counter()
    build: dict[str, Callable[[], M.Module]] = {
        "resnet18": lambda: ResNet((2, 2, 2, 2), bottleneck=False),
        "resnet50": lambda: ResNet((3, 4, 6, 3), bottleneck=True),
        "vgg16": Vgg16,
        "mobilenetv2": MobileNetV2,
        "unet": UNet,
        "vit": Vit,
        "bert": Bert,
        "resnet18_int8": lambda: QuantizedNet(mobile=False),
        "mobilenetv2_int8": lambda: QuantizedNet(mobile=True),
    }
    net = build[name]()
    set_weights(net, rng)
    if name.startswith(("resnet", "mobilenet", "unet")):
        settle_batch_norm(net, IMAGE, rng)
    net.eval()
    if name.endswith("int8"):
        net = quantized(net, rng)
    func = trace(net.forward, symbolic=True, capture_as_const=True)
    if name == "bert":
        arg_names, data = ["ids", "mask"], ["ids:#rand(0,8191);mask:#rand(1,1)"]
        args = [rng.randint(0, 8192, (1, 128)).astype(np.int32), np.ones((1, 128), np.float32)]
    else:
        arg_names, data = ["data"], ["#rand(-1,1)"]
        args = [rng.uniform(-1, 1, LARGER if name == "unet" else IMAGE).astype(np.float32)]
    out = func(*map(mge.Tensor, args))
    peak = float(np.abs(out.numpy()).max())
    path = folder / f"{name}.mge"
    func.dump(str(path), arg_names=arg_names, output_names=["out"], input_data=data, maxerr=MAXERR)
    seconds = time.perf_counter() - start
    size = path.stat().st_size / 2**20
    print(f"{path}: {size:.1f} MiB, largest output {peak:.3g}, {seconds:.0f} s", flush=True)


def main(argv: list[str]) -> None:
    """Parse the command line and write the models."""
    names = ["resnet18", "resnet50", "vgg16", "mobilenetv2", "unet", "vit", "bert"]
    names += ["resnet18_int8", "mobilenetv2_int8"]
    parser = argparse.ArgumentParser(description="Write the benchmark models with MegEngine.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="some of: " + ", ".join(names))
    args = parser.parse_args(argv)
    unknown = sorted(set(args.models) - set(names))
    if unknown:
        parser.error("unknown model: " + ", ".join(unknown))
    args.folder.mkdir(parents=True, exist_ok=True)
    mge.set_log_level("ERROR")
    wait_after_execute()
    for name in args.models or names:
        make(name, args.folder)


if __name__ == "__main__":
    main(sys.argv[1:])
