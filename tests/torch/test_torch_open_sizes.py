"""Operators traced at one size with sizes left open, and run at another; values are torch's."""

import inspect
from collections import namedtuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun import PackOptions  # noqa: E402
from loadrun.base.errors import EngineError, InputError, TraceError, UnsupportedError, UsageError  # noqa: E402

F = torch.nn.functional
INF, NAN = float("inf"), float("nan")
HARD = torch.tensor([[1.0, NAN, 3.0, 0.5, NAN, -INF], [INF, 2.0, INF, -INF, 1.0, 1.0]])


def compare(function, *calls, dynamic=True):
    """Trace with the first call's arguments, and compare every call with torch."""
    traced = loadrun.torch.trace(function, calls[0], dynamic_shapes=dynamic)
    for call in calls:
        found, want = (torch.utils._pytree.tree_leaves(f(*call)) for f in (traced, function))
        for a, b in zip(found, want, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("name", ["cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64])
def test_running_results_of_any_length(name, dtype):
    function = getattr(torch, name)
    small, large = (torch.randint(-3, 4, s).to(dtype) for s in ((2, 5), (3, 19)))
    compare(lambda x: function(x, 1), (small,), (large,))
    compare(lambda x: function(x, 0), (small,), (large.T.contiguous(),))


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes(name):
    x = HARD.nan_to_num(nan=3.0)
    compare(lambda x: getattr(torch, name)(x, 1), (x,), (x[:, 1:].repeat(1, 2),))


def test_sizes_are_rounded_to_the_nearest():
    # Halves to the even number, as in Python.
    calls = [(torch.rand(n, 3),) for n in (5, 8, 9, 13)]
    in_one_graph(lambda x: x[: round(x.shape[0] / 2)], *calls)


def test_glu_halves_an_axis_of_any_length():
    compare(F.glu, (torch.rand(2, 6),), (torch.rand(3, 10),))


def test_named_tuples_go_in_and_come_out():
    pair = namedtuple("pair", "a b")

    def function(p):
        return pair(p.a @ p.b.mT, p.a.sum())

    calls = [(pair(torch.rand(n, 4), torch.rand(m, 4)),) for n, m in ((3, 5), (2, 6))]
    compare(function, *calls)
    assert loadrun.torch.trace(function, calls[0])(*calls[0])._fields == ("a", "b")


def test_hypot_and_heaviside_of_large_numbers():
    x, y = torch.tensor([3e30, -INF, 3.0, 0.0, -2.0]), torch.tensor([4e30, 1.0, -4.0, 7.0, INF])
    compare(torch.hypot, (torch.ones(5), torch.ones(5)), (x, y))
    compare(torch.heaviside, (torch.ones(5), torch.ones(5)), (x, y))


@pytest.mark.parametrize("offset", [0, 1, -2])
def test_diagonals_of_any_length(offset):
    compare(lambda x: torch.diag_embed(x, offset), (torch.rand(2, 4),), (torch.full((3, 6), INF),))

    def replaced(x, v):
        return torch.diagonal_scatter(x, v, offset, 1, 2)

    calls = [(torch.rand(b, n, n), torch.rand(b, n - abs(offset))) for b, n in ((2, 5), (3, 7))]
    compare(replaced, *calls)


@pytest.mark.parametrize("name", ["hamming", "blackman", "bartlett", "kaiser"])
def test_windows(name):
    window = getattr(torch, f"{name}_window")
    compare(lambda x: x * window(7) + window(7, periodic=False) + window(1), (torch.ones(3, 7),))


def test_parameters_of_windows():
    compare(
        lambda x: x * torch.kaiser_window(6, True, 5.0) + torch.hamming_window(6, False, 0.6, 0.3),
        (torch.ones(3, 6),),
    )


@pytest.mark.parametrize("norm", [1.0, 2.0, INF])
def test_embedding_of_a_largest_norm(norm):
    net = torch.nn.Embedding(6, 4, max_norm=1.0, norm_type=norm)
    with torch.no_grad():
        compare(net, (torch.tensor([[0, 5], [1, 1]]),), (torch.tensor([[2, 3, 4], [0, 1, 5]]),))


@pytest.mark.parametrize("shifted", [torch.fft.fftshift, torch.fft.ifftshift])
def test_shifts_that_sizes_decide(shifted):
    in_one_graph(shifted, (torch.rand(2, 6),), (torch.rand(3, 7),), (torch.rand(5, 4),))


def test_matrices_of_any_size_are_inverted():
    # What is made of these numbers at other sizes is far from singular.
    torch.manual_seed(0)
    calls = [(torch.rand(b, n, n) + 3 * torch.eye(n),) for b, n in ((2, 3), (1, 5))]
    compare(torch.linalg.inv, *calls)


def test_half_of_the_size_of_the_example_is_found(monkeypatch):
    """It is the same where the size is one more."""
    from loadrun.torch import registry

    monkeypatch.setattr(registry, "_YOURS", {})

    @loadrun.torch.aten("aten.median.default")
    def of_the_example(call, x):
        import loadrun.megengine.functional as functional

        return functional.sort(x)[0][(x.shape[0].item() - 1) // 2]

    with pytest.raises(TraceError, match="differs from torch for sizes of \\[10\\]"):
        loadrun.torch.trace(torch.median, torch.tensor([4.0, 1, 5, 3, 2]), dynamic_shapes=True)


def test_running_logarithms_of_sums():
    x = torch.tensor([[0.0, 200, 1, 3], [4, 1, 2, -INF], [-80, 1, -INF, 2], [0, -1, -300, 5]])
    for dtype in (torch.float32, torch.float64):
        compare(lambda x: torch.logcumsumexp(x, 1), (x.to(dtype),), (x[:, :3].to(dtype),))
        compare(lambda x: torch.logcumsumexp(x, 0), (x.to(dtype),), dynamic=None)


def test_bags_whose_offsets_torch_trusts():
    # Torch reads where offsets say, so a comparison at sizes that are made up would read anything.
    net = torch.nn.EmbeddingBag(10, 4, mode="max", include_last_offset=True)
    first = torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 4, 6])
    with torch.no_grad():
        compare(net, first, (torch.tensor([1, 9, 4]), torch.tensor([0, 1, 1, 3])))


@pytest.mark.parametrize("new", [1, 2])
def test_one_element_between_aligned_corners(new):
    resize = {"size": (new, 5), "mode": "bilinear", "align_corners": True}
    compare(lambda x: F.interpolate(x, **resize), (torch.rand(1, 2, 4, 6),), (torch.rand(3, 2, 7, 5),))


def test_borders_of_any_number():
    calls = [(torch.rand(2, n), torch.rand(m).sort().values) for n, m in ((3, 4), (5, 2))]
    compare(lambda x, b: (torch.bucketize(x, b), torch.searchsorted(b, x, right=True)), *calls)


def test_elements_are_repeated_by_a_tensor():
    calls = [(torch.rand(n, 2), torch.arange(n) % 3) for n in (3, 5)]
    compare(lambda x, n: torch.repeat_interleave(x, n, dim=0), *calls)
    compare(lambda x: x.repeat_interleave(torch.tensor([2, 0, 1]), 1), (torch.rand(2, 3),))


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"bias": False}])
def test_an_lstm_with_projections(options):
    net = torch.nn.LSTM(4, 6, proj_size=3, **options)
    with torch.no_grad():
        compare(net, (torch.rand(5, 1, 4),), (torch.rand(5, 3, 4),))
        compare(net, (torch.rand(5, 4),))


