"""Count the options of every command: ``python scripts/options.py``.

Not counted are ``--help``, MegEngine's optimizations (``--enable-*``) and the flags of `load_and_run`.
"""

from __future__ import annotations

from loadrun.cli.parsers import options, parsers


def counted() -> dict[str, list[str]]:
    """The options of each command by their long names, in one spelling."""
    found = {}
    for name, (_, parser) in parsers().items():
        if name != "load_and_run":
            longest = (max(a.option_strings, key=len).replace("_", "-") for a in options(parser))
            names = {o.replace("--no-", "--") for o in longest}
            found[name] = sorted(o for o in names if o != "--help" and not o.startswith("--enable-"))
    return found


if __name__ == "__main__":
    for command, names in counted().items():
        print(f"{len(names):3} {command}: {' '.join(names)}")
    print(f"{len({o for names in counted().values() for o in names}):3} distinct")
