"""Decisions about the options of a front that no single option can take: they depend on one another, on the folder of
the config, or on the machine.

Each is a step that a section of options.py names. A step reports what does not fit and changes `Draft.values`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clutch.config import limits
from clutch.config.layers import Report
from clutch.config.values import FILE

CPUS_FOR_EACH_HTTP_THREAD = 4


@dataclass(frozen=True, slots=True)
class Draft:
    """The options of one table, each with a value. `place`: `fronts.api`; `folder`: that of the config."""

    place: str
    values: dict[str, Any]
    folder: Path
    report: Report

    def add(self, option: str, what: str, **more: str | None) -> None:
        self.report.add(f"{self.place}.{option}", what, **more)


Step = Callable[[Draft], None]


def place_binds(draft: Draft) -> None:
    """Unix sockets are relative to the folder."""
    bind, folder = draft.values["bind"], draft.folder
    draft.values["bind"] = tuple(one.under(folder) for one in bind) if isinstance(bind, tuple) else bind.under(folder)


def count_threads(draft: Draft) -> None:
    draft.values["threads"] = draft.values["threads"] or max(1, limits.usable_cpus() // CPUS_FOR_EACH_HTTP_THREAD)


def place_access_log(draft: Draft) -> None:
    if draft.values["access_log"] not in (None, "-"):
        draft.values["access_log"] = str(draft.folder / draft.values["access_log"])


def check_tls(draft: Draft) -> None:
    """A certificate and its key come together, and a CA of clients with both."""
    values = draft.values
    if values["tls.client_auth"] is None:
        values["tls.client_auth"] = "required" if values["tls.client_ca"] is not None else "none"
    asks_clients = "tls.client_auth" if values["tls.client_auth"] != "none" else None
    needs = (("tls.certificate", "tls.key"), ("tls.key", "tls.certificate"), ("tls.client_ca", asks_clients))
    for name, other in (*needs, ("tls.certificate", "tls.client_ca")):
        if values[name] is None and other is not None and values[other] is not None:
            draft.add(name, f"is missing: {other} is given", allowed=FILE.allowed)
    for name in ("tls.certificate", "tls.key", "tls.client_ca"):
        if values[name] is not None:
            values[name] = str(draft.folder / values[name])


def check_tokens(draft: Draft) -> None:
    values = draft.values
    if values["token_file"] is None:
        return
    file = draft.folder / values["token_file"]
    values["token_file"] = str(file)
    if values["token"] is not None:
        what = "token is also given: use one of the two"
        draft.add("token_file", what, given=str(file), allowed="either token or token_file")
    wrong = why_unreadable(file)
    if wrong is not None:
        draft.add("token_file", f"cannot be read: {wrong}", given=str(file), allowed="a file with one token a line")


def check_exposure(draft: Draft) -> None:
    """Calls and metrics need a token or TLS beyond loopback. An app is exposed on purpose: its section lacks this."""
    values = draft.values
    has_token = values["token"] is not None or values["token_file"] is not None
    has_tls = values.get("tls.certificate") is not None
    binds = values["bind"] if isinstance(values["bind"], tuple) else (values["bind"],)
    for bind in binds:
        # The address of a socket that was handed over is known when it is taken over.
        if not (bind.is_local or bind.descriptor is not None or has_token or has_tls or values["insecure"]):
            ways = "a token, TLS" if "tls.certificate" in values else "a token"
            allowed = f"a loopback address, a Unix socket, {ways}, or insecure = true"
            what = f"an address beyond loopback needs {ways.replace(',', ' or')}"
            draft.add("bind", what, given=str(bind), allowed=allowed)
    if "*" in values.get("cors_origins", ()) and not has_token:
        what = "'*' needs a token: else any web page that somebody opens near this server may call its tools"
        draft.add("cors_origins", what, given='"*"', allowed="a list of origins, or a token")


def check_passed_headers(draft: Draft) -> None:
    """The front's own tokens are no business of tools."""
    has_token = draft.values["token"] is not None or draft.values["token_file"] is not None
    if has_token and "authorization" in draft.values["pass_headers"]:
        what = "authorization has the token of this front; the name of the token in token_file is clutch-caller"
        draft.add("pass_headers", what, given="authorization", allowed="other headers")


def why_unreadable(file: Path) -> str | None:
    """Returns why the file cannot be read, or None. Does not wait for the writer of a pipe."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return error.strerror
    try:
        return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else "it is not a regular file"
    finally:
        os.close(descriptor)
