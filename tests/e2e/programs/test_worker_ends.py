"""What an interpreter does at its end, a worker does at its own: threads that are no daemons, and `atexit`."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.rendezvous import Rendezvous
from support.script_process import Script
from support.serve_process import ANY_PORT, Serving

PROGRAM = """
import atexit, os, sys, tempfile, threading
from clutch import Pool
from support.rendezvous import meet

def say(word):
    os.write(2, f"{word}\\n".encode())

def begin(port):
    folder = tempfile.TemporaryDirectory()
    atexit.register(say, "registered in the worker")
    threading.Thread(target=lambda: (meet(port), say("thread ended"))).start()
    return folder.name

atexit.register(say, "registered at the top of the script")

if __name__ == "__main__":
    with Pool(1, name="ends") as pool:
        pool.call(begin, int(sys.argv[1]))
    print("over", flush=True)
    os._exit(0)
"""


def test_a_pool_waits_for_the_threads_of_its_workers(tmp_path: Path, rendezvous: Rendezvous) -> None:
    with Script(tmp_path, PROGRAM, str(rendezvous.port)) as script:
        guest = rendezvous.guest()
        assert script.process.poll() is None
        guest.let_go()
        script.hear("over")
        said = [line.removeprefix("[ends/0] ") for line in script.err.text.splitlines()]
        assert said == ["thread ended", "registered in the worker"], "what the image has registered is not a worker's"


APP = """
import threading
from support.rendezvous import meet

def send_mail():
    meet({port})
    print("mail sent", flush=True)

def app(environ, start_response):
    if environ["PATH_INFO"] == "/order":
        threading.Thread(target=send_mail).start()
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


@pytest.mark.parametrize("end", ["stop", "recycle"])
def test_a_thread_of_a_request_is_waited_for(tmp_path: Path, rendezvous: Rendezvous, end: str) -> None:
    (tmp_path / "mail.py").write_text(APP.format(port=rendezvous.port))
    flags = ["--max-requests", "1"] if end == "recycle" else []
    with Serving(tmp_path, "mail:app", "-w", "1", *flags, "-b", ANY_PORT) as serving:
        assert serving.get("/order").status == 200
        guest = rendezvous.guest()
        if end == "stop":
            serving.terminate()
            serving.err.wait("SIGTERM: stopping")
        else:
            serving.err.wait("takes no more work")
        guest.let_go()
        serving.out.wait("mail sent")


def test_a_temporary_folder_of_the_image_stays_for_the_others(tmp_path: Path) -> None:
    text = """
import os, tempfile
from clutch import Pool
folder = tempfile.TemporaryDirectory()

def is_there():
    return os.path.isdir(folder.name)

if __name__ == "__main__":
    with Pool(2) as pool:
        assert pool.call(is_there)
        pool.recycle(0)
        print(all(pool.call(is_there) for _ in range(20)), flush=True)
"""
    with Script(tmp_path, text) as script:
        assert script.hear("True|False") == "True"
