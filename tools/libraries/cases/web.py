"""Frameworks of the web."""

from __future__ import annotations

from .case import case

CASES = [
    case(
        "django",
        "set up with SQLite",
        """
        import os, tempfile
        import django
        from django.conf import settings
        path = os.path.join(tempfile.mkdtemp(), "a.db")
        settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": path}})
        django.setup()
        from django.db import connection
        connection.cursor().execute("create table t (v)")
        """,
        """return connection.cursor().execute(f"select {n}").fetchone()[0]""",
    ),
    case(
        "fastapi",
        "an app",
        """
        from fastapi import FastAPI
        from fastapi.testclient import TestClient
        app = FastAPI()
        @app.get("/{n}")
        def read(n: int): return n
        """,
        """return TestClient(app).get(f"/{n}").json()""",
        "fastapi",
        "httpx",
    ),
    case(
        "pydantic",
        "a model",
        """
        from pydantic import BaseModel
        class M(BaseModel):
            a: int
        """,
        "return M(a=n).a",
    ),
    case(
        "jinja2",
        "a template",
        """
        from jinja2 import Template
        t = Template("{{ n }}")
        """,
        "return t.render(n=n)",
    ),
    case(
        "flask",
        "an app",
        """
        from flask import Flask
        app = Flask("a")
        @app.get("/<int:n>")
        def read(n):
            return {"n": n}
        app.test_client().get("/1")
        """,
        """return app.test_client().get(f"/{n}").json""",
    ),
    case(
        "flask-sqlalchemy",
        "an app with a database",
        """
        import os, tempfile
        from flask import Flask
        from flask_sqlalchemy import SQLAlchemy
        app = Flask("a")
        app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite:///" + os.path.join(tempfile.mkdtemp(), "a.db")
        db = SQLAlchemy(app)
        class Word(db.Model):
            id = db.Column(db.Integer, primary_key=True)
        with app.app_context():
            db.create_all()
            db.session.add(Word())
            db.session.commit()
        """,
        """
        with app.app_context():
            return Word.query.count() + n
        """,
        "flask-sqlalchemy",
    ),
    case(
        "starlette",
        "an app with a client whose loop runs in a thread",
        """
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route
        from starlette.testclient import TestClient
        def read(request):
            return PlainTextResponse(request.path_params["n"])
        client = TestClient(Starlette(routes=[Route("/{n}", read)]))
        client.__enter__()
        client.get("/1")
        """,
        """return client.get(f"/{n}").text""",
        "starlette",
        "httpx",
        in_greenlets=False,
    ),
    case(
        "litestar",
        "an app",
        """
        from litestar import Litestar, get
        from litestar.testing import TestClient
        @get("/{n:int}", sync_to_thread=True)
        def read(n: int) -> int:
            return n
        app = Litestar([read])
        """,
        """
        with TestClient(app) as client:
            return client.get(f"/{n}").json()
        """,
        in_greenlets=False,
    ),
    case(
        "falcon",
        "an app",
        """
        import falcon, falcon.testing
        class Read:
            def on_get(self, request, response, n):
                response.media = n
        app = falcon.App()
        app.add_route("/{n:int}", Read())
        client = falcon.testing.TestClient(app)
        """,
        """return client.simulate_get(f"/{n}").json""",
    ),
    case(
        "bottle",
        "an app",
        """
        import bottle
        app = bottle.Bottle()
        @app.get("/<n:int>")
        def read(n):
            return str(n)
        """,
        """return app.match({"PATH_INFO": f"/{n}", "REQUEST_METHOD": "GET"})[1]""",
    ),
    case(
        "sanic",
        "an app",
        """
        from sanic import Sanic, text
        app = Sanic("a")
        @app.get("/<n:int>")
        async def read(request, n):
            return text(str(n))
        """,
        """return app.url_for("read", n=n)""",
        in_greenlets=False,
    ),
    case(
        "tornado",
        "a server in a thread",
        """
        import asyncio, threading
        from tornado.web import Application, RequestHandler
        class Read(RequestHandler):
            def get(self, n):
                self.write(n)
        ports, ready = [], threading.Event()
        async def serve():
            server = Application([("/(.*)", Read)]).listen(0, "127.0.0.1")
            ports.extend(sock.getsockname()[1] for sock in server._sockets.values())
            ready.set()
            await asyncio.Event().wait()
        threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
        ready.wait(10)
        """,
        """
        import urllib.request
        return urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/{n}", timeout=10).read()
        """,
        in_greenlets=False,
    ),
    case(
        "uvicorn",
        "a server in a thread",
        """
        import threading, time
        import uvicorn
        async def app(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": scope["path"].encode()})
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
        threading.Thread(target=server.run, daemon=True).start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        """,
        """
        import urllib.request
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/{n}", timeout=10).read()
        """,
        in_greenlets=False,
    ),
    case(
        "werkzeug",
        "a server in a thread",
        """
        import logging, threading
        from werkzeug.serving import make_server
        from werkzeug.wrappers import Request, Response
        @Request.application
        def app(request):
            return Response(request.path)
        logging.getLogger("werkzeug").setLevel("ERROR")
        server = make_server("127.0.0.1", 0, app, threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        """,
        """
        import urllib.request
        return urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{n}", timeout=10).read()
        """,
    ),
    case(
        "strawberry",
        "a schema",
        """
        import strawberry
        @strawberry.type
        class Query:
            @strawberry.field
            def double(self, n: int) -> int:
                return 2 * n
        schema = strawberry.Schema(Query)
        """,
        """return schema.execute_sync("{ double(n: %d) }" % n).data""",
        "strawberry-graphql",
    ),
    case(
        "socketio",
        "a server",
        """
        import socketio
        server = socketio.Server(async_mode="threading")
        """,
        """return server.manager.is_connected(str(n), "/")""",
        "python-socketio",
    ),
]
