#!/usr/bin/env bash
# After a read that was cut short, GitPython gives each commit the message of the one that was asked for before it, and
# raises nothing: in the same process after a signal handler that raised, and in a fork after the end of another fork.
#
# Seen: GitPython 3.2.1, git 2.39.5, CPython 3.11.7. The commits have their own hexsha, and the message and the author
# of another.
#
# Why: a Repo asks one `git cat-file --batch` process, which answers in the order of the questions; all forks have its
# pipes. If nobody reads an answer, because of a deadline by setitimer, Ctrl+C in a notebook or a worker that is killed,
# the next one to ask does. The answer names its object, and a Commit does not look at that name.
#
# In this script git is stopped while the question is in its pipe, as a stand-in for a git that takes long.
#
# Fails if this changes. Exit 2: there is no git here.
set -euo pipefail

command -v git >/dev/null || { echo "no git here"; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check GitPython==3.2.1 gitdb==4.0.12 smmap==5.0.3
cat >"$folder/reads.py" <<'PROGRAM'
import array
import fcntl
import os
import signal
import sys
import termios
import threading
import time

import git

MESSAGES = ["zero", "one", "two", "three"]


def open_commits(folder):
    repo = git.Repo.init(folder)
    made = []
    for message in MESSAGES:
        author = git.Actor("author of " + message, "somebody@example.org")
        made.append(repo.index.commit(message, author=author, committer=author).hexsha)
    repo = git.Repo(folder)
    commits = [repo.commit(hexsha) for hexsha in made]
    assert commits[0].message == "zero"  # starts cat-file
    return repo.git.cat_file_all.proc, commits


def wait_for_question(cat_file):
    waiting = array.array("i", [0])
    while not waiting[0]:
        time.sleep(0.01)
        fcntl.ioctl(cat_file.stdin, termios.FIONREAD, waiting)


def cut_short_by_a_signal(cat_file, commit):
    def interrupt():
        wait_for_question(cat_file)
        os.kill(os.getpid(), signal.SIGUSR1)

    def raises(*_):
        raise TimeoutError

    signal.signal(signal.SIGUSR1, raises)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        commit.message
    except TimeoutError:
        thread.join()
    else:
        sys.exit("changed: read although git is stopped")


def cut_short_by_the_end_of_a_fork(cat_file, commit):
    pid = os.fork()
    if pid == 0:
        commit.message
        os._exit(0)
    wait_for_question(cat_file)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if pid := os.fork():  # go on in the next fork
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


cut_short = {"signal": cut_short_by_a_signal, "fork": cut_short_by_the_end_of_a_fork}[sys.argv[2]]
cat_file, commits = open_commits(sys.argv[1])
os.kill(cat_file.pid, signal.SIGSTOP)
os.waitid(os.P_PID, cat_file.pid, os.WSTOPPED | os.WNOWAIT)
try:
    cut_short(cat_file, commits[1])
finally:
    os.kill(cat_file.pid, signal.SIGCONT)
print(f"GitPython {git.__version__}, after a read cut short by a {sys.argv[2]}:", flush=True)
seen = []
for commit in commits[2:]:
    seen.append((commit.repo.git.log("-1", "--format=%s", commit.hexsha), commit.message, commit.author.name))
    print("  git log says {!r}, GitPython says {!r} by {!r}".format(*seen[-1]), flush=True)
assert seen == [("two", "one", "author of one"), ("three", "two", "author of two")]
PROGRAM
for kind in signal fork; do
    GIT_CONFIG_GLOBAL=/dev/null timeout 60 "$folder/env/bin/python" "$folder/reads.py" "$folder/$kind" "$kind"
done
