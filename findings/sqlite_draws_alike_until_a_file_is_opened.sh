#!/usr/bin/env bash
# random() of SQLite gives the same numbers in all forks of a process that has drawn one, until a fork opens a database *file*:
# then also the connections that it has inherited draw numbers of their own.
#
# Seen: SQLite 3.54.1 (apsw 3.54.1.0), CPython 3.11.7: two children of one process draw equal numbers from an inherited
# connection; also after each has opened and used a new :memory: database; different ones after each has opened a file,
# even one that it neither reads nor writes.
#
# Why: there is one generator in a process. The code that opens files looks whether the process is another one and then
# seeds the generator anew; nothing else looks. So an in-memory database that was filled before a fork hands out the same
# random() and randomblob() in every worker, such as tokens, and the fault is gone as soon as somebody adds a log on disk.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check apsw==3.54.1.0
cat >"$folder/draws.py" <<'PROGRAM'
import os
import sys

import apsw

folder = sys.argv[1]
memory = apsw.Connection(":memory:")


def draw(connection):
    return connection.execute("select random()").fetchone()[0]


def nothing(_):
    pass


def opens_memory(_):
    draw(apsw.Connection(":memory:"))


def opens_a_file(number):
    apsw.Connection(f"{folder}/{number}.db")


def in_two_forks(before):
    drawn = []
    for number in range(2):
        reads, writes = os.pipe()
        if os.fork() == 0:
            before(number)
            os.write(writes, str(draw(memory)).encode())
            os._exit(0)
        os.close(writes)
        drawn.append(os.read(reads, 100))
        os.wait()
    return "equal" if drawn[0] == drawn[1] else "different"


draw(memory)
seen = {before.__name__: in_two_forks(before) for before in (nothing, opens_memory, opens_a_file)}
print("SQLite", apsw.sqlite_lib_version(), seen)
assert seen == {"nothing": "equal", "opens_memory": "equal", "opens_a_file": "different"}, seen
PROGRAM
"$folder/env/bin/python" "$folder/draws.py" "$folder"
