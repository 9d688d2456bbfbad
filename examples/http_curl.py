"""Call tools with curl: any language that speaks HTTP can do the same.

Starts `clutch run` on the quickstart's config with its four pools, then shows each command and its answer.

Run: python examples/http_curl.py
"""

import importlib.util
import json
import shlex
import shutil
import subprocess

from demonstration.servers import clutch_run
from demonstration.work import TEXT


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


if __name__ == "__main__":
    main()
