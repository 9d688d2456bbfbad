"""What a developer sees: `--reload`, a debugger at the terminal, errors in the browser, a line for each request."""

from __future__ import annotations

import os
import re
import signal
import termios
from pathlib import Path

import pytest

from support.clutch_process import COMMAND, FRONTS, Server, environment
from support.rendezvous import Rendezvous
from support.serve_process import ANY_PORT, Serving, curl
from support.terminal import Terminal, asking

LOOK = "print('before the prompt')\n    x = 41\n    breakpoint()\n    x += 1"

ASGI = """
from support.rendezvous import meet

async def app(scope, receive, send):
    path = scope["path"]
    {look}
    await send({{"type": "http.response.start", "status": 200}})
    await send({{"type": "http.response.body", "body": b"{word} %d" % x}})
"""
WSGI = """
def app(environ, start_response):
    {look}
    start_response("200 OK", [])
    return [b"{word} %d" % x]
"""
TOOLS = """
from clutch import tool

@tool
def look() -> str:
    {look}
    return "{word} %d" % x
"""
NOTHING = "x = 41"
PROMPT = r"-> .*(x \+= 1|set_trace\(\)|breakpoint\(\))\n\(Pdb\) "
"""From Python 3.13 on the debugger stops at the call itself."""


def write(folder: Path, text: str, look: str = NOTHING, word: str = "one", name: str = "web.py") -> None:
    """As editors do: the file is never seen half written."""
    (folder / f"{name}.new").write_text(text.format(look=look, word=word))
    (folder / f"{name}.new").rename(folder / name)


def serve(folder: Path, *flags: str) -> Terminal:
    return Terminal(folder, [*COMMAND, "serve", "web:app", "--reload", "-b", ANY_PORT, *flags])


def url_of(terminal: Terminal) -> str:
    """Once it answers, and follows what is saved."""
    shown = "(?=(?s:.*)watching)" if "--reload" in terminal.process.args else ""
    return terminal.wait(rf"(?=(?s:.*)pool web: ready){shown}(?s:.*)serve: (http://\S+)")[1]


def look_around(terminal: Terminal) -> None:
    """At the prompt."""
    terminal.wait(rf"before the prompt\n(?s:.*){PROMPT}")
    terminal.type("p x\n")
    terminal.wait(r"\n41\n\(Pdb\) ")


# ---- the debugger


@pytest.mark.parametrize("flags", [[], ["-k", "process"], ["--threads", "2"], ["-k", "gevent"]], ids=" ".join)
@pytest.mark.parametrize("text", [ASGI, WSGI], ids=["asgi", "wsgi"])
def test_breakpoint_asks_at_the_terminal(tmp_path: Path, text: str, flags: list[str]) -> None:
    if "gevent" in flags:
        pytest.importorskip("gevent")
    write(tmp_path, text, LOOK)
    with serve(tmp_path, *flags) as terminal:
        url = url_of(terminal)
        with asking(url) as answer:
            look_around(terminal)
            terminal.interrupt()
            terminal.type("\n")  # readline does not hear of a signal that comes just before it waits
            terminal.wait(r"KeyboardInterrupt|goes on|41")
            terminal.type("p 'still there'\n")
            terminal.wait(r"'still there'\n\(Pdb\) ")
            terminal.type("n\n")
            terminal.wait(r"\(Pdb\) ")
            terminal.type("c\n")
            assert answer.read() == "one 42\n200"
        terminal.wait(r'127.0.0.1 "GET / HTTP/1.1" 200 [\d.]+ ms\n')
        assert terminal.foreground() == terminal.process.pid
        terminal.interrupt()
        terminal.wait("stopping")
        assert terminal.process.wait(30) == 0


def test_breakpoint_in_a_tool(tmp_path: Path) -> None:
    write(tmp_path, TOOLS, LOOK.replace("breakpoint()", "import pdb; pdb.set_trace()"), name="tools.py")
    (tmp_path / "clutch.toml").write_text(f'[pools.api]\ntarget = "tools"\n{FRONTS}')
    with Terminal(tmp_path, [*COMMAND, "run", "--reload"]) as terminal:
        url = terminal.wait(r"http: (http://\S+)")[1]
        terminal.wait("pool api: ready")
        json = ("-H", "content-type: application/json", "-H", "clutch-timeout: 300ms", "-d", "{}")
        with asking(f"{url}/pools/api/tools/look", *json) as answer:
            look_around(terminal)
            with asking(f"{url}/pools/api/tools/look", *json) as second:
                terminal.type("import time; time.sleep(0.5)\n")  # longer than the timeout of both
                terminal.wait(r"\(Pdb\) ")
                terminal.type("c\n")
                assert answer.read() == '{"result":"one 42"}\n200'
                look_around(terminal)
                terminal.type("c\n")
                assert second.read() == '{"result":"one 42"}\n200'


