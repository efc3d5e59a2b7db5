"""Complex numbers inside of modules, at their inputs and outputs: torch's results are the truth."""

import io
import math
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.base.errors import UnsupportedError  # noqa: E402

nn = torch.nn
pytree = torch.utils._pytree


class Rotary(nn.Module):
    """Positions as turns of pairs of channels, as Meta's Llama has them."""

    def __init__(self):
        super().__init__()
        turns = torch.outer(torch.arange(32.0), 100 ** (-torch.arange(4.0) / 4))
        self.register_buffer("turns", torch.polar(torch.ones_like(turns), turns))
        self.q = nn.Linear(16, 16)

    def forward(self, x):
        q = self.q(x).view(*x.shape[:2], 2, 8)
        q = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
        return torch.view_as_real(q * self.turns[: x.shape[1]].view(1, -1, 1, 4)).flatten(3).type_as(x)


class Spectral(nn.Module):
    """A layer of a Fourier neural operator: the lowest frequencies, weighted."""

    def __init__(self):
        super().__init__()
        self.low = nn.Parameter(torch.rand(3, 4, 3, 2, dtype=torch.cfloat))
        self.high = nn.Parameter(torch.rand(3, 4, 3, 2, dtype=torch.cfloat))

    def forward(self, x):
        f = torch.fft.rfft2(x)
        y = torch.zeros(x.shape[0], 4, *f.shape[2:], dtype=torch.cfloat)
        y[:, :, :3, :2] = torch.einsum("bixy,ioxy->boxy", f[:, :, :3, :2], self.low)
        y[:, :, -3:, :2] = torch.einsum("bixy,ioxy->boxy", f[:, :, -3:, :2], self.high)
        return torch.fft.irfft2(y, s=x.shape[2:])


class Mixing(nn.Module):
    """FNet's layer in place of attention."""

    def forward(self, x):
        return torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real


class Spectrogram(nn.Module):
    """Sizes and angles of short-time spectra, and the signal made of them again."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(12))

    def forward(self, x):
        z = torch.stft(x, 12, 4, window=self.window, return_complex=True)
        size = z.abs()
        back = torch.istft(torch.polar(size, z.angle()), 12, 4, window=self.window)
        return size.square().clamp(min=1e-6).log10(), back


class StateSpace(nn.Module):
    """S4D: a kernel of complex exponentials, and a convolution by spectra."""

    def __init__(self):
        super().__init__()
        self.step = nn.Parameter(torch.rand(4) * -3)
        self.c = nn.Parameter(torch.randn(4, 3, 2))
        self.a = nn.Parameter(math.pi * torch.arange(3.0).repeat(4, 1))

    def forward(self, u):
        n = u.shape[-1]
        a = -0.5 + 1j * self.a
        da = a * torch.exp(self.step).unsqueeze(-1)
        c = torch.view_as_complex(self.c) * (torch.exp(da) - 1.0) / a
        k = 2 * torch.einsum("hn,hnl->hl", c, torch.exp(da.unsqueeze(-1) * torch.arange(n))).real
        return torch.fft.irfft(torch.fft.rfft(u, n=2 * n) * torch.fft.rfft(k, n=2 * n), n=2 * n)[..., :n]


class Filtered(nn.Module):
    """GFNet's filter, and AFNO's activation of real and imaginary parts."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 3, 3, 2))

    def forward(self, x):
        z = torch.fft.rfft2(x, dim=(1, 2), norm="ortho") * torch.view_as_complex(self.weight)
        parts = torch.stack([torch.relu(z.real - z.imag), torch.relu(z.imag)], dim=-1)
        z = torch.view_as_complex(nn.functional.softshrink(parts, 0.01))
        return torch.fft.irfft2(z, s=(5, 4), dim=(1, 2), norm="ortho")


class ComplexLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.conv = nn.Linear(4, 3, dtype=torch.cfloat), nn.Conv1d(2, 3, 2, dtype=torch.cfloat)

    def forward(self, x):
        z = torch.complex(x, x.flip(-1))
        return self.linear(z).abs(), torch.view_as_real(self.conv(z)), torch.sigmoid(z).real


def rand(*shape):
    return torch.rand(*shape) * 2 - 1


