"""Varied torch modules, each with an example; small, because every test exports its own."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A residual block as in ResNet."""

    def __init__(self, c, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(c, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or c != out:
            self.down = nn.Sequential(nn.Conv2d(c, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.layers = nn.Sequential(Block(8, 8), Block(8, 12, 2))
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        x = F.adaptive_avg_pool2d(self.layers(self.stem(x)), 1)
        return self.fc(torch.flatten(x, 1))


class Inverted(nn.Module):
    """MobileNetV3's block: expansion, depthwise, squeeze and excitation."""

    def __init__(self, c):
        super().__init__()
        self.expand = nn.Conv2d(c, 2 * c, 1)
        self.depthwise = nn.Conv2d(2 * c, 2 * c, 5, 1, 2, groups=2 * c)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * c, c, 1), nn.ReLU(), nn.Conv2d(c, 2 * c, 1)
        )
        self.project = nn.Conv2d(2 * c, c, 1)

    def forward(self, x):
        y = F.hardswish(self.depthwise(F.relu6(self.expand(x))))
        y = y * F.hardsigmoid(self.squeeze(y))
        return x + self.project(y)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.out = nn.Conv2d(8, 2, 3, padding="same")

    def forward(self, x):
        a = torch.relu(self.down1(x))
        b = torch.relu(self.down2(F.max_pool2d(a, 2)))
        c = F.interpolate(self.up(b), size=a.shape[2:], mode="bilinear", align_corners=False)
        return torch.sigmoid(self.out(torch.cat([a, c], 1)))


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3 + 4 * i, 4, 3, padding=1) for i in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(3 + 4 * i) for i in range(3))

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.cat([x, conv(F.relu(norm(x)))], dim=1)
        return F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False)


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(5, 6, num_layers=2, bidirectional=True, batch_first=True, **options)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        y, state = self.rnn(x)
        return self.head(y), state


class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(4, 3), nn.GRUCell(3, 3), nn.RNNCell(3, 3)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 3)
        g = r = h
        for t in range(3):
            h, c = self.lstm(x[:, t], (h, c))
            g = self.gru(h, g)
            r = self.rnn(g, r)
        return h, c, g, r


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.mha = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, q, kv, mask):
        return self.mha(q, kv, kv, key_padding_mask=mask)


