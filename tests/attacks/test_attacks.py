"""Every attack ends as it must, within its memory and time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.attacks import ATTACKS
from tests.attacks.run import Server
from tests.support.cases import slow_but

LONG = {"a08_one_long_name_for_all", "a17_inputs_of_one_name", "a31_fifty_thousand_operators"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server("tests.attacks.run")
    yield started
    started.close()


@pytest.mark.parametrize("name", slow_but({*ATTACKS} - LONG, ATTACKS))
def test_attack(name: str, server: Server) -> None:
    attack = ATTACKS[name]
    row = server.ask(name)
    assert row["end"] == attack.end, row
    assert attack.text in row["text"]
    assert row["opened"] == []
    assert row["seconds"] <= attack.seconds
    assert row["peak"] <= (32 << 20) + attack.factor * row["size"]
