"""input_transform gives what numpy 1.23, which real MegEngine evaluates it with, gave for the same expressions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadrun.base.errors import LoadRunError
from loadrun.inputs.transform import TransformExpression

FOUND = json.loads((Path(__file__).parents[1] / "data" / "numpy1_transforms.json").read_text())


@pytest.mark.parametrize(("text", "name", "dtype", "shape", "values"), FOUND["outcomes"])
def test_results_are_those_of_numpy_1(
    text: str, name: str, dtype: str, shape: list[int], values: Any
) -> None:
    kind, data = FOUND["arrays"][name]
    got = TransformExpression(text)(np.array(data, kind))
    assert (str(got.dtype), list(got.shape)) == (dtype, shape)
    np.testing.assert_allclose(got.ravel().astype(float), values, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("np.linalg.inv(data)", "np.linalg.inv is not among"),
        ("np.linalg", "linalg is not among"),
        ("np.einsum('ij,jk', data)", "subscripts such as"),
        ("np.einsum('ij->ik', data)", "output subscript .k. which never"),
        ("np.stack([data] * 2000)", "too long"),
    ],
)
def test_what_stays_refused(text: str, why: str) -> None:
    with pytest.raises(LoadRunError, match=why):
        TransformExpression(text)(np.ones((2, 2), np.float32))


def test_a_product_of_many_subscripts_is_paid_for() -> None:
    with pytest.raises(LoadRunError, match=r"too many operations|elements"):
        TransformExpression("np.einsum('ab,cd,ef->b', data, data, data)")(np.ones((256, 256), np.float32))