def test_a_generator_draws():
    traced = loadrun.torch.trace(lambda x: x + torch.randn(50, generator=torch.Generator()), torch.zeros(50))
    assert 0.5 < float(traced(torch.zeros(50)).std()) < 1.5


def test_unpooling_of_any_size():
    def pooled(x):
        return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=x.shape[2:])

    compare(pooled, (torch.rand(1, 3, 6, 7),), (torch.rand(2, 3, 9, 10),))


@pytest.mark.parametrize(
    ("function", "other"),
    [
        (lambda n, y: y + n.item() * 2, 2**40 + 1),
        (lambda n, y: torch.where(y > n.item() - 2**33, n.item() // 3, n.item() % 7), 2**33 + 1),
        (lambda n, y: torch.full((2,), n.item() ** 2), -(2**31) - 1),
        (lambda n, y: y[:, n.item() : n.item() + 2], 3),
        (lambda n, y: y[:, n.item() :], -2),
        (lambda n, y: torch.tensor_split(y, n.flatten(), 1)[1], 3),
    ],
)
def test_numbers_that_data_hold(function, other):
    y = torch.arange(12).reshape(2, 6)
    compare(function, (torch.tensor([[1]]), y), (torch.tensor([[other]]), y), dynamic=None)


def test_parts_that_data_choose_are_joined():
    x = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, 6.0]])
    compare(lambda x: torch.cat([x[x > 0], x[x < 0]]), (x,), (-x,), dynamic=None)
    n = torch.tensor(2)
    compare(lambda n, x: torch.cat([x, x.new_zeros(n.item(), 3)]), (n, x), (n + 3, x), dynamic=None)


