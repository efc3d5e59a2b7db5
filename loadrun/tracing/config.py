"""Settings of traces: how the graph is optimized."""


class GraphOptimizationConfig:
    """What level 3 of a trace fuses: True always, False never, None as the level says.

    Attributes:
        jit_fuse_dimshuffle: fuse through Dimshuffle.
        jit_fuse_reduce: fuse what stands before a reduction into it.

    >>> GraphOptimizationConfig()
    GraphOptimizationConfig { jit_fuse_dimshuffle = UNSET, jit_fuse_reduce = UNSET }
    """

    def __init__(self) -> None:
        self.jit_fuse_dimshuffle: bool | None = None
        self.jit_fuse_reduce: bool | None = None

    def __repr__(self) -> str:
        shown = {None: "UNSET", False: "OFF", True: "ON"}
        parts = (f"{name} = {shown[value]}" for name, value in vars(self).items())
        return f"GraphOptimizationConfig {{ {', '.join(parts)} }}"
