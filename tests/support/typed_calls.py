"""Types that calls of traced functions and modules have for users; mypy checks them, nothing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import assert_type

    import loadrun
    from loadrun.megengine.module import Linear
    from loadrun.tensors import Tensor

    Floats = npt.NDArray[np.float32]

    @loadrun.trace
    def plain(x: Floats, times: int = 2) -> Floats:
        return x

    @loadrun.trace(symbolic=True, capture_as_const=True)
    def with_options(x: Floats) -> tuple[Floats, int]:
        return x, 1

    class Net:
        @loadrun.trace(symbolic=True)
        def forward(self, x: Floats) -> dict[str, Floats]:
            return {"x": x}

    def check(x: Floats, t: Tensor, anything: Any) -> None:
        assert_type(plain(x, times=3), Floats)
        assert_type(with_options(x), tuple[Floats, int])
        assert_type(Net().forward(x), dict[str, Floats])
        assert_type(Linear(2, 3)(t), Tensor)
        plain.dump("m.mge", input_data="example")