class Gpt(nn.Module):
    """Token and place embeddings, causal attention, tied head."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 8), nn.Embedding(16, 8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, ids):
        n, t = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(t))
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, 8))
        return F.log_softmax(x @ self.tokens.weight.t(), dim=-1)


class Bag(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 3, mode=mode)

    def forward(self, ids, offsets):
        return self.bag(ids, offsets)


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.group, self.instance = nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)
        self.layer, self.local, self.rms = nn.LayerNorm([4, 5, 5]), nn.LocalResponseNorm(3), nn.RMSNorm(5)
        self.batch = nn.BatchNorm2d(4)
        self.batch.running_mean.uniform_(-1, 1)
        self.batch.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.group(x), self.instance(x), self.layer(x), self.local(x), self.rms(x), self.batch(x)


class Pools(nn.Module):
    def forward(self, x):
        y, places = F.max_pool2d(x, 2, return_indices=True)
        return {
            "max": F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
            "dilated": F.max_pool2d(x, 2, 1, dilation=2),
            "average": F.avg_pool2d(x, 3, 2, 1),
            "exclusive": F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            "divisor": F.avg_pool2d(x, 2, divisor_override=3),
            "adaptive": F.adaptive_avg_pool2d(x, (3, 2)),
            "adaptive_max": F.adaptive_max_pool2d(x, (2, 3)),
            "lp": F.lp_pool2d(x, 2, 2),
            "indexed": y,
            "places": places,
            "unpooled": F.max_unpool2d(y, places, 2, output_size=x.shape[2:]),
        }


class Pools13(nn.Module):
    def forward(self, x, v):
        return (
            F.max_pool1d(x, 2),
            F.avg_pool1d(x, 3, 1, 1),
            F.adaptive_avg_pool1d(x, 3),
            F.max_pool3d(v, 2),
            F.avg_pool3d(v, 2),
            F.adaptive_avg_pool3d(v, 2),
        )


class Resampled(nn.Module):
    def forward(self, x):
        # No place lies in the middle of two elements, where rounding decides which one is the nearest.
        turn = torch.tensor([[[0.83, 0.117, 0.013], [-0.113, 0.91, 0.107]]] * 2)
        grid = F.affine_grid(turn, [2, 3, 4, 4], align_corners=False)
        return (
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, scale_factor=1.5, mode="bilinear"),
            F.interpolate(x, size=(7, 3), mode="bilinear", align_corners=True),
            F.interpolate(x, size=(9, 8), mode="bicubic"),
            F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
            F.interpolate(x, size=(3, 7), mode="nearest-exact"),
            F.grid_sample(x, grid, align_corners=False),
            F.grid_sample(x, grid, mode="nearest", padding_mode="border", align_corners=False),
            F.grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=True),
            F.pixel_shuffle(F.pad(x, (0, 0, 0, 0, 0, 1)), 2),
        )


class Indexing(nn.Module):
    def forward(self, x, i, m):
        y = x.clone()
        y[:, 1] = 5.0
        y[i, 0] += 1
        y[m] = -1
        y[..., ::2] *= 2
        z = x.gather(1, i[:, None].expand(-1, 2).clamp(max=2))
        return (
            x[i],
            x[:, [0, 2]],
            x[1:, None, ::2],
            y,
            z,
            torch.where(m, x, x.neg()),
            x.masked_fill(m, 0.5),
            x.index_add(0, i, x[: i.shape[0]]),
            torch.zeros_like(x).scatter(1, torch.argsort(x, 1), x),
        )


class Selecting(nn.Module):
    """Sizes that the data decide."""

    def forward(self, x):
        kept = x[x > 0]
        return kept * 2, torch.nonzero(x > 0)


class Conditional(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() * 2, (x,))


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, x):
        y = x * 1
        y.add_(1).mul_(2).clamp_(min=0)
        y[:, 0].zero_()
        y.transpose(0, 1)[1].copy_(self.table[: y.shape[0]])
        z = torch.empty_like(x).fill_(3)
        F.relu(z, inplace=True)
        return y + z


class Activations(nn.Module):
    def __init__(self):
        super().__init__()
        self.all = nn.ModuleList(
            [
                nn.ELU(),
                nn.CELU(0.5),
                nn.SELU(),
                nn.GELU(),
                nn.GELU("tanh"),
                nn.SiLU(),
                nn.Mish(),
                nn.Softplus(2),
            ]
            + [nn.Hardswish(), nn.Hardsigmoid(), nn.Hardtanh(-0.5, 0.5), nn.Hardshrink(), nn.Softshrink()]
            + [nn.LeakyReLU(0.2), nn.PReLU(4), nn.RReLU(), nn.LogSigmoid(), nn.Tanhshrink(), nn.Softsign()]
            + [nn.Threshold(0.1, 20), nn.GLU(1), nn.Softmin(1), nn.Softmax2d(), nn.LogSoftmax(1)]
        )

    def forward(self, x):
        return [f(x) for f in self.all]


class Convs(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv1d(4, 6, 3, 2, 1, groups=2)
        self.three = nn.Conv3d(2, 4, 3, padding=1, dilation=1)
        self.back1 = nn.ConvTranspose1d(6, 4, 3, 2, 1, output_padding=1)
        self.back2 = nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2, dilation=2)
        self.back3 = nn.ConvTranspose3d(4, 2, 2, 2)
        self.same = nn.Conv2d(4, 4, (2, 4), padding="same", padding_mode="reflect")

    def forward(self, line, image, volume):
        return self.back1(self.one(line)), self.same(self.back2(image)[:, :4]), self.back3(self.three(volume))


class Reductions(nn.Module):
    def forward(self, x):
        return {
            "std": x.std(1),
            "var": x.var((0, 2), correction=0, keepdim=True),
            "norm": x.norm(dim=1),
            "logsumexp": x.logsumexp(0),
            "max": x.max(1),
            "median": x.median(2),
            "topk": x.topk(2, 1),
            "sort": x.sort(2, descending=True),
            "cumsum": x.cumsum(1),
            "argmin": x.argmin(),
            "any": (x > 1).any(1),
            "quantile": x.quantile(0.3, dim=2),
            "prod": x.prod(1),
        }


class Algebra(nn.Module):
    def __init__(self):
        super().__init__()
        self.bilinear = nn.Bilinear(3, 4, 2)

    def forward(self, a, b):
        return (
            torch.einsum("bij,bjk->bik", a, b),
            torch.baddbmm(a[:, :, :2], a, a.transpose(1, 2), beta=0.5, alpha=2),
            torch.linalg.inv(a[:, :, :2] + 3 * torch.eye(2)),
            torch.cdist(a, a),
            F.cosine_similarity(a, a.flip(1), dim=2),
            torch.kron(a[0], a[1]),
            self.bilinear(a, b.transpose(1, 2)[:, :2, :].contiguous()[..., [0, 1, 2, 0]][..., :4]),
        )


class Nested(nn.Module):
    def forward(self, pair, options, scale=2.0, *, shift=None):
        a, b = pair
        y = a * scale + options["bias"]
        return {"sum": y + b, "parts": [y, (b if shift is None else b + shift, None)], "scale": scale}


class Shapes(nn.Module):
    """Sizes of the input as values."""

    def forward(self, x):
        n, c, h, w = x.shape
        y = x.reshape(n, c, h * w).transpose(1, 2)
        ramp = torch.arange(h * w, dtype=x.dtype).unsqueeze(1) / (h * w)
        parts = torch.chunk(y + ramp, 2, dim=2)
        return torch.stack(parts).sum(0).repeat(1, 1, 2), x.new_full((n, h), 3), torch.cat([y, y[:, :1]], 1)


class Fake(nn.Module):
    """Quantization aware training's roundings."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)

    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255)
        w = torch.fake_quantize_per_channel_affine(
            self.conv.weight,
            torch.tensor([0.01, 0.02, 0.03]),
            torch.zeros(3, dtype=torch.int32),
            0,
            -128,
            127,
        )
        return F.conv2d(x, w, self.conv.bias)


