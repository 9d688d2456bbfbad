"""A FastAPI app as people write them: state from a lifespan, both kinds of endpoint, an upload, events, a WebSocket.

Nothing in it knows of Clutch. `async def` endpoints run on the event loop of a worker, `def` ones in threads beside it.

Run: cd examples && clutch serve serve_fastapi:app
Then open http://127.0.0.1:8000 in a browser, or: curl http://127.0.0.1:8000/split/90/4
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from fastapi import FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import HTMLResponse, StreamingResponse
from fastapi.sse import EventSourceResponse

PAGE = """<!doctype html>
<html lang="en">
<title>Echo</title>
<h1>Echo</h1>
<p>The server is <b id="state">far away</b>.</p>
<form><input id="text" autofocus autocomplete="off" placeholder="Say something"></form>
<ul id="log"></ul>
<script>
  const at = (id) => document.getElementById(id);
  const socket = new WebSocket(location.origin.replace(/^http/, "ws") + "/echo");
  socket.onopen = () => { at("state").textContent = "listening"; };
  socket.onclose = (event) => { at("state").textContent = `gone (${event.code})`; };
  socket.onmessage = (event) => {
    const line = document.createElement("li");
    line.textContent = event.data;
    at("log").append(line);
  };
  document.forms[0].onsubmit = (event) => {
    event.preventDefault();
    socket.send(at("text").value);
    at("text").value = "";
  };
</script>
</html>
"""


class State(TypedDict):
    stock: dict[str, int]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[State]:
    """Once in each worker: what it yields is the state of every request there. Connections to databases go here."""
    yield {"stock": {"tea": 3, "coffee": 6}}


app = FastAPI(lifespan=lifespan)


@app.get("/", response_class=HTMLResponse)
async def page() -> str:
    return PAGE


@app.get("/stock/{name}")
async def stock(name: str, request: Request) -> int:
    found: int | None = request.state.stock.get(name)
    if found is None:
        raise HTTPException(404, f"no {name} here")
    return found


@app.get("/split/{total}/{people}")
def split(total: int, people: int) -> dict[str, float]:
    """Blocking code belongs into a `def`: it runs in a thread, and the event loop goes on. (Nobody to share: a 500.)"""
    return {"each": total / people}


@app.post("/digest")
async def digest(request: Request) -> dict[str, int | str]:
    """Reads the body as it comes, however long it is."""
    found, size = hashlib.sha256(), 0
    async for piece in request.stream():
        found.update(piece)
        size += len(piece)
    return {"bytes": size, "sha256": found.hexdigest()}


@app.get("/countdown/{n}")
async def countdown(n: int) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        for left in range(n, 0, -1):
            yield f"{left}\n"
            await asyncio.sleep(0)

    return StreamingResponse(lines(), media_type="text/plain")


@app.get("/events", response_class=EventSourceResponse)
async def events() -> AsyncIterator[dict[str, int]]:
    """Server-sent events, until the client has gone: `new EventSource("/events")` in a page."""
    tick = 0
    while True:
        yield {"tick": tick}
        tick += 1
        await asyncio.sleep(1)


@app.websocket("/echo")
async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(f"You said: {text}")