MODULES = {
    "rotary": (Rotary, (2, 5, 16), (3, 5, 16)),
    "spectral": (Spectral, (2, 3, 8, 10), (3, 3, 9, 7)),
    "mixing": (Mixing, (2, 6, 8), (3, 5, 8)),
    "spectrogram": (Spectrogram, (2, 40), (3, 40)),
    "state_space": (StateSpace, (2, 4, 10), (3, 4, 7)),
    "filtered": (Filtered, (2, 5, 4, 3), (3, 5, 4, 3)),
    "layers": (ComplexLayers, (3, 2, 4), (2, 2, 4)),
}


def agree(want, got, tolerance=1e-5):
    for a, b in zip(pytree.tree_leaves(want), pytree.tree_leaves(got), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        x, y = (torch.view_as_real(v.resolve_conj()) if v.is_complex() else v for v in (a, b))
        np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    """At the traced sizes, at others, and in a file that holds torch's results."""
    make, size, other = MODULES[name]
    torch.manual_seed(1)
    module = make().eval()
    fixed = loadrun.torch.trace(module, rand(*size))
    open_ = loadrun.torch.trace(module, rand(*size), dynamic_shapes=True)
    with torch.no_grad():
        for traced, shape in ((fixed, size), (open_, size), (open_, other)):
            x = rand(*shape)
            agree(module(x), traced(x))
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "input '.' has shape", UserWarning)
        open_.dump(file, input_data=["#rand(-1,1)", f"#rand(-1,1,{','.join(map(str, other))})"])
    results = loadrun.run(loadrun.loads(file.getvalue()))
    assert [r.verdict.value for r in results] == ["pass", "pass"]


def test_fourier_transforms():
    """All of torch.fft, with each normalization, sizes that are cut and filled up, over several axes."""

    def function(x, z):
        found = []
        for norm in ("backward", "ortho", "forward"):
            for one in (torch.fft.fft, torch.fft.ifft, torch.fft.rfft, torch.fft.ihfft):
                found += [one(x, norm=norm), one(x, n=5, dim=0, norm=norm)]
            for one in (torch.fft.fft, torch.fft.ifft, torch.fft.irfft, torch.fft.hfft):
                found += [one(z, norm=norm), one(z, n=9, dim=1, norm=norm)]
            found += [torch.fft.fft2(z, norm=norm), torch.fft.ifftn(z, dim=(0, 2), norm=norm)]
            found += [torch.fft.rfftn(x, norm=norm), torch.fft.irfftn(z, s=(3, 7), norm=norm)]
        return found

    torch.manual_seed(2)
    x, z = rand(3, 4, 6), torch.complex(rand(3, 4, 6), rand(3, 4, 6))
    agree(function(x, z), loadrun.torch.trace(function, (x, z))(x, z))


def test_arithmetic_and_functions():
    def function(z, w, x):
        results = [
            z + w * 2j - x,
            torch.add(z, x, alpha=2),
            torch.sub(x, z, alpha=1 - 1j),
            1 - z,
            z / w,
            x / w,
            z / x,
            (1 + 2j) / z,
            z.reciprocal(),
            z**3,
            z**-2,
            z**0.5,
            z ** (1 + 0.5j),
            z**w,
            2**z,
            x * 1j,
            -z.conj(),
            z.abs(),
            z.angle(),
            z.sgn(),
            z.conj().imag + z.real,
            torch.addcmul(z, w, x, value=2),
            z.sum(1) + z.mean((0, 1)),
            z.cumsum(0),
            z.prod(1),
            z.var(1),
            torch.linalg.vector_norm(z, dim=1),
            z == w,
            z != z.clone(),
            z.isfinite() & z.bool(),
            z.to(torch.float32),
            torch.polar(x.abs(), x),
        ]
        for name in (
            "exp",
            "log",
            "log1p",
            "expm1",
            "sqrt",
            "rsqrt",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
        ):
            results.append(getattr(torch, name)(z))
        return results

    torch.manual_seed(3)
    z, w, x = torch.complex(rand(3, 4), rand(3, 4)), torch.complex(rand(4), rand(4)), rand(3, 4) + 2
    with pytest.warns(UserWarning, match="discards the imaginary part"):
        agree(function(z, w, x), loadrun.torch.trace(function, (z, w, x))(z, w, x), 2e-5)


