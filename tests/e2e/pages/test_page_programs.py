"""Programs of the pages that serve, or that somebody has to talk to while they run."""

from __future__ import annotations

import re
import signal
import socket
import sys
from pathlib import Path

from support.clutch_process import Dispatcher, Server, soon
from support.pages import ROOT, blocks, write_files
from support.script_process import Script
from support.serve_process import ANY_PORT, Serving

LOGGING = ROOT / "docs/logging.md"
CONFIG = '[pools.api]\ntarget = "{target}"\nworkers = 1\n[fronts.http]\nbind = "127.0.0.1:0"\n'


def block(page: str, beginning: str) -> str:
    (found,) = (text for text in blocks(ROOT / page, "python") if text.startswith(beginning))
    return found


def test_an_app_served_from_a_program(tmp_path: Path) -> None:
    text = block("docs/serve/quickstart.md", "# main.py")
    assert "port=8000" in text
    (tmp_path / "main.py").write_text(text.replace("port=8000", "port=0"))
    with Dispatcher(tmp_path, [sys.executable, "main.py"]) as program:
        program.wait_ready("web")
        program.interrupt()
        assert program.wait() == 0


def test_an_app_served_within_a_test(tmp_path: Path) -> None:
    app = block("docs/serve/quickstart.md", "# web.py")
    (tmp_path / "main.py").write_text(app)
    lines = ["import clutch, httpx", "", block("docs/serve/quickstart.md", "with clutch.serving")]
    asked = re.sub(r"(?m)^    (httpx\.get.*)$", r"    print(\1.text)", "\n".join(lines))
    with Script(tmp_path, asked) as script:
        assert script.hear('"hello"')
        assert script.process.wait(30) == 0


def test_a_handler_of_connections(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(block("docs/tcp.md", "def handle(conn)"))
    with Serving(tmp_path, "--tcp", "echo:handle", "-w", "1", "-b", ANY_PORT) as serving:
        host, port = serving.err.wait(r"tcp: (?:\w+://)?([\d.]+):(\d+)").groups()
        with socket.create_connection((host, int(port)), timeout=30) as peer:
            peer.sendall(b"hello")
            assert peer.recv(100) == b"hello"


def test_the_request_id_is_in_the_log_of_a_tool(tmp_path: Path) -> None:
    write_files(LOGGING, tmp_path)
    with Server(tmp_path, CONFIG.format(target="ids")) as server:
        assert server.call("total", {"prices": [1, 2]}, X_Request_Id="abc-1").result == 3
        server.err.wait(r"^\[api/0\] summing up request_id=abc-1$")


def test_the_tool_of_http_md_knows_its_request(tmp_path: Path) -> None:
    head = "import logging, clutch\nlogging.basicConfig(level='INFO', format='%(message)s of %(request_id)s')\n"
    tool = block("docs/http.md", "@clutch.tool\ndef total")
    (tmp_path / "shop.py").write_text(head + "log = logging.getLogger()\n" + tool)
    with Server(tmp_path, CONFIG.format(target="shop")) as server:
        assert server.call("total", {"prices": [1, 2]}, X_Request_Id="abc-2").result == 3
        server.err.wait(r"^\[api/0\] summing up of abc-2$")


def test_a_signal_shows_what_a_program_runs(tmp_path: Path) -> None:
    with Script(tmp_path, block("docs/debugging.md", "# watched.py")) as script:
        assert int(script.hear(r"kill -USR1 (\d+)")) == script.process.pid

        def shows_the_place() -> bool:
            script.process.send_signal(signal.SIGUSR1)
            shown = script.out.text
            return "'what': 'spin'" in shown and re.search(r"line \d+,? in spin", shown) is not None

        soon(shows_the_place)  # the call may not have begun yet
