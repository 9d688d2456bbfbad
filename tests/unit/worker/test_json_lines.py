"""Tracebacks that workers print: each is one write, and with `--log-format json` one record."""

from __future__ import annotations

import io
import json
import logging
import traceback
from typing import Any

import pytest

from clutch._worker.json_lines import MESSAGE_CHARACTERS_MAX, TEXT_BYTES_MAX, NamedJsonLines, write_tracebacks
from clutch._worker.tracebacks import print_whole

RAISED = (
    "Traceback (most recent call last):\n"
    '  File "a.py", line 1, in f\n'
    "    raise KeyError(1)\n"
    "KeyError: 1\n"
    "it had two lines\n"
)
CAUSE = "\nDuring handling of the above exception, another exception occurred:\n\n"
GROUP = (
    "  + Exception Group Traceback (most recent call last):\n"
    "  | ExceptionGroup: two (1 sub-exception)\n"
    "  +-+---------------- 1 ----------------\n"
)


class Stream(io.TextIOWrapper):
    """Notes what is written to it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8")
        self.writes: list[str] = []

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)


@pytest.fixture
def stream() -> Stream:
    stream = Stream()
    write_tracebacks(stream)
    return stream


def records(stream: Stream) -> list[Any]:
    lines = "".join(stream.writes).splitlines()
    return [json.loads(line) if line.startswith("{") else line for line in lines]


def test_a_traceback_is_one_error_with_what_was_logged_with_it(stream: Stream) -> None:
    stream.write("before\n")
    stream.write(f"two lines of\nERROR:shop:no price\n{RAISED}")
    stream.write("after\n")
    before, earlier, error, after = records(stream)
    assert (before, earlier, after) == ("before", "two lines of", "after")
    assert (error["level"], error["message"]) == ("error", "ERROR:shop:no price: KeyError: 1")
    assert error["traceback"] == RAISED.rstrip()
    assert error["time"].endswith("Z")


def test_a_chain_is_one_error_named_by_its_last(stream: Stream) -> None:
    stream.write(RAISED + CAUSE + RAISED.replace("KeyError", "ValueError"))
    (error,) = records(stream)
    assert error["message"] == "ValueError: 1"
    assert error["traceback"].count("Traceback") == 2


def test_a_group_is_named(stream: Stream) -> None:
    stream.write(GROUP)
    (error,) = records(stream)
    assert error["message"] == "ExceptionGroup: two (1 sub-exception)"


def test_a_line_that_was_begun_is_ended_before_a_record(stream: Stream) -> None:
    stream.write("50 %")
    stream.write(RAISED)
    begun, error = records(stream)
    assert (begun, error["message"]) == ("50 %", "KeyError: 1")


def test_a_line_break_that_print_writes_later_ends_the_record(stream: Stream) -> None:
    print(RAISED.rstrip(), file=stream)
    print("after", file=stream)
    error, after = records(stream)
    assert (error["message"], after) == ("KeyError: 1", "after")


def test_of_a_long_traceback_its_middle_is_left_out(stream: Stream) -> None:
    frame = '  File "a.py", line 1, in f\n    f()\n'
    stream.write(RAISED.replace("KeyError: 1\n", frame * 20_000 + "KeyError: 1\n"))
    (error,) = records(stream)
    assert len(error["traceback"]) < TEXT_BYTES_MAX + 100
    assert "lines left out]\n" in error["traceback"]
    assert error["message"] == "KeyError: 1"


@pytest.mark.parametrize("character", ["x", "é", "\N{FOX FACE}", "\0", "\udc80"])
def test_a_long_message_makes_no_long_record(stream: Stream, character: str) -> None:
    stream.write(RAISED.replace("KeyError: 1", f"ValueError: {character * 300_000}"))
    assert len("".join(stream.writes)) < TEXT_BYTES_MAX + 20 * MESSAGE_CHARACTERS_MAX < 1 << 20
    (error,) = records(stream)
    begin = f"ValueError: {character * 900}"
    assert error["message"].startswith(begin) and error["message"].endswith(" characters left out]")
    assert f"    raise KeyError(1)\n{begin}" in error["traceback"]
    assert error["traceback"].endswith("it had two lines")


def test_of_many_lines_of_many_bytes_the_middle_is_left_out(stream: Stream) -> None:
    line = '    raise KeyError("\N{FOX FACE}")\n'
    stream.write(RAISED.replace("KeyError: 1\n", line * 200_000 + "KeyError: 1\n"))
    assert len("".join(stream.writes)) < TEXT_BYTES_MAX + MESSAGE_CHARACTERS_MAX
    (error,) = records(stream)
    kept = error["traceback"].split("\n")
    (left_out,) = (text for text in kept if "left out" in text)
    assert left_out == f"  [{200_000 + 5 - (len(kept) - 1)} lines left out]"
    assert kept[0].startswith("Traceback") and kept[-2:] == ["KeyError: 1", "it had two lines"]


def test_a_long_log_record_is_no_long_line() -> None:
    try:
        raise ValueError("é" * 300_000)
    except ValueError as error:
        made = (type(error), error, error.__traceback__)
    record = logging.LogRecord("shop", logging.ERROR, __file__, 1, "\0" * 300_000, None, made)
    line = NamedJsonLines().format(record)
    assert len(line) < 1 << 20
    assert json.loads(line)["traceback"].startswith("Traceback (most recent call last):\n")
    kept = "a line\n" * 10_000
    record = logging.LogRecord("shop", logging.ERROR, __file__, 1, kept, None, None)
    assert json.loads(NamedJsonLines().format(record))["message"] == kept


def test_a_traceback_is_printed_by_one_write() -> None:
    stream = Stream()
    try:
        {}["apples"]  # type: ignore[index]
    except KeyError as error:
        print_whole(traceback.TracebackException.from_exception(error), file=stream)
        assert "".join(stream.writes) == traceback.format_exc()
    assert len([text for text in stream.writes if text]) == 1
