#!/usr/bin/env bash
# CPython 3.13 without the GIL nearly stands still beside busy neighbours, with one thread of its own.
#
# Seen: CPython 3.13.5, free-threaded build, Linux 6.18, 2 CPUs; pytest 8.4.2 of PyPI. Beside two busy
# loops for each CPU, in the same session, `import pytest` takes 50 times as long as in a build with the GIL: 65 s
# instead of 1.2 s. User time stays below a second in both.
#
# Why: a thread that comes back to an object that it has locked itself spins first, 40 times `sched_yield`, before it lets
# go of its own lock. A class statement with a metaclass written in Python does so once, as does an `__eq__` that looks
# into the dict that called it; `import asyncio` makes 9,000 of these calls. Each hands the CPU to a neighbour for the rest
# of a time slice. 3.14 skips the lock that the same thread holds.
#
# Fails if this changes. Exit 2: there is no such interpreter here.
set -euo pipefail

find_python() { # GIL disabled: 0 or 1
    local candidate
    for candidate in $(type -ap python3.13t python3.13 python3 || true) /opt/python3.13*/bin/python3.13* ~/.local/share/uv/python/cpython-3.13*/bin/python3.13*; do
        [ -x "$candidate" ] && [ "$("$candidate" -c '
import sys, sysconfig
print(sys.version_info[1], int(bool(sysconfig.get_config_var("Py_GIL_DISABLED"))))' 2>/dev/null)" = "$2 $1" ] || continue
        echo "$candidate"
        return
    done
    return 1
}

free=$(find_python 1 13) || { echo "no free-threaded CPython 3.13 here"; exit 2; }
usual=$(find_python 0 13 || find_python 0 12 || find_python 0 11) || { echo "no CPython with the GIL here"; exit 2; }
folder=$(mktemp -d)
neighbours=()
trap 'kill "${neighbours[@]}" 2>/dev/null || true; rm -rf "$folder"' EXIT
for kind in free usual; do
    "${!kind}" -m venv "$folder/$kind"
    "$folder/$kind/bin/pip" install --quiet --disable-pip-version-check pytest==8.4.2 pluggy==1.6.0 iniconfig==2.1.0 packaging==25.0 pygments==2.19.2
    "$folder/$kind/bin/python" -c 'import pytest, sys; print(sys.version, "pytest", pytest.__version__)' # bytecode, too
done
for _ in $(seq $((2 * $(nproc)))); do
    timeout 200 "$usual" -c 'while True: pass' &
    neighbours+=($!)
done
took() { "$folder/$1/bin/python" -c '
import time
began = time.monotonic()
import pytest
print(f"{time.monotonic() - began:.2f}")'; }
with_gil=$(took usual) without=$(took free)
echo "import pytest beside busy neighbours: with the GIL $with_gil s, without it $without s"
awk -v a="$without" -v b="$with_gil" 'BEGIN { exit !(a > 5 * b) }' || { echo "changed: less than 5 times as long"; exit 1; }
echo "as seen"
