#!/usr/bin/env bash
# A tqdm bar that shows nothing starts a thread, which stays when the bar is done; and no bar in a later fork gets one.
#
# Seen: tqdm 4.70.1, CPython 3.11.7: `disable=True`, `disable=None` without a terminal, and TQDM_DISABLE=1 each start a
# TMonitor thread, just as a shown bar does; an import, `tqdm.write` and `monitor_interval = 0` start none. It matters
# which class comes first: tqdm and then tqdm.auto have one thread, tqdm.auto and then tqdm have two. CPython 3.12 warns
# at the next os.fork() that the process has several threads.
#
# Why: `__new__` starts the thread, and only `__init__` looks whether the bar is disabled. The thread is an attribute of
# the bar's class: a subclass finds that of tqdm, but tqdm does not find that of a subclass. A fork inherits the
# attribute without the thread, and tqdm asks only whether somebody has told the thread to end.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check tqdm==4.70.1
cat >"$folder/watched.py" <<'PROGRAM'
import io
import os
import sys
import threading


def monitors():
    return sum(type(thread).__name__ == "TMonitor" for thread in threading.enumerate())


def run(kind, **options):
    for _ in kind(range(3), file=io.StringIO(), **options):
        pass


def fork():
    """Go on in the child; the parent ends as the child does."""
    if pid := os.fork():
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


expected, code = int(sys.argv[1]), sys.argv[2]
exec(code)
print(f"{monitors()} after: {code}", flush=True)
if monitors() != expected:
    sys.exit(f"changed: it was {expected}")
os._exit(0)
PROGRAM
after() { "$folder/env/bin/python" "$folder/watched.py" "$@"; }

after 0 "import tqdm; tqdm.tqdm.write('tqdm ' + tqdm.__version__)"
after 1 "from tqdm import tqdm; run(tqdm)"
after 1 "from tqdm import tqdm; run(tqdm, disable=True)"
after 1 "from tqdm import tqdm; run(tqdm, disable=None)"
TQDM_DISABLE=1 after 1 "from tqdm import tqdm; run(tqdm)"
after 0 "from tqdm import tqdm; tqdm.monitor_interval = 0; run(tqdm, disable=True)"
after 1 "from tqdm import auto, tqdm; run(tqdm, disable=True); run(auto.tqdm, disable=True)"
after 2 "from tqdm import auto, tqdm; run(auto.tqdm, disable=True); run(tqdm, disable=True)"
after 1 "from tqdm import tqdm; fork(); run(tqdm)"
after 0 "from tqdm import tqdm; run(tqdm, disable=True); fork(); run(tqdm)"