class Wide(nn.Module):
    """float64 and int64 inside."""

    def forward(self, x, i):
        return x.double().cumsum(0).exp().float(), i * 3 // 2, (i + 1).float().mean(), i % 4 == 1


class Classes(nn.Module):
    def forward(self, logits, target):
        return (
            F.cross_entropy(logits, target),
            F.nll_loss(F.log_softmax(logits, 1), target),
            F.mse_loss(logits, F.one_hot(target, 5).float()),
            F.binary_cross_entropy_with_logits(logits, torch.sigmoid(logits)),
            F.smooth_l1_loss(logits, logits * 0.5),
            F.kl_div(F.log_softmax(logits, 1), F.softmax(logits * 2, 1), reduction="batchmean"),
        )


def vgg():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.ReLU(True),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1),
        nn.ReLU(True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(8 * 4, 10),
    )


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def decoder():
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)


def quantizable():
    from torch.ao.nn.quantized.reference import Linear as Reference

    scheme = {"qscheme": torch.per_tensor_affine, "dtype": torch.quint8, "scale": 0.02, "zero_point": 120}
    return nn.Sequential(Reference.from_float(nn.Linear(4, 3), scheme), nn.ReLU())


def rand(*shape):
    return torch.rand(*shape) * 2 - 1


class MaskedRows(nn.Module):
    """Softmax of rows that lie far below 0 or hold the lowest number, and attention that sees nothing."""

    def forward(self, x, hidden):
        attend = nn.functional.scaled_dot_product_attention
        nothing = attend(x, x, x, ~hidden)
        infinite = attend(x, x, x, torch.where(hidden, float("-inf"), 0.0))
        lowest = attend(x, x, x, torch.where(hidden, torch.finfo(x.dtype).min, 0.0))
        return nothing, infinite, lowest, torch.softmax(x - 200, 1), torch.softmax(x * 100 - 1e5, -1)