def test_nothing_is_late_at_the_prompt(tmp_path: Path) -> None:
    write(tmp_path, ASGI, LOOK)
    with serve(tmp_path, "--timeout", "1", "--graceful-timeout", "1") as terminal:
        with asking(url_of(terminal)) as answer:
            look_around(terminal)
            terminal.type("import time; time.sleep(3)\n")  # longer than both
            terminal.wait(r"\(Pdb\) ")
            terminal.type("c\n")
            assert answer.read() == "one 42\n200"
        assert "Interrupted" not in terminal.text


def test_code_that_is_saved_at_the_prompt_answers_beside_it(tmp_path: Path) -> None:
    write(tmp_path, ASGI, LOOK)
    with serve(tmp_path, "--graceful-timeout", "1") as terminal:
        url = url_of(terminal)
        with asking(url) as answer:
            look_around(terminal)
            write(tmp_path, ASGI, word="two")
            terminal.wait("is in the debugger and is replaced")
            terminal.wait("pool web: reloaded")
            assert curl(url).stdout == b"two 41"
            terminal.type("import time; time.sleep(2)\n")  # longer than the grace
            terminal.wait(r"\(Pdb\) ")
            assert '"GET / HTTP/1.1" 200' not in terminal.text, "the line would land in what is typed"
            terminal.type("c\n")
            assert answer.read() == "one 42\n200"
        terminal.wait('"GET / HTTP/1.1" 200')


def test_two_prompts_wait_for_each_other(tmp_path: Path) -> None:
    write(tmp_path, WSGI, LOOK)
    # The lines of one request may come while the prompt of the other is written.
    with serve(tmp_path, "--threads", "2", "--no-access-log") as terminal:
        url = url_of(terminal)
        with asking(url) as first, asking(url) as second:
            for _ in range(2):
                terminal.wait(PROMPT.replace(r"\n\(", r"(?:before the prompt|\n)+\("))
                terminal.type("c\n")
            assert first.read() == second.read() == "one 42\n200"


def test_a_worker_that_is_killed_at_the_prompt_gives_the_terminal_back(tmp_path: Path) -> None:
    write(tmp_path, ASGI, LOOK)
    with serve(tmp_path) as terminal:
        modes = termios.tcgetattr(terminal.descriptor)
        with asking(url_of(terminal)) as answer:
            look_around(terminal)
            os.kill(terminal.foreground(), signal.SIGKILL)
            assert answer.read().endswith("502")
        assert terminal.foreground() == terminal.process.pid
        assert termios.tcgetattr(terminal.descriptor) == modes
        terminal.wait('"GET / HTTP/1.1" 502')


@pytest.mark.parametrize("times", [1, 2])
def test_a_server_that_is_ended_at_the_prompt_leaves_the_terminal_as_it_was(tmp_path: Path, times: int) -> None:
    write(tmp_path, ASGI, LOOK)
    with serve(tmp_path, "--graceful-timeout", "1" if times == 1 else "30") as terminal:
        modes = termios.tcgetattr(terminal.descriptor)
        with asking(url_of(terminal)):
            look_around(terminal)
            assert termios.tcgetattr(terminal.descriptor) != modes, "lines are edited"
            terminal.process.send_signal(signal.SIGTERM)
            terminal.wait("SIGTERM: stopping")
            if times == 2:
                terminal.process.send_signal(signal.SIGINT)  # another one: it is not taken for the first
            terminal.process.wait(30)
        assert termios.tcgetattr(terminal.descriptor) == modes


def test_quitting_the_debugger_ends_the_request_alone(tmp_path: Path) -> None:
    write(tmp_path, ASGI, LOOK)
    with serve(tmp_path) as terminal:
        url = url_of(terminal)
        with asking(url) as answer:
            look_around(terminal)
            terminal.type("q\n")
            assert answer.read().endswith("500")
        with asking(url) as answer:
            look_around(terminal)
            terminal.type("c\n")
            assert answer.read() == "one 42\n200"


