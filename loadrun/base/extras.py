"""What to install for an optional part of loadrun."""


def install(extra: str) -> str:
    """Return the command that installs the packages of an extra; as long as there is no release, from the clone.

    >>> install("torch")
    "pip install '/path/to/loadrun[torch]' (with the path of your clone)"
    """
    return f"pip install '/path/to/loadrun[{extra}]' (with the path of your clone)"
