#!/usr/bin/env bash
# asyncio.to_thread of CPython 3.14 may come back before the event loop has had a turn: a task that was made before it has
# not taken its first step.
#
# Seen: CPython 3.14.10 and 3.15.2, at the first of 20,000 tries; 3.11.7 and 3.13.0 never. So code such as
#     task = asyncio.create_task(work()); await asyncio.to_thread(wait_until_it_runs); task.cancel()
# cancels a task that never began, and none of its `try … finally` runs; and a loop of `await asyncio.to_thread(…)` over short
# functions starves everything else.
#
# Why: a concurrent future that is done already, or ends while asyncio looks at it, is copied into the loop's future at once
# if that is done in the loop's own thread; 3.13 went through the loop's queue each time. An `await` of a future that is
# done gives no turn.
#
# Fails if this changes. Exit 2: there is no CPython 3.14 here.
set -euo pipefail

find_python() {
    local candidate
    for candidate in $(type -ap "python$1" || true) /opt/*/usr/bin/"python$1" ~/.local/share/uv/python/cpython-"$1"*/bin/"python$1"; do
        if [ -x "$candidate" ] && "$candidate" -c 'import asyncio' 2>/dev/null; then echo "$candidate"; return; fi
    done
    return 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/turns.py" <<'PROGRAM'
import asyncio
import sys

TRIES = 20_000


async def main():
    begun = 0

    async def other():
        nonlocal begun
        begun += 1

    for number in range(TRIES):
        task = asyncio.create_task(other())
        await asyncio.to_thread(int)
        if begun == number:
            return f"no turn at try {number + 1}"
        await task
    return "always a turn"


print(sys.version.split()[0], asyncio.run(main()))
PROGRAM
new=$(find_python 3.14) || { echo "no CPython 3.14 here"; exit 2; }
"$new" "$folder/turns.py" | tee "$folder/new"
for series in 3.13 3.12 3.11; do
    if old=$(find_python "$series"); then "$old" "$folder/turns.py" | tee "$folder/old"; break; fi
done
grep -q "no turn" "$folder/new" || { echo "changed: 3.14 gives a turn"; exit 1; }
[ ! -e "$folder/old" ] || grep -q "always a turn" "$folder/old" || { echo "changed: older ones give none"; exit 1; }
echo "as seen"
