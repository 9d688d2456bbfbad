#!/usr/bin/env bash
# python-ulid makes equal ULIDs in all forks, and in their parent, for the moment of the last ULID before the fork.
#
# Seen: python-ulid 4.1.0, CPython 3.11.7: ULID.from_datetime(moment) in two forks and the parent, after the parent has
# made one of the same moment. If the parent has made none, or has made one of another moment since, all differ.
#
# Why: the 80 random bits come from the system, but only for the first ULID of a millisecond; the next ones count on
# from it, so that they sort in the order in which they were made, and a fork counts on from the same number. ULID()
# does so, too, within the millisecond of the fork. It shows with moments that are given: of a batch, of an event, of a
# stopped clock in tests.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check python-ulid==4.1.0
cat >"$folder/makes.py" <<'PROGRAM'
import datetime
import importlib.metadata
import os

from ulid import ULID

DAYS = [datetime.datetime(2026, 1, day, tzinfo=datetime.UTC) for day in (1, 2, 3)]


def make_in_a_fork(moment):
    reads, writes = os.pipe()
    if os.fork() == 0:
        os.write(writes, str(ULID.from_datetime(moment)).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answer:
        made = answer.read()
    os.wait()
    return made


def make_in_two_forks_and_here(moment):
    return [make_in_a_fork(moment), make_in_a_fork(moment), str(ULID.from_datetime(moment))]


seen = {"none before": make_in_two_forks_and_here(DAYS[0])}
ULID.from_datetime(DAYS[1])
seen["one of that moment before"] = make_in_two_forks_and_here(DAYS[1])
ULID.from_datetime(DAYS[1])
ULID.from_datetime(DAYS[2])
seen["one of another moment since"] = make_in_two_forks_and_here(DAYS[1])
print("python-ulid", importlib.metadata.version("python-ulid"))
for name, made in seen.items():
    print(f"{name}: {made}")
assert [len(set(made)) for made in seen.values()] == [3, 1, 3]
PROGRAM
"$folder/env/bin/python" "$folder/makes.py"
