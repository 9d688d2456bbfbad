"""What a comparison has to show, as a report."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from clutch.lab.comparing import ROUNDS_MIN, Ratio, Verdict
from clutch.lab.peers import packages
from clutch.lab.peers.comparison import Comparison, Pair, cost_s
from clutch.lab.peers.seam import Peer
from clutch.lab.report import WARNING, Report, Sheet
from clutch.lab.shown import as_data, bench_report

RATE_WORDS = {Verdict.BETTER: "faster", Verdict.WORSE: "slower", Verdict.ALIKE: "not distinguishable"}
COST_WORDS = {Verdict.BETTER: "dearer", Verdict.WORSE: "cheaper", Verdict.ALIKE: "not distinguishable"}
TOO_FEW = "too few rounds"
WHOSE = {
    "calls": "CPU time of workers and of the program that calls",
    "requests": "CPU time of the server",
    "jobs": "CPU time of the consumer, and of its Redis where it has one",
}


def compare_report(comparison: Comparison, cpus: int) -> Report:
    bench = comparison.bench
    report = bench_report(bench, {}, cpus, ranks=False)
    report.sheets.insert(1, beside(comparison))
    report.advice = [*too_few(comparison), *verdicts(comparison), *unknown(comparison), *report.advice]
    report.notes += settings(comparison)
    report.data |= {
        "pairs": {
            name: {"clutch": pair.clutch, "rate": data_of(pair.rate), "cost": data_of(pair.cost)}
            for name, pair in comparison.pairs.items()
        },
        "peers": {peer.name: peer_data(peer, comparison) for peer in comparison.peers},
        "left_out": comparison.left_out,
    }
    return report


def beside(comparison: Comparison) -> Sheet:
    """The ratios, cheapest peer first."""
    unit = comparison.bench.unit
    lines = []
    cheapest_first = sorted(comparison.pairs.items(), key=lambda item: item[1].cost.median if item[1].cost else inf)
    for name, pair in cheapest_first:
        costs = [cost_s(one, unit) for one in comparison.bench.cells[name].rounds]
        known = [one for one in costs if one is not None]
        lines.append(
            [
                name,
                f"{statistics.median(known) * 1e6:,.1f}" if known else "",
                str(pair.cost or ""),
                word(pair.cost, COST_WORDS),
                str(pair.rate or ""),
                word(pair.rate, RATE_WORDS),
                pair.clutch,
            ]
        )
    head = ["", "CPU µs each", "CPU time", "", "rate", "", "to"]
    notes = [f"CPU µs each: {WHOSE[unit]}. Ratios are a peer's to Clutch's, taken in each round: CPU time decides"]
    return Sheet("beside Clutch", head, lines, notes)


def word(ratio: Ratio | None, words: Mapping[Verdict, str]) -> str:
    """The verdict; with too few rounds there is none."""
    if ratio is None:
        return words[Verdict.ALIKE]
    return words[ratio.verdict] if ratio.rounds >= ROUNDS_MIN else TOO_FEW


def can_tell(pair: Pair) -> bool:
    return pair.cost is None or pair.cost.rounds >= ROUNDS_MIN


def too_few(comparison: Comparison) -> list[str]:
    """Who was measured in too few rounds for a verdict."""
    few = [name for name, pair in comparison.pairs.items() if not can_tell(pair)]
    return [f"{WARNING}fewer than {ROUNDS_MIN} rounds: no verdict is possible on {', '.join(few)}"] if few else []


def verdicts(comparison: Comparison) -> list[str]:
    """Who is dearer and who cheaper, in sentences."""
    words = {
        Verdict.BETTER: "dearer than Clutch",
        Verdict.WORSE: "cheaper than Clutch",
        Verdict.ALIKE: "not distinguishable from Clutch",
    }
    by_verdict = {
        verdict: [name for name, pair in comparison.pairs.items() if can_tell(pair) and pair.dearer is verdict]
        for verdict in words
    }
    return [f"{words[verdict]}, by CPU time: {', '.join(names)}" for verdict, names in by_verdict.items() if names]


def unknown(comparison: Comparison) -> list[str]:
    """Whose CPU time is not known of all rounds, and why."""
    said = []
    for name, cell in comparison.bench.cells.items():
        if lost := sum(one.ended > 0 for one in cell.rounds):
            played = len(cell.rounds)
            said.append(f"{name}: processes of it ended in {lost} of {played} rounds, whose CPU time is left out")
    return said


def data_of(ratio: Ratio | None) -> dict[str, Any] | None:
    return None if ratio is None else as_data(ratio)


def settings(comparison: Comparison) -> list[str]:
    """What each ran with, and who is left out."""
    lines = []
    for peer in comparison.peers:
        if peer.name in comparison.bench.cells:
            lines.append(f"{peer.name}: {peer.settings}")
            if versions := comparison.versions.get(peer.name):
                lines.append(f"    {named_versions(versions)}")
    return lines + [f"left out, {name}: {why}" for name, why in comparison.left_out.items()]


def peer_data(peer: Peer, comparison: Comparison) -> dict[str, Any]:
    return {
        "settings": peer.settings,
        "requirements": peer.requirements,
        "versions": comparison.versions.get(peer.name, {}),
    }


def named_versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def listing(peers: Sequence[Peer]) -> Sheet:
    """All peers, for `compare --list`."""
    lines = []
    for peer in peers:
        versions = packages.versions_of(peer)
        asked = {name: version for name, version in versions.items() if is_asked_for(peer, name)}
        state = peer.lacks() or packages.failure_of(peer) or named_versions(asked)
        lines.append([f"{peer.name}  ({', '.join(peer.faces)})", state or ("" if peer.requirements else "of Python")])
    return Sheet("", ["", "installed, or why it cannot run here"], lines)


def is_asked_for(peer: Peer, package: str) -> bool:
    """Whether a package is what the peer names, rather than what that needs."""
    return any(canonical(one) == canonical(package) for one in peer.requirements)


def canonical(requirement: str) -> str:
    return requirement.partition("[")[0].lower().replace("_", "-")