def assigned(x, i):
    y, z = x.clone(), torch.zeros(3, *x.shape)
    y[i, ::2] = x[i, ::2] * 3
    y[:, i] = 7
    y[i:] += 1
    y[i.item()] = torch.ones(1, 1, x.shape[1])
    z[..., None, -1, i + 1] = x[0, 0]
    return y, z


def middle(x):
    y = x.clone()
    y[:, x.shape[1] // 2] = 0
    y[x.shape[0] - 1] = x[0]
    return y


def test_places_that_data_name_are_written():
    x = torch.rand(3, 4)
    compare(assigned, *((x, torch.tensor(i)) for i in (1, 2, 0)), dynamic=None)
    in_one_graph(middle, (x,), (torch.rand(5, 7),))


def test_attention_with_heads_of_any_size():
    compare(
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
        (torch.rand(1, 2, 5, 4),),
        (torch.rand(3, 2, 7, 6),),
    )


def in_one_graph(function, *calls, notes=()):
    """Compare as `compare` does, and require that the graph of the first call runs at the sizes of the others."""
    traced = loadrun.torch.trace(function, calls[0], dynamic_shapes=True)
    for call in calls:
        found, want = (torch.utils._pytree.tree_leaves(f(*call)) for f in (traced, function))
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-4, 1e-5)
    assert (traced.others, traced.notes) == ([], [*notes])


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "options",
    [{"size": (5, 7)}, {"size": (20, 15), "align_corners": True}, {"scale_factor": 0.5}],
    ids=["size", "corners", "scale"],
)
def test_resizing_without_aliases_at_any_size(mode, options):
    def function(x):
        return F.interpolate(x, mode=mode, antialias=True, **options)

    # Of three columns one would remain, where torch takes another way.
    notes = ["the graph holds where x.size()[3] >= 4"] if "scale_factor" in options else []
    hard = torch.rand(2, 1, 20, 17)
    hard[0, 0, 0, 3], hard[1, 0, 19, 16] = NAN, INF
    in_one_graph(function, (torch.rand(2, 3, 12, 11),), (torch.rand(1, 2, 9, 30),), (hard,), notes=notes)


@pytest.mark.parametrize("options", [{"size": (5, 7)}, {"scale_factor": 0.5}], ids=["size", "scale"])
def test_resizing_by_areas_at_any_size(options):
    calls = (torch.rand(2, 3, 12, 11),), (torch.rand(1, 2, 9, 31),)
    in_one_graph(lambda x: F.interpolate(x, mode="area", **options), *calls)


def test_places_of_adaptive_maxima_at_any_size():
    def flat(x):
        return F.adaptive_max_pool1d(x.flatten(2), 3, return_indices=True)

    def plane(x):
        return F.adaptive_max_pool2d(x, (3, 4), return_indices=True)

    small, large = torch.rand(2, 3, 7, 9), torch.rand(3, 1, 11, 5)
    # All are equal in the first windows, all are infinitely small in others.
    small[0, 0, :3], large[0, 0, 4:] = 0.5, -INF
    for function in (flat, plane):
        in_one_graph(function, (small,), (large,))
        compare(function, (small,), dynamic=None)
    volumes = (torch.rand(1, 2, 5, 4, 6),), (torch.rand(2, 2, 4, 7, 3),)
    in_one_graph(lambda x: F.adaptive_max_pool3d(x, 2, return_indices=True), *volumes)


