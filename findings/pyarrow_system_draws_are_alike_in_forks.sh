#!/usr/bin/env bash
# pyarrow.compute.random(n, initializer="system") gives the same numbers in all forks of a process that has called
# `random` before, even if it did so with a seed of its own.
#
# Seen: pyarrow 26.0.1, CPython 3.11.7. The numbers differ if the process has only imported pyarrow, or has asked for no
# numbers at all.
#
# Why: "system" does not ask the system at each call. It takes a seed from a second generator, one for the whole
# process, which is made when the first numbers are, and a fork made later has a copy of it. So a call with a seed
# before the fork, made to get the same numbers in each run, also makes the unseeded numbers of all workers the same.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check pyarrow==26.0.1
cat >"$folder/draws.py" <<'PROGRAM'
import os
import sys

import pyarrow
import pyarrow.compute as compute

FIRST_CALLS = {
    "none": lambda: None,
    "from the system": lambda: compute.random(1, initializer="system"),
    "with a seed": lambda: compute.random(1, initializer=7),
    "of no numbers": lambda: compute.random(0, initializer=7),
}


def in_a_fork():
    reads, writes = os.pipe()
    if os.fork() == 0:
        drawn = [compute.random(2, initializer="system").to_pylist() for _ in range(3)]
        os.write(writes, repr(drawn).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answer:
        drawn = answer.read()
    os.wait()
    return drawn


first_call = sys.argv[1]
FIRST_CALLS[first_call]()
drawn = [in_a_fork(), in_a_fork()]
seen = "equal" if drawn[0] == drawn[1] else "different"
print(f"pyarrow {pyarrow.__version__}, call before the forks: {first_call}; their numbers: {seen}")
expected = "different" if first_call in ("none", "of no numbers") else "equal"
assert all(drawn) and seen == expected, drawn
PROGRAM
for first_call in none "from the system" "with a seed" "of no numbers"; do
    "$folder/env/bin/python" "$folder/draws.py" "$first_call"
done
