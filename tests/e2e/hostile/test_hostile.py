"""The quick ones of `make bench-hostile`: what an attack costs is bounded, and a normal client is served meanwhile."""

from __future__ import annotations

import pytest
from benches.hostile.catalogue import ATTACKS
from benches.hostile.run import run


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.quick])
def test_failure_42_attacks_are_bounded(name: str) -> None:
    found = run(ATTACKS[name])
    assert found.complaints == [], found
