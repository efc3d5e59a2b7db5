"""ResNet-50 in `loadrun.megengine.module`: traced, packed with an image, replayed.

    python examples/resnet50.py --output resnet50.mge
    python examples/resnet50.py --weights checkpoint.pkl --picture cat.jpg --output resnet50.mge

Without ``--weights`` the weights are random; without ``--picture`` one is drawn. A checkpoint is a state dict that
MegEngine saved, with the parameter names of its model hub (``layer1.0.conv1.weight``).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import cv2
import numpy as np

import loadrun
import loadrun.megengine.functional as F
import loadrun.megengine.module as M
from loadrun import tracing as jit


class Bottleneck(M.Module):
    """1x1, 3x3 and 1x1 convolutions around a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int = 1) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1 = M.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = M.BatchNorm2d(width)
        self.conv2 = M.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = M.BatchNorm2d(width)
        self.conv3 = M.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = M.BatchNorm2d(outputs)
        self.downsample: M.Module = M.Identity()
        if inputs != outputs or stride != 1:
            conv = M.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = M.Sequential(conv, M.BatchNorm2d(outputs))

    def forward(self, x: loadrun.Tensor) -> loadrun.Tensor:
        """Return the block's output."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet50(M.Module):
    """The network of "Deep Residual Learning for Image Recognition" with 50 layers."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = M.BatchNorm2d(64)
        self.maxpool = M.MaxPool2d(3, 2, 1)
        inputs = 64
        for i, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            parts = []
            for j in range(blocks):
                parts.append(Bottleneck(inputs, width, 2 if i and not j else 1))
                inputs = 4 * width
            setattr(self, f"layer{i + 1}", M.Sequential(*parts))
        self.fc = M.Linear(2048, classes)

    def forward(self, x: loadrun.Tensor) -> loadrun.Tensor:
        """Scores of the classes for (N, 3, H, W) images."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.flatten(F.avg_pool2d(x, 7), 1))


def main(argv: list[str] | None = None) -> int:
    """Trace, dump, replay."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weights", help="a checkpoint of MegEngine")
    p.add_argument("--picture", help="an image file")
    p.add_argument("--output", default="resnet50.mge")
    args = p.parse_args(argv)

    net = ResNet50()
    if args.weights:
        net.load_state_dict(loadrun.megengine.load(args.weights))
    net.eval()

    @jit.trace(symbolic=True, capture_as_const=True)
    def fun(data: loadrun.Tensor, *, net: M.Module) -> loadrun.Tensor:
        return F.softmax(net(data))

    fun(loadrun.tensor(np.random.random([1, 3, 224, 224]).astype(np.float32)), net=net)
    with tempfile.TemporaryDirectory() as folder:
        picture = args.picture or _drawn(Path(folder))
        fun.dump(
            args.output,
            arg_names=["data"],
            output_names=["prob"],
            input_data=[f'data:"{picture}"'],
            resize_input=True,
            input_transform="(data.astype('float32') - 128) / 64",
        )
    verdicts = [r.verdict.value for r in loadrun.run(args.output)]
    print(f"{args.output}: {', '.join(verdicts)}")
    return 0 if verdicts == ["pass"] else 1


def _drawn(folder: Path) -> str:
    """Draw a picture of a few shapes."""
    image = np.full((300, 400, 3), 220, np.uint8)
    cv2.circle(image, (200, 150), 90, (60, 120, 200), -1)
    cv2.rectangle(image, (20, 30), (120, 90), (200, 80, 40), -1)
    path = folder / "picture.png"
    path.write_bytes(cv2.imencode(".png", image)[1].tobytes())
    return str(path)


if __name__ == "__main__":
    raise SystemExit(main())