@pytest.mark.parametrize(
    ("flags", "why"),
    [(["--reload"], "no terminal"), (["--reload", "-w", "2"], "pool 'web' has 2 workers"), ([], "without --reload")],
)
def test_without_a_terminal_breakpoint_says_what_it_needs(tmp_path: Path, flags: list[str], why: str) -> None:
    write(tmp_path, ASGI, LOOK)
    with Serving(tmp_path, "web:app", "-b", ANY_PORT, *flags) as server:
        server.wait_ready("web")
        assert server.get().status == 500
        said = server.err.wait(r"RuntimeError: breakpoint\(\) needs .*")[0]
        assert "clutch serve --reload -w 1" in said and why in said
        assert "BdbQuit" not in server.err.text


def test_a_chosen_debugger_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, ASGI, LOOK)
    none = {"env": environment() | {"PYTHONBREAKPOINT": "0"}}
    with Serving(tmp_path, "web:app", "-b", ANY_PORT, **none) as server:
        assert server.get().body == b"one 42"


# ---- new code


def test_the_request_after_a_save_waits_for_the_new_code(tmp_path: Path, rendezvous: Rendezvous) -> None:
    write(tmp_path, ASGI)
    with Serving(tmp_path, "web:app", "--reload", "-b", ANY_PORT) as server:
        assert server.get().body == b"one 41"
        server.err.wait("watching")
        write(tmp_path, f"{ASGI}\nmeet({rendezvous.port})\n", word="two")
        guest = rendezvous.guest()
        with server.asking() as connection:
            server.until(lambda _: server.pool()["queued"] == 1)
            guest.let_go()
            assert connection.getresponse().read() == b"two 41"


def test_what_is_watched_is_chosen(tmp_path: Path) -> None:
    (tmp_path / "gen").mkdir()
    write(tmp_path, ASGI)
    with serve(
        tmp_path, "--reload-exclude", "gen", "--reload-exclude", "note_*.py", "--reload-include", "*.yaml"
    ) as terminal:
        url_of(terminal)
        for name in ("gen/one.py", "note_1.py", "read.me"):  # in one go with what comes then, if it were watched
            write(tmp_path, "x = 1", name=name)
        for name in ("rules.yaml", ".env", "other.py"):
            write(tmp_path, "x: 2", name=name)
            terminal.wait(rf"changed: [^\n]*{re.escape(name)}")
        assert not re.search(r"changed: [^\n]*(one\.py|note_1|read\.me)", terminal.text)


def test_an_error_in_the_code_is_shown_until_it_is_mended(tmp_path: Path) -> None:
    write(tmp_path, ASGI)
    with Serving(tmp_path, "web:app", "--reload", "-b", ANY_PORT) as server:
        assert server.get().status == 200
        server.err.wait("watching")
        write(tmp_path, ASGI + "\nraise ValueError('<b>no</b>')\n")
        server.err.wait("failing")
        shown = server.get()
        assert (shown.status, shown.headers["content-type"]) == (503, "text/plain; charset=utf-8")
        assert b'web.py", line 10, in <module>' in shown.body and b"ValueError: <b>no</b>" in shown.body
        page = curl("-H", "accept: text/html,*/*", server.url).stdout
        assert b"&lt;b&gt;no&lt;/b&gt;" in page and b"<b>no" not in page
        write(tmp_path, ASGI, word="two")
        server.err.wait("reloaded")
        assert server.get().body == b"two 41"
        assert server.err.text.count("ValueError: <b>no</b>") == 2, "its name in the first line, then the traceback"


def test_a_first_start_that_fails_waits_for_a_save(tmp_path: Path) -> None:
    write(tmp_path, "def app(:\n")
    with Serving(tmp_path, "web:app", "--reload", "-b", ANY_PORT) as server:
        server.err.wait("SyntaxError")
        assert b"SyntaxError" in server.get().body
        server.err.wait("watching")
        write(tmp_path, ASGI)
        server.err.wait("reloaded")
        assert server.get().body == b"one 41"
        server.terminate()
        assert server.wait() == 0
        assert server.err.text.count("SyntaxError: ") == 2


