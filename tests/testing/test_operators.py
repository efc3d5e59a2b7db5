"""Single operators on arrays."""

import numpy as np
import pytest

from loadrun.testing import run_operator


def test_an_operator_that_does_not_exist() -> None:
    with pytest.raises(
        ValueError, match=r"no operator is called 'Convolution'; `loadrun info --operators` lists"
    ):
        run_operator("Convolution", (), np.zeros(3, np.float32))
