"""Names of variables, under the name of ``megengine.utils.naming``."""

__all__ = ["AutoNaming"]


class AutoNaming:
    """MegEngine's store of names; here every recording names its variables by itself (`loadrun.tracing.naming`)."""

    @classmethod
    def clear(cls) -> None:
        """Do nothing: no name is kept from one recording to the next."""
