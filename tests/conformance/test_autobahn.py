"""Autobahn's cases of WebSockets: RFC 6455 from framing to closing, and some of large messages."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benches.hostile import servers
from benches.hostile.server import answers_http, running
from suites import path_of

LARGE = ["9.1.1", "9.2.1", "9.3.1", "9.5.1", "9.7.1"]
CASES = [*(f"{section}.*" for section in (1, 2, 3, 4, 5, 6, 7, 10)), *LARGE]
COUNT = 252
SECONDS_MAX = 100
WELL = {"OK", "INFORMATIONAL"}
BROKEN_AFTER_A_FRAME = ("3.", "4.1.", "4.2.", "5.15")
"""Cases that send a whole frame, then a broken one. The first may be on its way to the app when the connection fails,
and is then not echoed: it depends on who is faster."""
FOUND_AT_THE_END = ("6.4.3", "6.4.4")
"""Text that is no UTF-8 is refused at the end of its frame, not within it."""
NON_STRICT = (*BROKEN_AFTER_A_FRAME, *FOUND_AT_THE_END)
"""By the beginning of their names: what RFC 6455 allows, though Autobahn would like it otherwise."""


def test_autobahn(tmp_path: Path) -> None:
    wstest = path_of("autobahn", "bin", "wstest")
    with running(servers.clutch("benches.hostile.apps:app"), answers_http("/ping")) as answering:
        plan = {
            "outdir": str(tmp_path),
            "servers": [{"agent": "clutch", "url": f"ws://127.0.0.1:{answering.port}/echo"}],
            "cases": CASES,
            "exclude-cases": [],
        }
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        command = [str(wstest), "-m", "fuzzingclient", "-s", str(tmp_path / "plan.json")]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS_MAX, cwd=tmp_path)
    found = json.loads((tmp_path / "index.json").read_text())["clutch"]
    assert len(found) == COUNT
    wrong = {
        name: (case["behavior"], case["behaviorClose"])
        for name, case in found.items()
        if case["behaviorClose"] not in WELL
        or case["behavior"] not in (WELL | {"NON-STRICT"} if name.startswith(NON_STRICT) else WELL)
    }
    assert wrong == {}