def test_a_call_of_code_that_does_not_load_gets_its_traceback(tmp_path: Path) -> None:
    write(tmp_path, TOOLS, name="tools.py")
    with Server(tmp_path, f'[pools.api]\ntarget = "tools"\n{FRONTS}', "--reload") as server:
        server.wait_ready("api")
        server.err.wait("watching")
        write(tmp_path, TOOLS + "\nraise ValueError('no')\n", name="tools.py")
        server.err.wait("failing")
        answer = server.call("look")
        assert (answer.status, answer.json["type"]) == (503, "urn:clutch:config-error")
        assert "ValueError: no" in answer.json["detail"] and "tools.py" in answer.json["detail"]
        write(tmp_path, TOOLS, word="two", name="tools.py")
        server.err.wait("reloaded")
        assert server.call("look").result == "two 41"


def test_stale_bytecode_is_not_taken_for_new_code(tmp_path: Path) -> None:
    """Two saves in the same second, of the same length: Python looks at nothing else."""
    write(tmp_path, ASGI)
    os.utime(tmp_path / "web.py", (1_700_000_000, 1_700_000_000))
    with Serving(tmp_path, "web:app", "--reload", "-b", ANY_PORT) as server:
        assert server.get().body == b"one 41"
        server.err.wait("watching")
        (tmp_path / "web.new").write_text(ASGI.format(look=NOTHING, word="two"))
        os.utime(tmp_path / "web.new", (1_700_000_000, 1_700_000_000))
        (tmp_path / "web.new").rename(tmp_path / "web.py")
        server.err.wait("reloaded")
        assert server.get().body == b"two 41"


# ---- what is shown


def test_a_terminal_shows_a_line_for_each_request(tmp_path: Path) -> None:
    write(tmp_path, ASGI)
    command = [*COMMAND, "serve", "web:app", "-b", ANY_PORT]
    with Terminal(tmp_path, command) as terminal:
        curl(f"{url_of(terminal)}/here?q=1")
        terminal.wait(r'127.0.0.1 "GET /here\?q=1 HTTP/1.1" 200 [\d.]+ ms\n')
    with Terminal(tmp_path, [*command, "--no-access-log"]) as terminal:
        curl(url_of(terminal))
        terminal.interrupt()
        terminal.wait("stopping")
        assert "GET /" not in terminal.text


@pytest.mark.parametrize(("flags", "line"), [(["--reload"], r'"GET / HTTP/1.1" 200'), ([], None)])
def test_a_pipe_has_that_line_in_development_alone(tmp_path: Path, flags: list[str], line: str | None) -> None:
    write(tmp_path, ASGI)
    with Serving(tmp_path, "web:app", "-b", ANY_PORT, *flags) as server:
        server.get()
        server.terminate()
        server.wait()
        assert ("GET / HTTP/1.1" in server.out.text) == (line is not None)


def test_a_traceback_is_whole_and_its_line_follows(tmp_path: Path) -> None:
    write(tmp_path, WSGI, "print('hello')\n    raise ValueError('no')")
    with serve(tmp_path) as terminal:
        url = url_of(terminal)
        for _ in range(20):
            curl(url)
        for _ in range(20):
            terminal.wait(
                r'hello\nthe app raised\nTraceback \(most recent call last\):\n  File "[^"]*web.py", line 4, in app\n'
                r".*\nValueError: no\n127.0.0.1 \"GET / HTTP/1.1\" 500"
            )


def test_lines_of_other_requests_come_between_no_traceback(tmp_path: Path) -> None:
    loud = """
    import traceback
    x = 41
    for _ in range(10 if environ["PATH_INFO"] == "/loud" else 0):
        try:
            raise ValueError("no")
        except ValueError:
            traceback.print_exc()"""
    write(tmp_path, WSGI, loud)
    with serve(tmp_path, "--threads", "2") as terminal:
        url = url_of(terminal)
        with asking(f"{url}/loud?[1-20]") as answers, asking(f"{url}/?[1-200]") as others:
            answers.read(), others.read()
        for _ in range(200):
            terminal.wait(r"Traceback \(most recent call last\):\n(  .*\n)+ValueError: no\n")
        assert terminal.text.count("Traceback") == 200
        assert len(re.findall(r"\n  File .*web.py.*\n    raise .*\nValueError: no\n", terminal.text)) == 200


def test_output_of_several_workers_names_them(tmp_path: Path) -> None:
    write(tmp_path, WSGI, "x = print('hello') or 41")
    with serve(tmp_path, "-w", "2") as terminal:
        curl(url_of(terminal))
        terminal.wait(r"\[web/\d\] hello\n")