def test_diagonals_of_rectangles():
    for offset in (0, 1, -2):
        calls = [(torch.rand(2, n, m),) for n, m in ((4, 6), (6, 3), (5, 5))]
        in_one_graph(lambda x, k=offset: torch.diagonal(x, k, 1, 2), *calls)


@pytest.mark.parametrize("wrap", [False, True])
def test_diagonals_are_filled(wrap):
    def function(x):
        x = x.clone()
        x.fill_diagonal_(5.0, wrap=wrap)
        return x

    compare(function, (torch.rand(4, 4),), (torch.rand(6, 6),), (torch.rand(7, 3),), (torch.rand(2, 5),))


@pytest.mark.parametrize("largest", [True, False])
def test_the_largest_of_nan_and_infinity(largest):
    wide = torch.cat([HARD, HARD], 1)
    compare(lambda x: torch.topk(x, 3, largest=largest).values, (HARD,), (wide,))
    for kind in (torch.float32, torch.float64):
        ranked = (HARD.to(kind),), (wide.to(kind),)
        compare(lambda x: torch.sort(x, stable=True, dim=1, descending=largest), *ranked)
    whole = torch.tensor([[3, -(2**63), 3, 2**63 - 1]])
    compare(lambda x: torch.sort(x, stable=True, dim=1, descending=largest), (whole,), (whole.repeat(2, 2),))


def test_xlogy_of_infinity():
    x, y = torch.tensor([0.0, 0, 1, 0]), torch.tensor([0.0, INF, INF, -1])
    compare(torch.xlogy, (torch.ones(4), torch.ones(4)), (x, y))


def test_a_number_has_the_dtype_of_its_own_trace():
    # Numbers are kept from trace to trace; in torch's they have 64 bits, in traces of numpy's functions 32.
    def kept(x):
        return np.where(x > 0, 1097, 1098)

    def wide(x):
        return torch.where(x > 0, 1097, 1098)

    compare(wide, (torch.tensor([1.0, -1.0]),), dynamic=None)
    traced = loadrun.tracing.trace(kept, symbolic=True, capture_as_const=True)
    assert traced(np.array([1.0, -1.0], np.float32)).dtype == np.int32
    compare(wide, (torch.tensor([1.0, -1.0]),), dynamic=None)


class Packed(torch.nn.Module):
    """A recurrent layer over sequences of several lengths."""

    def __init__(self, kind, total=None, **options):
        super().__init__()
        self.layer, self.total = kind(4, 5, batch_first=True, bidirectional=True, **options).eval(), total

    def forward(self, x, lengths):
        rnn = torch.nn.utils.rnn
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, last = self.layer(packed)
        return *rnn.pad_packed_sequence(y, batch_first=True, padding_value=2.0, total_length=self.total), last


@pytest.mark.parametrize(
    ("kind", "options"),
    [("LSTM", {"num_layers": 2}), ("RNN", {"nonlinearity": "relu"})],
    ids=["lstm", "rnn"],
)
def test_packed_sequences(kind, options):
    net = Packed(getattr(torch.nn, kind), **options)
    first = torch.rand(3, 6, 4), torch.tensor([6, 2, 4])
    # The longest may be shorter than what is padded, and batch and steps may be others.
    others = (torch.rand(3, 6, 4), torch.tensor([1, 5, 2])), (torch.rand(2, 7, 4), torch.tensor([3, 7]))
    with torch.no_grad():
        compare(net, first, *others)


@pytest.mark.parametrize(("kind", "options"), [("GRU", {}), ("LSTM", {"proj_size": 3})])
def test_packed_sequences_of_one_padded_length(kind, options):
    net = Packed(getattr(torch.nn, kind), total=8, **options)
    calls = (torch.rand(3, 6, 4), torch.tensor([6, 2, 4])), (torch.rand(3, 6, 4), torch.tensor([1, 5, 2]))
    with torch.no_grad():
        compare(net, *calls, dynamic=None)


