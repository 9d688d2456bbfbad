"""The wire's golden bytes, read with nothing but `struct`: what docs/wire.md says is enough to read them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "crates" / "clutch-fronts" / "tests" / "golden" / "wire.json").read_text("utf-8")
)
PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text("utf-8")

HEAD = struct.Struct("<IBBBBQ")
REGION = struct.Struct("<IIQ")
FIXED = {
    "Call": (struct.Struct("<IIQI"), ("word", "function", "deadline_ns", "skip")),
    "Credit": (struct.Struct("<I"), ("credit",)),
    "Result": (struct.Struct("<Q"), ("run_ns",)),
    "Failure": (struct.Struct("<Q"), ("run_ns",)),
    "Descriptor": (struct.Struct("<Q"), ("size",)),
}


def parse(frame: bytes, kind: str) -> dict[str, Any]:
    body_bytes, kind_number, form, region_count, flags, work = HEAD.unpack_from(frame)
    assert HEAD.size + body_bytes == len(frame)
    at = HEAD.size
    regions = []
    for _ in range(region_count):
        region, reserved, length = REGION.unpack_from(frame, at)
        assert reserved == 0
        regions.append({"id": region, "len": length})
        at += REGION.size
    fields: dict[str, Any] = {
        "kind": kind,
        "kind_number": kind_number,
        "codec": form & 15,
        "content": form >> 4,
        "regions": regions,
        "flags": flags,
        "id": work,
    }
    if kind in FIXED:
        layout, names = FIXED[kind]
        fields |= dict(zip(names, layout.unpack_from(frame, at), strict=True))
        at += layout.size
    payload = frame[at:]
    fields["payload"] = payload.hex()
    if kind == "Failure":
        fields["failure"] = failure(payload)
    return fields


def failure(body: bytes) -> dict[str, Any]:
    at, parts = 1, []
    while at < len(body):
        (length,) = struct.unpack_from("<I", body, at)
        parts.append(body[at + 4 : at + 4 + length].hex())
        at += 4 + length
    assert at == len(body)
    return {"tag": body[0], "fields": parts}


@pytest.mark.parametrize("entry", GOLDEN["frames"], ids=lambda entry: entry["name"])
def test_golden_frames_are_read_field_by_field(entry: dict[str, Any]):
    frame = bytes.fromhex(entry["hex"])
    assert parse(frame, entry["fields"]["kind"]) == entry["fields"]


def test_messages_that_are_json_are_json():
    for entry in GOLDEN["frames"]:
        if entry["fields"]["codec"] == 3 and not entry["fields"]["regions"]:
            json.loads(bytes.fromhex(entry["fields"]["payload"]))


def test_every_kind_is_documented_with_its_number():
    for entry in GOLDEN["frames"]:
        kind, number = entry["fields"]["kind"], entry["fields"]["kind_number"]
        assert f"| {number} | {kind.lower()} |" in PAGE


def test_the_version_is_documented():
    assert f"version {GOLDEN['wire_version']}" in PAGE
    assert GOLDEN["head_bytes"] == HEAD.size
