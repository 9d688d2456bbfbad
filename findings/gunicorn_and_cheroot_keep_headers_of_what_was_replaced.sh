#!/usr/bin/env bash
# An error page under gunicorn or cheroot has the headers of the page that it replaces besides its own: it may be
# stored for a year.
#
# Seen: gunicorn 27.0.1 (sync and gthread) and cheroot 11.1.2, CPython 3.11.7: a WSGI application calls start_response
# with `Cache-Control: public, max-age=31536000` and `Content-Type: text/html`, fails before its first byte, and calls
# it again with 500, `Content-Type: text/plain` and exc_info. The 500 goes out with Cache-Control and both types, the
# old one first. Under waitress 3.0.2, granian 2.8.9 and hypercorn 0.18.0 it has its own only.
#
# Why: PEP 3333 has a second start_response replace the status and the headers while nothing is sent, which is what
# exc_info is for. These two replace the status, and append the headers to the list that is there.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    gunicorn==27.0.1 cheroot==11.1.2 waitress==3.0.2 granian==2.8.9 hypercorn==0.18.0
cat >"$folder/page.py" <<'PROGRAM'
import sys


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/html"), ("Cache-Control", "public, max-age=31536000")])
    try:
        raise LookupError("no such page, as it turns out")
    except LookupError:
        start_response("500 Internal Server Error", [("Content-Type", "text/plain")], sys.exc_info())
        return [b"an error"]
PROGRAM
cat >"$folder/asks.py" <<'PROGRAM'
import contextlib
import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

folder = pathlib.Path(sys.argv[1])
SERVERS = {
    "gunicorn sync": "gunicorn --no-control-socket --bind {address} page:application",
    "gunicorn gthread": "gunicorn --no-control-socket -k gthread --bind {address} page:application",
    "cheroot": "cheroot --bind {address} page:application",
    "waitress": "waitress-serve --listen={address} page:application",
    "granian": "granian --interface wsgi --host 127.0.0.1 --port {port} page:application",
    "hypercorn": "hypercorn --bind {address} wsgi:page:application",
}


def ask(command):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program, *arguments = command.format(port=port, address=f"127.0.0.1:{port}").split()
    environment = os.environ | {"PYTHONPATH": str(folder)}
    with open(folder / "log", "a") as log, subprocess.Popen(
        [str(folder / "env/bin" / program), *arguments], env=environment, stdout=log, stderr=log, start_new_session=True
    ) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(ConnectionRefusedError):
                    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                    client.request("GET", "/")
                    answer = client.getresponse()
                    answer.read()
                    client.close()
                    return answer.status, answer.headers.get_all("Content-Type"), answer.headers["Cache-Control"]
                time.sleep(0.1)
            sys.exit(f"{program} ended: {(folder / 'log').read_text()[-1000:]}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


BOTH, OWN = (500, ["text/html", "text/plain"], "public, max-age=31536000"), (500, ["text/plain"], None)
answers = {}
for name, command in SERVERS.items():
    answers[name] = ask(command)
    print(f"{name}:", *answers[name])
for name, answer in answers.items():
    assert answer == (BOTH if name.startswith(("gunicorn", "cheroot")) else OWN), f"changed: {name}"
PROGRAM
"$folder/env/bin/python" "$folder/asks.py" "$folder"
