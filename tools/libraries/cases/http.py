"""Clients of HTTP and what is like it."""

from __future__ import annotations

from .case import STANDARD, case

CASES = [
    case(
        "httpx",
        "a client with a kept connection",
        """
        import os, httpx
        client = httpx.Client(base_url=os.environ["HTTP_URL"])
        client.get("/first")
        """,
        """return [client.get(f"/{n}-{m}").text for m in range(30)]""",
        server="http",
    ),
    case(
        "requests",
        "a session with a kept connection",
        """
        import os, requests
        session = requests.Session()
        url = os.environ["HTTP_URL"]
        session.get(url + "/first")
        """,
        """return [session.get(f"{url}/{n}-{m}").text for m in range(30)]""",
        server="http",
    ),
    case(
        "urllib3",
        "a pool with a kept connection",
        """
        import os, urllib3
        http = urllib3.PoolManager()
        url = os.environ["HTTP_URL"]
        http.request("GET", url + "/first")
        """,
        """return [http.request("GET", f"{url}/{n}-{m}").data for m in range(30)]""",
        server="http",
    ),
    case(
        "aiohttp",
        "only imported",
        """
        import os, asyncio, aiohttp
        url = os.environ["HTTP_URL"]
        """,
        """
        async def main():
            async with aiohttp.ClientSession() as s:
                async with s.get(f"{url}/{n}") as r:
                    return await r.text()
        return asyncio.run(main())
        """,
        server="http",
        in_greenlets=False,
    ),
    case(
        "niquests",
        "a session with a kept connection",
        """
        import os, niquests
        session = niquests.Session()
        url = os.environ["HTTP_URL"]
        session.get(url + "/first")
        """,
        """return [session.get(f"{url}/{n}-{m}").text for m in range(30)]""",
        server="http",
    ),
    case(
        "pycurl",
        "a handle with a kept connection",
        """
        import io, os, pycurl
        handle = pycurl.Curl()
        url = os.environ["HTTP_URL"]
        def get(path):
            out = io.BytesIO()
            handle.setopt(pycurl.URL, url + path)
            handle.setopt(pycurl.WRITEDATA, out)
            handle.perform()
            return out.getvalue()
        get("/first")
        """,
        """return [get(f"/{n}-{m}") for m in range(30)]""",
        server="http",
    ),
    case(
        "fsspec-http",
        "a file system over HTTP",
        """
        import os, fsspec
        fs = fsspec.filesystem("http")
        url = os.environ["HTTP_URL"]
        fs.cat(url + "/first")
        """,
        """return fs.cat(f"{url}/{n}")""",
        "fsspec[http]",
        server="http",
        in_greenlets=False,
    ),
    case(
        "httpx2",
        "a client with a kept connection",
        """
        import os
        import httpx2
        client = httpx2.Client(base_url=os.environ["HTTP_URL"])
        client.get("/first")
        """,
        """return [client.get(f"/{n}-{m}").text for m in range(30)]""",
        server="http",
    ),
    case(
        "httpx-async",
        "an asynchronous client with a kept connection",
        """
        import asyncio, os
        import httpx
        loop = asyncio.new_event_loop()
        client = httpx.AsyncClient(base_url=os.environ["HTTP_URL"])
        loop.run_until_complete(client.get("/first"))
        """,
        """return [loop.run_until_complete(client.get(f"/{n}-{m}")).text for m in range(30)]""",
        "httpx",
        server="http",
        in_greenlets=False,
    ),
    case(
        "aiohttp-session",
        "a session with a kept connection",
        """
        import asyncio, os
        import aiohttp
        url = os.environ["HTTP_URL"]
        loop = asyncio.new_event_loop()
        async def opened():
            return aiohttp.ClientSession()
        session = loop.run_until_complete(opened())
        async def get(path):
            async with session.get(url + path) as answer:
                return await answer.text()
        loop.run_until_complete(get("/first"))
        """,
        """return [loop.run_until_complete(get(f"/{n}-{m}")) for m in range(30)]""",
        "aiohttp",
        server="http",
        in_greenlets=False,
    ),
    case(
        "http-client",
        "a kept connection",
        """
        import http.client, os
        from urllib.parse import urlsplit
        connection = http.client.HTTPConnection(urlsplit(os.environ["HTTP_URL"]).netloc)
        def get(path):
            connection.request("GET", path)
            return connection.getresponse().read()
        get("/first")
        """,
        """return [get(f"/{n}-{m}") for m in range(30)]""",
        STANDARD,
        server="http",
    ),
    case(
        "httplib2",
        "a client with a kept connection",
        """
        import os
        import httplib2
        http = httplib2.Http()
        url = os.environ["HTTP_URL"]
        http.request(url + "/first")
        """,
        """return [http.request(f"{url}/{n}-{m}")[1] for m in range(30)]""",
        server="http",
    ),
    case(
        "requests-cache",
        "a session that keeps answers in SQLite",
        """
        import os, tempfile
        import requests_cache
        session = requests_cache.CachedSession(os.path.join(tempfile.mkdtemp(), "a"))
        url = os.environ["HTTP_URL"]
        session.get(url + "/first")
        """,
        """return [session.get(f"{url}/{n}-{m % 10}").text for m in range(20)]""",
        server="http",
    ),
    case(
        "requests-futures",
        "a session with threads",
        """
        import os
        from requests_futures.sessions import FuturesSession
        session = FuturesSession(max_workers=2)
        url = os.environ["HTTP_URL"]
        session.get(url + "/first").result()
        """,
        """return [session.get(f"{url}/{n}-{m}").result(10).text for m in range(30)]""",
        server="http",
    ),
    case(
        "grequests",
        "requests, patched for gevent",
        """
        import os
        import grequests
        url = os.environ["HTTP_URL"]
        grequests.map([grequests.get(url + "/first")])
        """,
        """return [answer.text for answer in grequests.map([grequests.get(f"{url}/{n}-{m}") for m in range(5)])]""",
        server="http",
    ),
    case(
        "tornado-client",
        "a client in a loop that has run",
        """
        import asyncio, os
        from tornado.httpclient import AsyncHTTPClient
        loop = asyncio.new_event_loop()
        url = os.environ["HTTP_URL"]
        async def get(path):
            return (await AsyncHTTPClient().fetch(url + path)).body
        loop.run_until_complete(get("/first"))
        """,
        """return [loop.run_until_complete(get(f"/{n}-{m}")) for m in range(30)]""",
        "tornado",
        server="http",
        in_greenlets=False,
    ),
    case(
        "curl-cffi",
        "a session with a kept connection",
        """
        import os
        from curl_cffi import requests
        session = requests.Session()
        url = os.environ["HTTP_URL"]
        session.get(url + "/first")
        """,
        """return [session.get(f"{url}/{n}-{m}").text for m in range(30)]""",
        server="http",
    ),
    case(
        "primp",
        "a client with a kept connection",
        """
        import os
        import primp
        client = primp.Client()
        url = os.environ["HTTP_URL"]
        client.get(url + "/first")
        """,
        """return [client.get(f"{url}/{n}-{m}").text for m in range(30)]""",
        server="http",
    ),
    case(
        "websockets",
        "a server in a thread, and a connection to it",
        """
        import threading
        from websockets.sync.client import connect
        from websockets.sync.server import serve
        def echo(link):
            for message in link:
                link.send(message)
        server = serve(echo, "127.0.0.1", 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        link = connect(f"ws://127.0.0.1:{server.socket.getsockname()[1]}")
        def ask(n):
            link.send(str(n))
            return link.recv(10)
        ask(1)
        """,
        "return [ask(m) for m in range(n, n + 30)]",
    ),
]