def test_places_of_equal_values_are_no_difference():
    # Other sizes are tried with repeated values, whose places torch chooses as it likes.
    compare(lambda x: torch.kthvalue(x, 2, 1), (torch.rand(2, 5),), (torch.rand(3, 8),))


def at_most_50(x):
    return x.sum(0) if x.shape[0] <= 50 else x.mean(0)


def more_rows(x, y):
    return x[: y.shape[0]] + y if x.shape[0] > y.shape[0] else x


def odd(x):
    return x * 2 if x.shape[0] % 2 == 1 else x


def same_rows(x, y):
    return (x.sum() + y.sum() if x.shape[0] == y.shape[0] else x.sum())[None]


def rows_of_both(x, y, z):
    return x.sum(0) if x.shape[0] + y.shape[0] == z.shape[0] else z.sum(0)


def pairs(x, z, y, w):
    return (x + z).sum(0) + (y * w).sum(0) if x.shape[0] == y.shape[0] else (x * z).sum(0)


def counted(x, y):
    return torch.arange(x.shape[0]) * 3 if x.shape[0] == y.shape[0] else torch.arange(y.shape[0])


def area(x):
    return x * 2 if max(x.shape[0], x.shape[1]) * x.shape[1] > 20 else x


@pytest.mark.parametrize(
    ("function", "example", "right", "wrong"),
    [
        (at_most_50, [(10, 3)], [(50, 3)], [(51, 3)]),
        (more_rows, [(10, 3), (4, 3)], [(6, 3), (5, 3)], [(5, 3), (5, 3)]),
        (odd, [(9, 3)], [(11, 3)], [(4, 3)]),
        (area, [(9, 4)], [(6, 4)], [(5, 4)]),
        (same_rows, [(2, 3), (2, 4)], [(5, 3), (5, 4)], [(3, 3), (2, 4)]),
        (rows_of_both, [(2, 3), (3, 3), (5, 3)], [(4, 3), (3, 3), (7, 3)], [(2, 3), (3, 3), (4, 3)]),
        (pairs, [(2, 3)] * 4, [(4, 3)] * 4, [(3, 3), (3, 3), (2, 3), (2, 3)]),
        (counted, [(2, 3), (2, 3)], [(4, 3), (4, 3)], [(3, 3), (2, 3)]),
    ],
)
def test_files_refuse_sizes_at_which_a_branch_goes_the_other_way(function, example, right, wrong, tmp_path):
    def arrays(shapes):
        return [torch.rand(shape) for shape in shapes]

    traced = loadrun.torch.trace(function, arrays(example), dynamic_shapes=True)
    assert any("the graph holds where" in note for note in traced.notes)
    # A call has a graph of its own there, a file has one graph.
    compare(function, arrays(example), arrays(right), arrays(wrong))
    traced.dump(tmp_path / "m.mge", input_data=[tuple(arrays(example)), tuple(arrays(right))])
    runner = loadrun.Runner(tmp_path / "m.mge")
    names = inspect.signature(function).parameters
    given = arrays(right)
    want = function(*given).numpy()
    found = runner.run({n: x.numpy() for n, x in zip(names, given, strict=True)})
    np.testing.assert_allclose(found["output"], want, 1e-5)
    with pytest.raises(EngineError, match=r"cannot reshape"):
        runner.run({n: x.numpy() for n, x in zip(names, arrays(wrong), strict=True)})


def times_rows(x, y):
    return x * x.shape[0] + y


