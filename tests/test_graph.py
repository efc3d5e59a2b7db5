from __future__ import annotations

import pytest

from loadrun import graph


def test_the_old_name_of_stored_tensors_still_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="is now StoredTensor"):
        kind = graph.Tensor
    assert kind is graph.StoredTensor
    with pytest.raises(AttributeError, match="no attribute 'Tensors'"):
        _ = graph.Tensors
