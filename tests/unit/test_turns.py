"""The order in which calls of a serial tool have their turn."""

from __future__ import annotations

import threading

from clutch._worker.handlers.call import Turns


def has_come(turn: threading.Lock | None) -> bool:
    return turn is not None and turn.acquire(blocking=False)


def test_turns_come_in_the_order_in_which_they_were_asked_for() -> None:
    turns = Turns()
    assert turns.ask() is None
    waiting = [turns.ask() for _ in range(3)]
    for nr in range(3):
        turns.release()
        assert [has_come(turn) for turn in waiting[nr:]] == [True] + [False] * (2 - nr)
    turns.release()
    assert turns.ask() is None, "nobody has it"


def test_who_gives_up_loses_no_turn() -> None:
    turns = Turns()
    assert turns.ask() is None
    first, second = turns.ask(), turns.ask()
    assert first is not None and second is not None
    turns.give_up(first)
    turns.release()
    assert has_come(second)
    third, fourth = turns.ask(), turns.ask()
    turns.release()
    assert third is not None
    turns.give_up(third)  # its turn has just come
    assert has_come(fourth)