@pytest.mark.parametrize(
    ("shapes", "allowed", "refused"),
    [
        (None, (2, 3), (4, 3)),
        (({1: torch.export.Dim("n")}, {1: torch.export.Dim("n")}), (2, 5), (4, 3)),
    ],
)
def test_files_refuse_sizes_that_the_trace_took_for_numbers(shapes, allowed, refused, tmp_path):
    traced = loadrun.torch.trace(times_rows, (torch.ones(2, 3), torch.zeros(2, 3)), dynamic_shapes=shapes)
    traced.dump(tmp_path / "plain.mge", arg_names=["a", "b"])
    traced.dump(tmp_path / "cases.mge", arg_names=["a", "b"], input_data="example")
    loadrun.pack_file(tmp_path / "cases.mge", tmp_path / "packed.mge", PackOptions(input_data=("#ones",)))
    for name in ("plain", "cases", "packed"):
        runner = loadrun.Runner(tmp_path / f"{name}.mge")
        result = runner.run({"a": np.full(allowed, 3, "f4"), "b": np.ones(allowed, "f4")})
        np.testing.assert_array_equal(result["output"], np.full(allowed, 7, "f4"))
        with pytest.raises(InputError, match=r"input 'a' has shape \[4, 3\], but the file is made for \[2, "):
            runner.run({"a": np.ones(refused, "f4"), "b": np.ones(refused, "f4")})
    with pytest.raises(UsageError, match="cannot be dynamic: the model was traced for size 2"):
        loadrun.onnx.export(tmp_path / "cases.mge", (), tmp_path / "m.onnx", dynamic_axes={"a": {0: "n"}})


def test_branches_that_make_no_difference_are_no_conditions():
    def function(x):
        return x * 2 if x.shape[0] > 5 else x + x

    traced = loadrun.torch.trace(function, (torch.rand(8, 3),), dynamic_shapes=True)
    assert not any("holds where" in note for note in traced.notes)


def test_sizes_that_torch_fixes_are_said():
    def function(x):
        y = torch.nn.functional.max_pool1d(x, 2)  # torch.export takes a number for what follows.
        return y * 2 if y.shape[-1] % 2 else y + 100

    notes = loadrun.torch.trace(function, (torch.rand(2, 3, 12),), dynamic_shapes=True).notes
    assert notes == ["the graph holds where x.size()[2] == 12"]


def test_any_and_all_of_no_values():
    calls = [(torch.tensor([[0.0, 1, 1], [0, 0, 1]]),), (torch.ones(0, 3),), (torch.ones(4, 0),)]
    compare(lambda x: (x.any(0), x.all(0), x.any(1), x.all(1), x.any(), x.all()), *calls)


