"""Modules of many kinds: the recorded graph gives what torch gives."""

import io
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import loadrun  # noqa: E402
import loadrun.torch  # noqa: E402
from loadrun.base.errors import TraceWarning  # noqa: E402
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
