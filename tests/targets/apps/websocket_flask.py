"""WebSockets of Flask: by flask-sock and by Flask-SocketIO, each as its documentation has it."""

from __future__ import annotations

import sys
from typing import Any

from flask import Flask
from flask_sock import Sock
from flask_socketio import SocketIO, emit


def is_patched() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and monkey.is_module_patched("threading")


app = Flask(__name__)
sock = Sock(app)


@app.get("/")
def index() -> str:
    return "a page"


@sock.route("/echo")
def echo(client: Any) -> None:
    while True:
        client.send(client.receive())


@sock.route("/farewell")
def farewell(client: Any) -> None:
    client.send("bye")


talk = Flask("talk")
socketio = SocketIO(talk, async_mode="gevent" if is_patched() else "threading")


@socketio.on("say")
def say(data: Any) -> None:
    emit("said", data)
