"""A Flask app: WSGI, with blocking views, an upload that is read as it comes, and a response in parts.

Nothing in it knows of Clutch. Without letters each worker runs one request at a time; with `--threads 8` eight, with
`-k gevent` as many as 256.

Run: cd examples && clutch serve serve_flask:app
Then: curl http://127.0.0.1:8000/split/90/4
"""

import hashlib
from collections.abc import Iterator

from flask import Flask, Response, request

PIECE_BYTES = 64 << 10

app = Flask(__name__)


@app.get("/")
def greet() -> str:
    return "Hello from Flask\n"


@app.get("/split/<int:total>/<int:people>")
def split(total: int, people: int) -> dict[str, float]:
    """Nobody to share: an exception, and so a 500."""
    return {"each": total / people}


@app.post("/digest")
def digest() -> dict[str, int | str]:
    """Reads the body as it comes, however long it is."""
    found, size = hashlib.sha256(), 0
    while piece := request.stream.read(PIECE_BYTES):
        found.update(piece)
        size += len(piece)
    return {"bytes": size, "sha256": found.hexdigest()}


@app.get("/countdown/<int:n>")
def countdown(n: int) -> Response:
    def lines() -> Iterator[str]:
        for left in range(n, 0, -1):
            yield f"{left}\n"

    return Response(lines(), mimetype="text/plain")
