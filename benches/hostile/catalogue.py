"""All attacks, in the order of the table."""

from __future__ import annotations

from benches.hostile.attacks import bodies, floods, heads, responses, slow, websockets

ATTACKS = {
    attack.name: attack for module in (slow, bodies, responses, floods, heads, websockets) for attack in module.ATTACKS
}