class HalfPools(nn.Module):
    def forward(self, x):
        return (
            F.max_pool2d(x, 2),
            F.adaptive_max_pool2d(x, 3),
            torch.cat([x.float().bfloat16(), x.bfloat16()], 1),
        )


CASES = {
    "float16_pools": (HalfPools, lambda: (rand(2, 4, 8, 8).half(),)),
    "resnet": (ResNet, lambda: (rand(2, 3, 32, 32),)),
    "mobilenet": (lambda: nn.Sequential(Inverted(4), Inverted(4)), lambda: (rand(2, 4, 8, 8),)),
    "vgg": (vgg, lambda: (rand(2, 3, 8, 8),)),
    "unet": (UNet, lambda: (rand(1, 1, 8, 8),)),
    "densenet": (DenseNet, lambda: (rand(2, 3, 7, 7),)),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: (rand(3, 4, 5),)),
    "gru": (lambda: Recurrent(nn.GRU), lambda: (rand(3, 4, 5),)),
    "rnn": (lambda: Recurrent(nn.RNN, nonlinearity="relu"), lambda: (rand(3, 4, 5),)),
    "cells": (Cells, lambda: (rand(2, 3, 4),)),
    "encoder": (encoder, lambda: (rand(2, 5, 8),)),
    "decoder": (decoder, lambda: (rand(2, 3, 8), rand(2, 5, 8))),
    "attention": (
        Attention,
        lambda: (rand(2, 3, 8), rand(2, 4, 8), torch.tensor([[0, 0, 0, 1], [0, 1, 0, 0]]).bool()),
    ),
    "masked_rows": (
        MaskedRows,
        lambda: (
            rand(2, 3, 4, 8),
            torch.tensor([[0, 0, 1, 0], [1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0]]).bool(),
        ),
    ),
    "gpt": (Gpt, lambda: (torch.randint(0, 20, (2, 6)),)),
    "bag_sum": (lambda: Bag("sum"), lambda: (torch.randint(0, 10, (7,)), torch.tensor([0, 2, 2, 5]))),
    "bag_mean": (lambda: Bag("mean"), lambda: (torch.randint(0, 10, (7,)), torch.tensor([0, 2, 2, 5]))),
    "bag_max": (lambda: Bag("max"), lambda: (torch.randint(0, 10, (7,)), torch.tensor([0, 2, 2, 5]))),
    "norms": (Norms, lambda: (rand(2, 4, 5, 5),)),
    "pools": (Pools, lambda: (rand(2, 3, 8, 7),)),
    "pools_1d_3d": (Pools13, lambda: (rand(2, 3, 7), rand(1, 2, 4, 4, 5))),
    "resampled": (Resampled, lambda: (rand(2, 3, 5, 6),)),
    "indexing": (Indexing, lambda: (rand(4, 3), torch.tensor([2, 0, 3]), rand(4, 3) > 0)),
    "selecting": (Selecting, lambda: (rand(4, 3),)),
    "cond": (Conditional, lambda: (rand(3, 2),)),
    "in_place": (InPlace, lambda: (rand(4, 3),)),
    "activations": (Activations, lambda: (rand(2, 4, 3, 3) * 3,)),
    "convs": (Convs, lambda: (rand(2, 4, 8), rand(1, 4, 5, 4), rand(1, 2, 4, 4, 4))),
    "reductions": (Reductions, lambda: (rand(3, 4, 5),)),
    "algebra": (Algebra, lambda: (rand(2, 2, 3), rand(2, 3, 4))),
    "shapes": (Shapes, lambda: (rand(2, 4, 3, 5),)),
    "fake_quantized": (Fake, lambda: (rand(1, 2, 5, 5),)),
    "quantized_reference": (quantizable, lambda: (rand(2, 4),)),
    "wide": (Wide, lambda: (rand(3, 2), torch.arange(5))),
    "losses": (Classes, lambda: (rand(4, 5), torch.tensor([0, 2, 4, 1]))),
}
