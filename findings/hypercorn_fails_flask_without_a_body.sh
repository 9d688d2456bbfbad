#!/usr/bin/env bash
# hypercorn answers each HEAD of a Flask application with 500, and each response of 204 and 304, too, after the
# application has done its work.
#
# Seen: hypercorn 0.18.0 with `wsgi:page:application`, Flask 3.1.3, Werkzeug 3.1.9, CPython 3.11.7: GET is fine; HEAD
# of the same page, a DELETE that returns 204, and a GET with the right If-None-Match give 500 instead of 200, 204 and
# 304. The item of that DELETE is gone. waitress 3.0.2 answers all of them as asked.
#
# Why: hypercorn sends the status and the headers with the first chunk of the body, and never if there is none.
# Werkzeug gives an empty tuple as the body of what may have none, which PEP 3333 allows; so a browser sees 500 when
# it asks again for what it has, and a health check by HEAD fails for good. With a body of one chunk all is well.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    hypercorn==0.18.0 waitress==3.0.2 Flask==3.1.3 Werkzeug==3.1.9
cat >"$folder/page.py" <<'PROGRAM'
from flask import Flask, make_response, request

application = Flask(__name__)
items = ["one", "two"]


@application.get("/")
def show():
    response = make_response(f"{len(items)} items")
    response.add_etag()
    return response.make_conditional(request)


@application.delete("/")
def delete():
    items.pop()
    return "", 204
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


def ask(port, method, **headers):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    client.request(method, "/", headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = client.getresponse()
    body = answer.read().decode()
    client.close()
    return answer, body


def ask_all(command):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program, *arguments = command.format(address=f"127.0.0.1:{port}").split()
    environment = os.environ | {"PYTHONPATH": str(folder)}
    with open(folder / "log", "a") as log, subprocess.Popen(
        [str(folder / "env/bin" / program), *arguments], env=environment, stdout=log, stderr=log, start_new_session=True
    ) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(ConnectionRefusedError):
                    first, _ = ask(port, "GET")
                    break
                time.sleep(0.1)
            else:
                sys.exit(f"{program} ended: {(folder / 'log').read_text()[-1000:]}")
            statuses = {"GET": first.status, "HEAD": ask(port, "HEAD")[0].status}
            statuses["If-None-Match"] = ask(port, "GET", If_None_Match=first.headers["ETag"])[0].status
            statuses["DELETE"] = ask(port, "DELETE")[0].status
            return statuses, ask(port, "GET")[1]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


hypercorn = ask_all("hypercorn --bind {address} wsgi:page:application")
waitress = ask_all("waitress-serve --listen={address} page:application")
print("hypercorn:", *hypercorn)
print("waitress: ", *waitress)
assert waitress == ({"GET": 200, "HEAD": 200, "If-None-Match": 304, "DELETE": 204}, "1 items")
assert hypercorn == ({"GET": 200, "HEAD": 500, "If-None-Match": 500, "DELETE": 500}, "1 items"), "changed"
PROGRAM
"$folder/env/bin/python" "$folder/asks.py" "$folder"
