"""h2spec, its strict cases too: what RFC 9113 and RFC 7541 say that a server does, over TLS and in cleartext."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from benches.hostile import servers
from benches.hostile.server import Server, running
from suites import path_of

APP = "benches.serve.apps:reading_asgi"
"""An answer ends a stream, even before all of the request has come: what h2spec sends on it then is wrong no more."""
CASES = 146
SECONDS_MAX = 100

PREFACE = "http2/3.5: Sends invalid connection preface"
KNOWN_IN_CLEARTEXT = {
    PREFACE: "without ALPN these bytes are a request of HTTP/1 that is none: 400, and closed",
}


def failures(server: Server, folder: Path, *flags: str) -> dict[str, str]:
    """Cases that failed, by section and title, with what h2spec says."""
    h2spec = path_of("h2spec", "h2spec")
    report = folder / "report.xml"
    with running(server, listens) as answering:
        where = ["-h", "127.0.0.1", "-p", str(answering.port), "-P", "/", *flags]
        command = [str(h2spec), *where, "--strict", "--timeout", "10", "--junit-report", str(report)]
        subprocess.run(command, stdout=subprocess.DEVNULL, timeout=SECONDS_MAX, check=False)
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    assert len(cases) == CASES
    return {f"{case.get('package')}: {case.get('classname')}": said(case) for case in cases if said(case)}


def listens(port: int) -> bool:
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def said(case: ElementTree.Element) -> str:
    """Of a failure; empty where there is none, as of cases that are left out for want of something to test."""
    wrong: Sequence[ElementTree.Element] = [*case.iter("failure"), *case.iter("error")]
    return " ".join(" ".join(element.itertext()) for element in wrong)


def test_h2spec_in_cleartext(tmp_path: Path) -> None:
    found = failures(servers.clutch(APP), tmp_path)
    assert found.keys() <= KNOWN_IN_CLEARTEXT.keys(), found


def test_h2spec_over_tls(tmp_path: Path, certificate: Path) -> None:
    tls = ("--certfile", str(certificate / "certificate.pem"), "--keyfile", str(certificate / "key.pem"))
    assert failures(servers.clutch(APP, *tls), tmp_path, "--tls", "--insecure") == {}
