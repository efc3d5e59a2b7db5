"""Every attack on the reader of checkpoints ends as it must, within its memory and time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.checkpoint_attacks import ATTACKS
from tests.attacks.run import Server
from tests.support.cases import slow_but


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    started = Server("tests.attacks.run_checkpoint")
    yield started
    started.close()


@pytest.mark.parametrize("name", slow_but({*ATTACKS} - {"c20_many_small_objects"}, ATTACKS))
def test_attack(name: str, server: Server) -> None:
    attack = ATTACKS[name]
    row = server.ask(name)
    assert row["end"] == attack.end, row
    assert attack.text in row["text"]
    assert row["opened"] == []
    assert row["seconds"] <= attack.seconds
    assert row["peak"] <= (48 << 20) + attack.factor * row["size"]
