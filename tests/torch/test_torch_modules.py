"""Modules of many kinds: the recorded graph gives what torch gives."""

import io
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.base.errors import TraceError, TraceWarning  # noqa: E402
from tests.torch.torch_models import CASES  # noqa: E402

pytree = torch.utils._pytree


def same(want, got, tolerance=2e-5):
    wants, spec = pytree.tree_flatten(want)
    gots, found = pytree.tree_flatten(got)
    assert spec == found
    for a, b in zip(wants, gots, strict=True):
        if not isinstance(a, torch.Tensor):
            assert a == b
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        x, y = a.detach().double().numpy(), b.double().numpy()
        np.testing.assert_allclose(y, x, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_agrees(name):
    make, example = CASES[name]
    torch.manual_seed(1)
    module, args = make().eval(), example()
    with warnings.catch_warnings():
        if name == "wide":
            warnings.simplefilter("ignore", TraceWarning)
        traced = loadrun.torch.trace(module, args)
    with torch.no_grad():
        want = module(*args)
        same(want, traced(*args))
        assert max(traced.differences.values()) < 2e-5
        again = example()
        if name not in ("bag_sum", "bag_mean", "bag_max", "indexing"):
            same(module(*again), traced(*again))
    file = io.BytesIO()
    traced.dump(file)
    loaded = loadrun.loads(file.getvalue())
    assert {v.name for v in loaded.inputs} <= {*traced.program.graph_signature.user_inputs}


class Cache:
    """Tensors behind a class of its own, which is put together from tensors alone, as a cache of transformers is."""

    def __init__(self, keys, values):
        assert all(isinstance(x, torch.Tensor) for x in (keys, values))
        self.keys, self.values = keys, values


def test_a_class_of_its_own_in_the_results():
    def with_keys(cache):
        pairs = [(pytree.MappingKey("keys"), cache.keys), (pytree.MappingKey("values"), cache.values)]
        return pairs, None

    pytree.register_pytree_node(
        Cache,
        lambda cache: ([cache.keys, cache.values], None),
        lambda parts, _: Cache(*parts),
        flatten_with_keys_fn=with_keys,
        serialized_type_name="tests.Cache",
    )

    class Net(torch.nn.Module):
        def forward(self, x, past):
            empty = torch.tensor([])
            empty.detach_()
            keys = torch.cat([past.keys, x])
            return {"y": keys.sum(0), "past": Cache(keys, past.values + empty.sum())}

    args = (torch.ones(1, 3), Cache(torch.full((2, 3), 2.0), torch.full((2, 3), 3.0)))
    traced = loadrun.torch.trace(Net(), args)
    assert list(traced.bundle.outputs) == ["y", "past.keys", "past.values"]
    file = io.BytesIO()
    traced.dump(file, input_data="example")
    (case,) = loadrun.loads(file.getvalue()).testcases
    assert case.expects["y"].tolist() == [5.0] * 3
    assert case.expects["past.values"].tolist() == [[3.0] * 3] * 2
    assert traced(*args)["past"].keys.tolist() == [[2.0] * 3] * 2 + [[1.0] * 3]


def test_a_module_that_writes_to_an_argument_of_a_class_of_its_own():
    class Grown(Cache):
        pass

    pytree.register_pytree_node(
        Grown,
        lambda cache: ([[cache.keys], cache.values], None),
        lambda parts, _: Grown(parts[0][0], parts[1]),
        flatten_with_keys_fn=lambda cache: (
            [(pytree.MappingKey("keys"), [cache.keys]), (pytree.MappingKey("values"), cache.values)],
            None,
        ),
        serialized_type_name="tests.Grown",
    )

    class Net(torch.nn.Module):
        def forward(self, x, past):
            past.keys = torch.cat([past.keys, x], 1)  # as a cache of transformers grows
            return past.keys.sum(1) * past.values[:1]

    args = (torch.ones(1, 1, 3), Grown(torch.full((1, 2, 3), 2.0), torch.full((2, 3), 3.0)))
    traced = loadrun.torch.trace(Net(), args, dynamic_shapes=True)
    assert args[1].keys.shape == (1, 2, 3)
    file = io.BytesIO()
    traced.dump(file, input_data="example")
    (case,) = loadrun.loads(file.getvalue()).testcases
    assert sorted(v.shape for v in case.inputs.values()) == [(1, 1, 3), (1, 2, 3), (2, 3)]
    assert [v.tolist() for v in case.expects.values()] == [[[15.0] * 3]]
    longer = Grown(torch.full((1, 5, 3), 2.0), torch.full((2, 3), 3.0))
    (result,) = pytree.tree_leaves(traced(torch.ones(1, 1, 3), longer))
    assert np.asarray(result).tolist() == [[33.0] * 3]


def test_an_unknown_class_in_the_results_says_what_to_do():
    class Unknown:
        def __init__(self, x):
            self.x = x

    with pytest.raises(TraceError, match="use_cache=False"):
        loadrun.torch.trace(lambda x: Unknown(x), torch.ones(2))
