#!/usr/bin/env bash
# A HEAD of a file that BlackSheep's `serve_files` serves is answered with two Content-Lengths that differ: that of the
# file, and 0. HTTP has a client or proxy that sees them refuse the response (RFC 9112, 6.3). A GET has one.
#
# Seen: blacksheep 2.6.4 on uvicorn 0.54.0 with httptools, CPython 3.11.7: a file of 1,000 bytes has the lengths 1000 and
# 0 for HEAD, and 1000 alone for GET. uvicorn sends what the app gives it.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server"; rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
bin="$folder/env/bin"
"$bin/python" -m pip install --quiet --disable-pip-version-check blacksheep==2.6.4 uvicorn==0.54.0 httptools==0.9.0
cd "$folder"
mkdir files
head -c 1000 /dev/zero | tr '\0' x >files/page.txt
cat >app.py <<'PROGRAM'
from blacksheep import Application

app = Application()
app.serve_files("files")
PROGRAM
"$bin/uvicorn" app:app --http httptools --uds "$folder/socket" --log-level warning &
server=$!

lengths() {
  "$bin/python" - "$folder/socket" "$1" <<'PROGRAM'
import socket
import sys
import time

path, method = sys.argv[1:]
until = time.monotonic() + 30
while True:
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        break
    except OSError:
        if time.monotonic() > until:
            raise
        time.sleep(0.1)
connection.sendall(f"{method} /page.txt HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
answer = b""
while more := connection.recv(1 << 16):
    answer += more
head = answer.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
print(head[0].split()[1], *sorted(line.split()[1] for line in head if line.startswith("content-length:")))
PROGRAM
}

head=$(lengths HEAD) get=$(lengths GET)
echo "HEAD: status and lengths $head"
echo "GET: status and lengths $get"
[[ $head == "200 0 1000" && $get == "200 1000" ]] || { echo changed; exit 1; }
