#!/usr/bin/env bash
# In a fork, a subprocess.Popen of the parent says that its program has ended with 0, whether it still runs or has ended
# with 7, and then `terminate` and `kill` do nothing and raise nothing.
#
# Seen: CPython 3.11.7, 3.13.0, 3.14.10 and 3.15.2. In 3.15 wait(timeout) is right about a program that runs, and raises
# TimeoutExpired; `poll` and `wait` without a timeout are not.
#
# Why: only the parent of a program may ask how it ended. The fork is no parent, so waitpid fails with ECHILD, and Popen
# takes this for a program that is gone with an unknown end, which it writes as 0. Signals are sent after a `poll`, and
# not to what has ended. wait(timeout) of 3.15 first waits with a pidfd, which any process may do.
#
# Fails if this changes.
set -euo pipefail

find_python() {
    local candidate
    for candidate in $(type -ap "python$1" || true) /opt/*/usr/bin/"python$1" \
        ~/.local/share/uv/python/cpython-"$1"*/bin/"python$1"; do
        if [ -x "$candidate" ] && "$candidate" -c 'import subprocess' 2>/dev/null; then echo "$candidate"; return; fi
    done
    return 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/asks.py" <<'PROGRAM'
import os
import subprocess
import sys

QUESTIONS = {
    "poll()": lambda program: program.poll(),
    "wait()": lambda program: program.wait(),
    "wait(0.1)": lambda program: program.wait(0.1),
    "kill()": lambda program: program.kill(),
}


def ask_in_a_fork(program, question):
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = repr(question(program))
        except Exception as error:
            answer = type(error).__name__
        os.write(writes, answer.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


def ask_of_one_that_runs():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as program:
        said = {name: ask_in_a_fork(program, question) for name, question in QUESTIONS.items()}
        said["the parent's poll()"] = repr(program.poll())
    said["its end"] = repr(program.returncode)  # after its input has ended; -9 had it been killed
    return said


def ask_of_one_that_has_failed():
    program = subprocess.Popen(["sh", "-c", "exit 7"])
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
    said = {name: ask_in_a_fork(program, QUESTIONS[name]) for name in ("poll()", "wait()")}
    said["the parent's wait()"] = repr(program.wait())
    return said


runs, failed = ask_of_one_that_runs(), ask_of_one_that_has_failed()
print(sys.version.split()[0], "of one that runs:", runs)
print(sys.version.split()[0], "of one that ended with 7:", failed)
assert runs == {
    "poll()": "0",
    "wait()": "0",
    "wait(0.1)": "TimeoutExpired" if sys.version_info >= (3, 15) else "0",
    "kill()": "None",
    "the parent's poll()": "None",
    "its end": "0",
}
assert failed == {"poll()": "0", "wait()": "0", "the parent's wait()": "7"}
PROGRAM
python3 "$folder/asks.py"
for series in 3.13 3.14 3.15; do
    if other=$(find_python "$series"); then "$other" "$folder/asks.py"; fi
done