def test_shapes_and_products():
    def function(z, w, x, i, m):
        y = z.clone()
        y[:, 1] = 2 - 1j
        y[i] += z[0]
        y.real[0] = 5
        return (
            z.reshape(2, 6).t().unsqueeze(0).expand(2, 6, 2).permute(1, 0, 2),
            torch.cat([z, x], 1),
            torch.stack([x, z]).roll(1, 2).flip(0),
            z[1:, ::2].contiguous().squeeze(),
            z[i] * z.index_select(0, i).conj(),
            z.gather(1, i[:, None].repeat(1, 2)[: z.shape[0]]),
            torch.where(m, z, x),
            z.masked_fill(m, 1j),
            nn.functional.pad(z, (1, 2), value=3.0),
            nn.functional.pad(z, (1, 2), mode="reflect"),
            z.repeat(2, 1),
            z.chunk(2, 1)[1],
            torch.full((2,), 1 + 2j) + torch.ones(2),
            y,
            z @ w,
            (x + 0j) @ w,
            torch.mm(z, w.conj()).mH,
            torch.bmm(torch.stack([z, z]), torch.stack([w, w])),
            torch.einsum("ij,jk,k->i", z, w, z[0, :2]),
            torch.vdot(z[0], z[1]) + torch.dot(z[0], z[1]),
            torch.addmm(w[:3, :], z, w, beta=1j),
            torch.outer(z[0], z[1]),
            torch.linalg.inv(w[:2]),
        )

    torch.manual_seed(4)
    z, w, x = torch.complex(rand(3, 4), rand(3, 4)), torch.complex(rand(4, 2), rand(4, 2)), rand(3, 4)
    args = (z, w, x, torch.tensor([2, 0, 1]), x > 0)
    agree(function(*args), loadrun.torch.trace(function, args)(*args))


def test_a_quotient_neither_overflows_nor_vanishes():
    a = torch.tensor([1e30 + 1e30j, 1e-30 - 2e-30j, 3 + 4j], dtype=torch.cfloat)
    b = torch.tensor([2e30 - 1e30j, 1e-30 + 1e-30j, 0.5j], dtype=torch.cfloat)
    traced = loadrun.torch.trace(lambda a, b: (a / b, b.abs() / b.abs().max()), (a, b))
    want = a.to(torch.complex128) / b.to(torch.complex128)
    agree((want.to(torch.cfloat), b.abs() / b.abs().max()), traced(a, b))


def test_inputs_outputs_and_weights_are_pairs():
    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.turn = nn.Parameter(torch.randn(300, dtype=torch.cfloat))

        def forward(self, z, x):
            return {"turned": z * self.turn, "size": z.abs() * x}

    torch.manual_seed(5)
    module = Turned()
    z, x = torch.randn(2, 300, dtype=torch.cfloat), torch.rand(300)
    traced = loadrun.torch.trace(module, (z, x), dynamic_shapes=({0: torch.export.Dim.AUTO}, None))
    assert traced.notes == ["complex64 is two tensors of float32 in the graph: turn, z"]
    z = torch.randn(5, 300, dtype=torch.cfloat)
    with torch.no_grad():
        agree(module(z, x), traced(z, x))
    assert sorted(v.name for v in traced.bundle.inputs) == ["x", "z.imag", "z.real"]
    file = io.BytesIO()
    traced.dump(file, input_data="#rand(-1,1)")
    bundle = loadrun.loads(file.getvalue())
    assert loadrun.run(bundle)[0].verdict.value == "pass"
    assert list(bundle.outputs) == ["turned.real", "turned.imag", "size"]
    held = {
        t.name: t.value() for opr in bundle.graph.oprs for t in opr.tensors if t.name and t.data is not None
    }
    np.testing.assert_array_equal(held["turn.real"], module.turn.real.detach())
    case = bundle.testcases[0]
    given = torch.complex(
        *(torch.from_numpy(np.array(case.inputs[f"z.{part}"])) for part in ("real", "imag"))
    )
    np.testing.assert_allclose(
        case.expects["turned.imag"], (given * module.turn).imag.detach(), rtol=1e-6, atol=1e-6
    )


def test_no_lowering_for_complex_numbers():
    class Angles(nn.Module):
        def forward(self, x):
            return torch.logcumsumexp(torch.view_as_complex(x), 0).real + x.logcumsumexp(0)[..., 0]

    with pytest.raises(UnsupportedError) as caught:
        loadrun.torch.trace(Angles(), torch.rand(3, 2))
    assert "uses 1 operator that" in str(caught.value)
    assert "aten.logcumsumexp.default: it is lowered for real numbers only" in str(caught.value)
    assert "torch.view_as_real" in str(caught.value)
    assert "return torch.logcumsumexp(torch.view_as_complex(x), 0)" in str(caught.value)


