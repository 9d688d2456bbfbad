"""The table at the end: each pool's submissions by what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from soak.ledger import Ledger

_FIRST = ["value", "raised", "closed", "refused", "late in queue", "late in running", "cancelled", "worker lost"]


def rendered(ledger: Ledger, lost: Mapping[str, int]) -> str:
    pools = list(ledger.submitted)
    words = {word for _, word in ledger.answered}
    rows = [["", *pools, "all"], _row("submitted", ledger.submitted, pools)]
    order = [word for word in _FIRST if word in words] + sorted(words - set(_FIRST))
    rows += [_row(word, {pool: ledger.answered[pool, word] for pool in pools}, pools) for word in order]
    rows.append(_row("lost", lost, pools))
    rows.append(["latest, ms", *(f"{1000 * ledger.latest.get(pool, 0):,.0f}" for pool in pools), ""])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_aligned(row, widths) for row in rows)


def counts(of: Counter[str]) -> str:
    """In one line, the most frequent first."""
    return ", ".join(f"{name} {count:,}" for name, count in of.most_common()) or "none"


def _row(name: str, numbers: Mapping[str, int], pools: list[str]) -> list[str]:
    each = [numbers.get(pool, 0) for pool in pools]
    return [name, *(f"{number:,}" for number in each), f"{sum(each):,}"]


def _aligned(cells: list[str], widths: list[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])
