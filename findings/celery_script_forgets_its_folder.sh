#!/usr/bin/env bash
# `celery -A shop worker` finds the app in the folder that it is started in, and then forgets that folder: a task that
# imports a module which stands beside the app fails, in every pool. Started as `python -m celery -A shop worker`, the
# same worker runs the same task.
#
# Seen: celery 5.7.0, kombu 5.7.0, CPython 3.11.7, a broker of the transport filesystem, pools solo and prefork. By the
# script: ModuleNotFoundError: No module named 'prices'. By the module: the task's result.
#
# Why: Celery puts the folder on sys.path for as long as it imports the app, and takes it off again; `python -m` has it
# there for good. So what an app imports at its top is found, and what its tasks import later is not.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check celery==5.7.0 kombu==5.7.0
mkdir "$folder/project"
echo 'APPLE = 3' >"$folder/project/prices.py"
cat >"$folder/project/shop.py" <<'PROGRAM'
import os
from pathlib import Path

from celery import Celery

app = Celery("shop", broker="filesystem://")
queue = os.environ["QUEUE"]
app.conf.broker_transport_options = {"data_folder_in": queue, "data_folder_out": queue, "control_folder": queue}


@app.task(ignore_result=True)
def price():
    try:
        import prices

        said = f"{prices.APPLE}"
    except ImportError as error:
        said = f"{type(error).__name__}: {error}"
    Path(os.environ["SAID"]).write_text(said)
PROGRAM
cat >"$folder/seen.py" <<'PROGRAM'
import os
import subprocess
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
project, bin_ = folder / "project", Path(sys.executable).parent
ways = {"script": [str(bin_ / "celery")], "module": [sys.executable, "-m", "celery"]}


def said(how, pool):
    queue, word = folder / f"queue-{how}-{pool}", folder / f"said-{how}-{pool}"
    queue.mkdir()
    os.environ |= {"QUEUE": str(queue), "SAID": str(word)}
    send = [sys.executable, "-c", "import shop; shop.price.delay()"]
    subprocess.run(send, cwd=project, check=True)
    command = [*ways[how], "-A", "shop", "worker", "--pool", pool, "--concurrency", "1", "--loglevel", "ERROR"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    worker = subprocess.Popen([*command, "--without-gossip", "--without-mingle"], cwd=project, **quiet)
    end = time.monotonic() + 60
    while not (word.exists() and word.read_text()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)
    worker.terminate()
    worker.wait()
    return word.read_text()


found = {(how, pool): said(how, pool) for how in ways for pool in ("solo", "prefork")}
for way, words in found.items():
    print(*way, words, sep="\t")
missing = "ModuleNotFoundError: No module named 'prices'"
assert {words for (how, _), words in found.items() if how == "script"} == {missing}, "changed"
assert {words for (how, _), words in found.items() if how == "module"} == {"3"}, "changed"
PROGRAM
"$folder/env/bin/python" "$folder/seen.py" "$folder"