def test_a_lowering_of_ones_own():
    torch.library.define("mylib::mirrored", "(Tensor z) -> Tensor")
    torch.library.impl("mylib::mirrored", "default", lambda z: torch.complex(z.imag, z.real))
    torch.library.register_fake("mylib::mirrored", torch.empty_like)

    @loadrun.torch.aten("mylib.mirrored.default", complex=True)
    def mirrored(call, z):
        return type(z)(z.imag, z.real)

    z = torch.randn(3, dtype=torch.cfloat)
    agree(torch.complex(z.imag, z.real), loadrun.torch.trace(torch.ops.mylib.mirrored, z)(z), 0)


def test_matrices_without_elements():
    def function(x, z):
        return torch.linalg.det(x), torch.linalg.inv_ex(x), torch.linalg.inv_ex(z)

    x, z = torch.zeros(2, 0, 0), torch.zeros(0, 3, 3, dtype=torch.cfloat)
    agree(function(x, z), loadrun.torch.trace(function, (x, z))(x, z), 0)


def test_a_border_follows_the_length():
    def doubled(x):
        n = x.shape[1]
        return nn.functional.pad(x, (1, n), value=2.0), nn.functional.pad(x, (2 - n, 0))

    traced = loadrun.torch.trace(doubled, torch.rand(2, 5), dynamic_shapes=True)
    x = torch.rand(3, 8)
    agree(doubled(x), traced(x), 0)


def test_unfolding_follows_the_length():
    traced = loadrun.torch.trace(lambda x: x.unfold(1, 3, 2), torch.rand(2, 9), dynamic_shapes=True)
    x = torch.rand(3, 14)
    agree(x.unfold(1, 3, 2), traced(x), 0)


@pytest.mark.parametrize("dtype", [None, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_frequencies(n, dtype):
    def function(x):
        return x, torch.fft.fftfreq(n, d=0.3, dtype=dtype), torch.fft.rfftfreq(n, d=2.0, dtype=dtype)

    _, full, half = loadrun.torch.trace(function, torch.zeros(2))(torch.zeros(2))
    assert full.dtype == half.dtype == (dtype or torch.float32)
    limit = 1e-15 if dtype else 1e-6
    np.testing.assert_allclose(full.numpy(), np.fft.fftfreq(n, 0.3), limit)
    np.testing.assert_allclose(half.numpy(), np.fft.rfftfreq(n, 2.0), limit)


EXTREMES = [0, -0.0, 1, -2.5, 3e38, 1e-30, math.inf, -math.inf, math.nan]


def both(function, *xs):
    """Compute with torch and with what is traced at ones, and return the parts of both results."""
    traced = loadrun.torch.trace(function, tuple(map(torch.ones_like, xs)))
    want, got = function(*xs), traced(*xs)
    return (torch.view_as_real(v).numpy() if v.is_complex() else v.numpy() for v in (want, got))


@pytest.mark.filterwarnings("ignore")
def test_quotients_of_zero_and_of_what_is_infinite():
    z = torch.complex(
        *torch.meshgrid(torch.tensor(EXTREMES), torch.tensor(EXTREMES), indexing="ij")
    ).flatten()
    for function, xs in (
        (torch.div, (z.repeat_interleave(len(z)), z.repeat(len(z)))),
        (torch.reciprocal, (z,)),
        (torch.abs, (z[~z.isnan()],)),
    ):
        want, got = both(function, *xs)
        np.testing.assert_allclose(got, want, 1e-5, 1e-8)


@pytest.mark.filterwarnings("ignore")
def test_functions_of_extremes():
    parts = [v for v in EXTREMES if math.isfinite(v)]
    z = torch.complex(*torch.meshgrid(torch.tensor(parts), torch.tensor(parts), indexing="ij")).flatten()
    ends = torch.tensor(
        [complex(math.inf, 1), complex(-math.inf, 2), complex(3, -math.inf), complex(math.inf, 0)]
    )
    finite = ("sqrt", "rsqrt", "exp", "log", "log10", "sin", "cos", "sinh", "cosh", "tanh", "acos", "asin")
    for name in (*finite, "acosh", "asinh", "atanh"):
        want, got = both(getattr(torch, name), z[z.abs() < 1e38] if name == "acosh" else z)
        np.testing.assert_allclose(got, want, 1e-5, 1e-17, err_msg=name)
    for name in ("sqrt", "exp", "log", "atan", "atanh"):
        want, got = both(getattr(torch, name), ends)
        np.testing.assert_allclose(got, want, 1e-5, 1e-17, err_msg=name)