@pytest.mark.parametrize(
    ("function", "x", "said"),
    [
        (lambda x: torch.topk(x, 9)[1], torch.arange(20) // 7, "topk may name any place of equal values"),
    ],
)
def test_what_torch_leaves_open_is_said(function, x, said):
    with pytest.raises(TraceError, match=said):
        loadrun.torch.trace(function, (x,))


def test_attention_of_which_torch_has_two_results_is_said():
    net = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    mask = torch.tensor([[False, False], [True, True]])
    with pytest.raises(TraceError, match="exported program gives what the graph gives"), torch.no_grad():
        loadrun.torch.trace(
            lambda x, m: net(x, x, x, key_padding_mask=m, need_weights=False)[0], (torch.rand(2, 2, 4), mask)
        )


def test_a_strided_view_beyond_an_argument_is_refused():
    with pytest.raises(UnsupportedError, match="part of a larger tensor"):
        loadrun.torch.trace(lambda x: x.as_strided((2, 2), (1, 2), 0), (torch.rand(20)[5:15],))


class Windows(torch.nn.Module):
    """Like the Swin of transformers, keeps the smaller window that a small input made necessary."""

    def __init__(self):
        super().__init__()
        self.window = 4

    def forward(self, x):
        self.window = min(self.window, x.shape[1]) if x.shape[1] <= self.window else self.window
        whole = x[:, : x.shape[1] // self.window * self.window]
        return whole.reshape(x.shape[0], -1, self.window, 3).sum(1)


def test_attributes_that_a_module_changes_by_sizes_stay_as_they_are(tmp_path):
    module, x = Windows(), torch.rand(2, 9, 3)
    traced = loadrun.torch.trace(module, (x,), dynamic_shapes=True)
    traced.dump(tmp_path / "m.mge", input_data="example")
    assert module.window == 4
    (result,) = loadrun.run(tmp_path / "m.mge")
    assert result.verdict.value == "pass"
    assert traced(torch.rand(3, 17, 3)).shape == (3, 4, 3)


def test_conditions_that_divide_by_a_size_of_zero_are_violated_ones():
    net = torch.nn.Sequential(torch.nn.MaxPool2d(2), torch.nn.Flatten(1), torch.nn.Linear(12, 5)).eval()
    x = torch.rand(2, 3, 4, 4)
    traced = loadrun.torch.trace(net, x, dynamic_shapes=True)
    torch.testing.assert_close(traced(x[:1]), net(x[:1]), rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError):
        traced(torch.rand(2, 3, 0, 4))


def test_zeros_as_many_as_one_axis_are_kept_from_megengines_compiler(tmp_path):
    """It takes the sum for the other term in the shape of all axes (tests/oracle has the run)."""
    example = torch.ones(3, 4), torch.tensor([2.0])
    traced = loadrun.torch.trace(
        lambda x, y: torch.zeros(x.size(1)) + y, example, dynamic_shapes=({1: torch.export.Dim.DYNAMIC}, {})
    )
    traced.dump(tmp_path / "m.mge", input_data=[example])
    readers = [
        o
        for o in loadrun.load(tmp_path / "m.mge").graph.oprs
        if "Broadcast" in {v.owner.type for v in o.inputs}
    ]
    assert [o.title for o in readers] == ["MAX"]


def test_more_than_seven_axes_between_reshapes():
    def turned(x):
        y = x.unflatten(1, (2, 3, 2)).unflatten(0, (-1, 2, 2)).unsqueeze(0).unsqueeze(3)
        y = y.transpose(1, -1).movedim(2, -2).squeeze(0)
        return y.flatten(1, 4).flatten(1) * y.shape[0]

    in_one_graph(turned, (torch.rand(8, 12, 5),), (torch.rand(12, 12, 6),))
    # Ten axes of which no two stay together.
    order = (9, 7, 5, 3, 1, 8, 6, 4, 2, 0)
    mixed = lambda x: x.view(*[2] * 9, -1).permute(order).contiguous().flatten()  # noqa: E731
    in_one_graph(mixed, (torch.rand(512, 3),), (torch.rand(512, 5),))
    # Windows of a film, as Swin Transformers cut them.
    windows = lambda x: x.view(2, 2, 2, 2, 2, 3, 2, 3).permute(0, 1, 3, 5, 2, 4, 6, 7).reshape(-1, 8, 3)  # noqa: E731
    compare(windows, (torch.rand(2, 4, 4, 6, 3),), dynamic=False)
    for function in (lambda x: x.view([2] * 9) * 2, lambda x: x.view([2] * 9).transpose(0, 1)):
        with pytest.raises(UnsupportedError, match="a tensor of 9 axes can be permuted and reshaped"):
            loadrun.torch.trace(function, (torch.rand(512),))


# The example's number holds for the next size as well, so that a comparison there would not notice.
HALVED = torch.linspace(-1, 1, 36).reshape(2, 3, 3, 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.conv2d(x, torch.ones(2, 3, 1, 1), padding=x.shape[0] // 2),
        lambda x: F.conv2d(x.flatten(0, 1)[None], x.flatten(0, 1)[:, None, :1, :1], groups=3 * x.shape[0]),
        lambda x: F.leaky_relu(x, x.shape[0] // 2 / 4),
        lambda x: x.repeat_interleave(x.shape[0] // 2, 1),
        lambda x: torch.linspace(0, x.shape[0] // 2, 5),
    ],
)
def test_numbers_from_sizes_that_operators_fix_are_those_of_each_call(function):
    compare(function, (HALVED,), (HALVED.repeat(2, 1, 1, 1),))


def test_numbers_from_sizes_that_operators_follow():
    def function(x):
        n, whole = x.shape[0] // 2, (9 * x).long()
        return (
            *(x**n, whole**n, torch.add(x, x, alpha=n), torch.addcmul(x, x, x, value=n), whole << n),
            *(
                F.softplus(x, n / 2),
                F.hardtanh(x, 0, n / 2),
                torch.addmm(x[0, 0], x[0, 0, :, :1], x[0, 0, :1], beta=n),
            ),
            torch.bincount(whole.abs().flatten().clamp(max=1), minlength=x.shape[0] + 1),
        )

    in_one_graph(function, (HALVED,), (HALVED.repeat(2, 1, 1, 1),))
