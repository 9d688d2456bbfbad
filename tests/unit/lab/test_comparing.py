"""The lab's verdicts: what is alike is called so, a planted difference is found, and the tests behind it are exact."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest

from clutch.lab.comparing import (
    COST,
    ROUNDS_MIN,
    Verdict,
    rank_sum,
    ranks,
    ratio_of,
    ratio_of_apart,
    rounds_of,
    signed_rank,
)

GAMES = 100
ROUNDS = 16


def game(draw: random.Random, gap: float) -> tuple[list[float], list[float]]:
    """Rates of two settings: what disturbs a round disturbs both, by a fifth; each alone, by 2 %."""
    ours, theirs = [], []
    for _ in range(ROUNDS):
        machine = 1000 * draw.lognormvariate(0, 0.2)
        ours.append(machine * (1 + gap) * draw.lognormvariate(0, 0.02))
        theirs.append(machine * draw.lognormvariate(0, 0.02))
    return ours, theirs


def verdicts(gap: float) -> list[Verdict]:
    draw = random.Random(11)
    return [ratio_of(*game(draw, gap), seed=nr).verdict for nr in range(GAMES)]


def test_two_that_are_alike_are_called_so_95_times_of_100() -> None:
    assert verdicts(0.0).count(Verdict.ALIKE) >= 95


@pytest.mark.parametrize(("gap", "verdict"), [(0.05, Verdict.BETTER), (-0.05, Verdict.WORSE)])
def test_a_difference_of_5_percent_is_found_90_times_of_100(gap: float, verdict: Verdict) -> None:
    assert verdicts(gap).count(verdict) >= 90


def test_averages_of_the_same_rounds_would_not_have_found_it() -> None:
    """Why rounds are compared one by one: the machine's own noise hides 5 % from two medians."""
    draw = random.Random(11)
    found = [ratio_of_apart(*game(draw, 0.05), seed=nr).verdict for nr in range(GAMES)]
    assert found.count(Verdict.BETTER) < 50


def test_few_rounds_tell_nothing() -> None:
    few = ROUNDS_MIN - 1
    assert ratio_of([2.0] * few, [1.0] * few).verdict is Verdict.ALIKE
    assert ratio_of([2.0] * ROUNDS_MIN, [1.0] * ROUNDS_MIN).verdict is Verdict.BETTER


@pytest.mark.parametrize("figures", [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_what_has_no_ratio(figures: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match="figure"):
        ratio_of(*figures)


def test_the_signed_rank_test_counts_all_signs() -> None:
    draw = random.Random(3)
    for _ in range(50):
        values = [draw.choice([-3, -2, -1, 1, 2, 3]) * draw.choice([0.5, 1.0]) for _ in range(6)]
        doubled = ranks(sorted(map(abs, values)))
        ordered = sorted(values, key=abs)

        def least(signs: tuple[int, ...], doubled: list[int] = doubled) -> int:
            positive = sum(rank for rank, sign in zip(doubled, signs, strict=True) if sign > 0)
            return min(positive, sum(doubled) - positive)

        seen = least(tuple(1 if value > 0 else -1 for value in ordered))
        extreme = sum(least(signs) <= seen for signs in itertools.product((-1, 1), repeat=len(values)))
        assert signed_rank(values) == pytest.approx(min(1.0, extreme / 2 ** len(values)), abs=0.5 ** len(values) + 1e-9)


def test_the_rank_sum_test_counts_all_choices() -> None:
    draw = random.Random(4)
    for _ in range(30):
        ours, theirs = [draw.randrange(6) for _ in range(3)], [draw.randrange(6) for _ in range(4)]
        values = sorted([*ours, *theirs])
        of_value = dict(zip(values, ranks(values), strict=True))
        doubled = [of_value[value] for value in [*ours, *theirs]]
        middle = 3 * (len(values) + 1)
        seen = abs(sum(doubled[:3]) - middle)
        chosen = [abs(sum(one) - middle) for one in itertools.combinations(doubled, 3)]
        assert rank_sum(ours, theirs) == pytest.approx(sum(one >= seen for one in chosen) / len(chosen))


def test_over_two_rounds_nobody_comes_first() -> None:
    orders = list(rounds_of("abcd", 40, seed=1))
    for first, second in zip(orders[::2], orders[1::2], strict=True):
        assert list(first) == list(reversed(second))
    firsts = [order[0] for order in orders]
    assert all(firsts.count(name) >= 4 for name in "abcd"), "rounds are shuffled"
    places = {name: statistics.mean(order.index(name) for order in orders) for name in "abcd"}
    assert set(places.values()) == {1.5}


def two_modes(draw: random.Random, cost: float) -> list[float]:
    """CPU time of a unit where a neighbour in the core computes in half of the rounds."""
    return [cost * draw.choice([1.0, 1.6]) * draw.lognormvariate(0, 0.01) for _ in range(60)]


@pytest.mark.parametrize(("cost", "verdict", "least"), [(1.0, Verdict.ALIKE, 95), (1.05, Verdict.BETTER, 90)])
def test_a_floor_tells_what_a_neighbour_in_the_core_hides(cost: float, verdict: Verdict, least: int) -> None:
    draw = random.Random(5)
    games = [(two_modes(draw, cost), two_modes(draw, 1.0)) for _ in range(GAMES)]
    by_floor = [ratio_of(*pair, seed=nr, at=COST).verdict for nr, pair in enumerate(games)]
    by_median = [ratio_of(*pair, seed=nr).verdict for nr, pair in enumerate(games)]
    assert by_floor.count(verdict) >= least
    assert verdict is Verdict.ALIKE or by_median.count(verdict) < least


def test_what_two_starts_of_the_same_code_differ_by_tells_nothing() -> None:
    assert ratio_of([1.015] * 40, [1.0] * 40).verdict is Verdict.ALIKE
    assert ratio_of([1.03] * 40, [1.0] * 40).verdict is Verdict.BETTER
