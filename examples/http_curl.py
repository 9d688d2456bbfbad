"""Call tools with curl: any language that speaks HTTP can do the same.

Starts `clutch run` on the quickstart's config with its four pools, then shows each command and its answer.

Run: python examples/http_curl.py
"""

import contextlib
import http.client
import importlib.util
import json
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

QUICKSTART = Path(__file__).parent / "quickstart"
TEXT = QUICKSTART.parents[1] / "LICENSE-APACHE"
READY_SECONDS_MAX = 30
STOP_SECONDS_MAX = 15


def main() -> None:
    if importlib.util.find_spec("gevent") is None:
        print("skipped: the quickstart's greenlet pool needs gevent (pip install 'clutch[greenlet]')")
        return
    if shutil.which("curl") is None:
        print("skipped: this example needs curl (apt-get install curl)")
        return
    with clutch_run() as address:
        tools = f"http://{address}/pools/process/tools"
        curl(f"{tools}/primes", below=100)
        curl(f"{tools}/headings", path=str(TEXT))  # a stream: one JSON value on each line
        curl(f"{tools}/primes", below="many")  # arguments are checked against the type hints
        curl(f"{tools}/prime", below=100)  # no such tool: the problem document says so


def curl(url: str, **arguments: object) -> None:
    """Print the command, then what it printed."""
    header = "Content-Type: application/json"
    command = ["curl", "--silent", "--show-error", "--header", header, "--data", json.dumps(arguments), url]
    print("$", shlex.join(command))
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    print(answer.stdout.rstrip(), end="\n\n")


@contextlib.contextmanager
def clutch_run() -> Iterator[str]:
    """The address of `clutch run` on the quickstart's config, on free ports so that it runs beside anything."""
    http_port, admin_port = free_port(), free_port()
    binds = {"fronts.http.bind": f"127.0.0.1:{http_port}", "fronts.admin.bind": f"127.0.0.1:{admin_port}"}
    settings = [flag for place, bind in binds.items() for flag in ("--set", f"{place}={bind}")]
    command = [sys.executable, "-m", "clutch", "run", "--log-level", "warning", *settings, "clutch.toml"]
    server = subprocess.Popen(command, cwd=QUICKSTART)
    try:
        end = time.monotonic() + READY_SECONDS_MAX
        while not is_ready(admin_port):
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError("clutch run did not become ready")
            time.sleep(0.05)
        yield f"127.0.0.1:{http_port}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(STOP_SECONDS_MAX)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def is_ready(admin_port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", admin_port, timeout=5)
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    return False


if __name__ == "__main__":
    main()
