"""What there is to call: `GET /pools`, the tools with their schemas, `/openapi.json`, and `clutch tools`."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from support.clutch_process import FRONTS, TARGETS, WAIT_SECONDS, Answer, Server, answer, clutch, with_http_option

INT = {"type": "integer", "format": "int64"}

CONFIG = """
[pools.api]
target = "schema_tools"
workers = 1

[pools.twin]
target = "schema_tools"
profile = "async"
workers = 1

[pools.late]
target = "schema_tools"
preload = false
workers = 1
"""
CALLS = [
    ("bill", {"lines": [{"name": "tea", "price": 2}], "zeal": 0.5, "at": "2026-01-02"}),
    ("depth", {"node": {"value": 1, "children": [{"value": 2}]}}),
    ("graft", {"node": {"value": 1}, "onto": {"value": 2}}),
    ("feed", {"pet": {"kind": "dog"}, "color": "green"}),
    ("turned", {"data": base64.b64encode(b"abc").decode()}),
    ("anything", {"value": [1], "other": {}}),
]
WRONG = [
    ("bill", {"lines": [{"name": 1.5}]}),
    ("bill", {"lines": [], "zeal": 2}),
    ("bill", {"lines": [], "other": 1}),
    ("depth", {}),
    ("depth", {"node": {"value": 1, "children": [{"value": "x"}]}}),
    ("feed", {"pet": {"kind": "cow"}}),
    ("feed", {"pet": {"kind": "cat"}, "color": "blue"}),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("discovery"), CONFIG + FRONTS) as server:
        for name in ("api", "twin", "late"):
            server.wait_ready(name)
        yield server


def get(server: Server, path: str, method: str = "GET", **headers: str) -> Answer:
    with closing(http.client.HTTPConnection(server.http, timeout=WAIT_SECONDS)) as connection:
        connection.request(method, path, headers=headers)
        return answer(connection)


def tools(server: Server, pool: str = "api") -> dict[str, Any]:
    """By name."""
    return {tool["name"]: tool for tool in get(server, f"/pools/{pool}/tools").json["tools"]}


def document(server: Server) -> dict[str, Any]:
    found = get(server, "/openapi.json")
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    return found.json


# Lists


def test_pools_with_the_names_of_their_tools(server: Server) -> None:
    api, late, twin = get(server, "/pools").json["pools"]
    assert (api["state"], api["profile"], twin["profile"]) == ("ready", "process", "async")
    assert api["tools"] == twin["tools"] == sorted(tools(server))
    assert "bill" in api["tools"]
    assert late["tools"] is None


def test_a_tool_with_its_docstring_and_schemas(server: Server) -> None:
    bill = tools(server)["bill"]
    assert bill["summary"] == "Sums an order."
    assert bill["description"] == "Sums an order.\n\nWith *zeal* as its tax."
    assert bill["signature"].startswith("(lines: list[Line], *, zeal: Annotated[float, ")
    assert (bill["stream"], bill["note"]) == (False, None)
    parameters = bill["parameters"]
    assert list(parameters["properties"]) == ["lines", "zeal", "at"]  # in their order
    zeal = {"default": 0.5, "maximum": 1, "minimum": 0, "type": "number", "format": "double"}
    assert parameters["properties"]["zeal"] == zeal
    assert parameters["properties"]["at"]["default"] is None
    assert (parameters["required"], parameters["additionalProperties"]) == (["lines"], False)


def test_streams_say_what_one_value_is(server: Server) -> None:
    known = tools(server)
    assert (known["numbers"]["stream"], known["numbers"]["result"]) == (True, INT)
    assert known["later"]["stream"] is True
    assert known["later"]["result"]["$ref"] == "#/$defs/Line"
    assert known["later"]["result"]["$defs"]["Line"]["properties"]["name"] == {"type": "string"}


def test_what_has_no_schema_is_listed_with_a_note(server: Server) -> None:
    known = tools(server)
    assert (known["opaque"]["parameters"]["properties"], known["opaque"]["result"]) == ({"value": {}}, {})
    assert "IsInstanceSchema" in known["opaque"]["note"]
    assert (known["by_place"]["parameters"], known["by_place"]["result"]) == ({}, INT)
    assert "positional-only" in known["by_place"]["note"]
    assert (known["anything"]["result"], known["anything"]["note"]) == ({}, None)
    assert "default" not in known["turned"]["parameters"]["properties"]["limit"]  # infinite: not JSON


def test_a_pool_whose_workers_import_says_that_only_they_know(server: Server) -> None:
    found = get(server, "/pools/late/tools").json
    assert found["tools"] == []
    assert "preload = false" in found["note"]


@pytest.mark.parametrize(("tool", "arguments"), CALLS)
def test_what_a_schema_allows_is_called_and_answers_by_its_schema(
    server: Server, tool: str, arguments: dict[str, Any]
) -> None:
    known = tools(server)[tool]
    jsonschema.validate(arguments, known["parameters"], jsonschema.Draft202012Validator)
    jsonschema.validate(server.call(tool, arguments).result, known["result"], jsonschema.Draft202012Validator)


@pytest.mark.parametrize(("tool", "arguments"), WRONG)
def test_what_a_schema_forbids_is_refused(server: Server, tool: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(arguments, tools(server)[tool]["parameters"], jsonschema.Draft202012Validator)
    assert server.call(tool, arguments).status == 422


# OpenAPI


def test_the_document_is_valid_openapi(server: Server) -> None:
    found = document(server)
    OpenAPIV31SpecValidator(found).validate()
    assert found["openapi"] == "3.1.0"
    assert {"/pools/api/tools/bill", "/pools/twin/tools/bill", "/pools"} <= found["paths"].keys()
    assert "security" not in found
    assert {tag["name"]: "description" in tag for tag in found["tags"]} == {"api": False, "late": True, "twin": False}


def test_models_of_two_pools_stand_side_by_side(server: Server) -> None:
    schemas = document(server)["components"]["schemas"]
    for pool in ("api", "twin"):
        members = schemas[f"{pool}.graft_arguments"]["properties"]
        node = members["node"]["$ref"].removeprefix("#/components/schemas/")
        assert node.startswith(f"{pool}.Node")
        assert schemas[node]["properties"]["children"]["items"] == {"$ref": f"#/components/schemas/{node}"}
        mapping = schemas[f"{pool}.feed_arguments"]["properties"]["pet"]["discriminator"]["mapping"]
        assert mapping["cat"] == f"#/components/schemas/{pool}.Cat"


def test_an_operation_has_headers_results_and_problems(server: Server) -> None:
    found = document(server)
    call = found["paths"]["/pools/api/tools/bill"]["post"]
    names = [one["$ref"].rpartition("/")[2] for one in call["parameters"]]
    assert names == ["Clutch-Timeout", "Clutch-Priority"]
    assert (call["summary"], call["operationId"], call["tags"]) == ("Sums an order.", "api.bill", ["api"])
    assert {"200", "422", "500", "502", "503", "504", "default"} == call["responses"].keys()
    stream = found["paths"]["/pools/api/tools/numbers"]["post"]["responses"]["200"]["content"]
    assert stream["application/x-ndjson"]["schema"] == INT


# Who may see it


def test_the_same_may_see_it_as_may_call(tmp_path: Path) -> None:
    config = '[pools.api]\ntarget = "schema_tools"\nworkers = 1\n' + with_http_option('token = "s3cret"')
    with Server(tmp_path, config) as server:
        server.wait_ready("api")
        bearer = {"Authorization": "Bearer s3cret"}
        for path in ("/pools", "/pools/api/tools", "/openapi.json"):
            assert get(server, path).status == 401
            assert get(server, path, **bearer).status == 200
            assert get(server, path, **bearer, Origin="http://evil.example").status == 403
            assert get(server, path, **bearer, Host="evil.example").status == 421
        found = get(server, "/openapi.json", **bearer).json
        OpenAPIV31SpecValidator(found).validate()
        assert found["security"] == [{"token": []}]
        assert found["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


@pytest.mark.parametrize("path", ["/pools", "/pools/api/tools", "/openapi.json", "/", "/ui/page.js"])
def test_only_looking_is_allowed(server: Server, path: str) -> None:
    refused = get(server, path, "POST")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    head = get(server, path, "HEAD")
    assert (head.status, head.body) == (200, b"")


def test_names_that_are_not_there(server: Server) -> None:
    assert "did you mean 'api'?" in get(server, "/pools/apu/tools").json["detail"]
    assert "/openapi.json" in get(server, "/pool").json["detail"]


# The page


def test_browsers_get_a_page_and_programs_a_pointer(server: Server) -> None:
    page = get(server, "/", Accept="text/html,*/*;q=0.8")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert get(server, "/", Accept="*/*").json == {"openapi": "/openapi.json", "pools": "/pools"}
    for path in ("/", "/ui/swagger-ui-bundle.js"):
        assert get(server, path, Host="evil.example").status == 421


# New code


def test_a_reload_brings_new_schemas(tmp_path: Path) -> None:
    def write(hint: str, doc: str) -> None:
        text = (
            f'from clutch import tool\n\n@tool\ndef one(value: {hint}) -> {hint}:\n    """{doc}"""\n    return value\n'
        )
        (tmp_path / "renewed.py").write_text(text)

    write("int", "Before.")
    with Server(tmp_path, '[pools.api]\ntarget = "renewed"\nworkers = 1\n' + FRONTS) as server:
        server.wait_ready("api")
        path, reference = "/pools/api/tools/one", "api.one_arguments"
        before = document(server)
        assert before["paths"][path]["post"]["summary"] == "Before."
        assert before["components"]["schemas"][reference]["properties"]["value"] == INT
        write("str", "After it.")
        assert clutch("reload", "--pid", str(server.process.pid), cwd=tmp_path).returncode == 0
        after = document(server)
        assert after["paths"][path]["post"]["summary"] == "After it."
        assert after["components"]["schemas"][reference]["properties"]["value"] == {"type": "string"}
        assert tools(server)["one"]["summary"] == "After it."


# clutch tools


@pytest.fixture(params=["server", "own pool"])
def where(request: pytest.FixtureRequest) -> list[str]:
    if request.param == "own pool":
        return ["--target", "schema_tools"]
    return ["--url", f"http://{request.getfixturevalue('server').http}"]


def test_lists_signatures_and_first_lines(where: list[str]) -> None:
    done = clutch("tools", *where, cwd=TARGETS)
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    at = lines.index("  depth(node: Node) -> int")
    assert lines[at + 1] == "      How deep a tree is."
    assert "  numbers(n: int) -> Iterator[int], a stream" in lines
    assert "With *zeal*" not in done.stdout


def test_one_tool_is_told_whole(where: list[str]) -> None:
    pool = "api" if "--url" in where else "call"
    done = clutch("tools", f"{pool}.bill", *where, cwd=TARGETS)
    assert done.returncode == 0, done
    assert "      With *zeal* as its tax." in done.stdout.splitlines()
    assert "depth" not in done.stdout


def test_as_json_with_schemas(where: list[str]) -> None:
    name = ["api"] if "--url" in where else []
    done = clutch("tools", *name, "--json", *where, cwd=TARGETS)
    (pool,) = json.loads(done.stdout)["pools"]
    known = {tool["name"]: tool for tool in pool["tools"]}
    assert known["depth"]["parameters"]["required"] == ["node"]
    assert known["numbers"]["stream"] is True


def test_finds_the_server_of_the_folder(server: Server) -> None:
    done = clutch("tools", cwd=server.folder)
    assert done.returncode == 0, done
    assert "api: ready, process" in done.stdout
    assert "preload = false" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tools", "apu"], "no pool 'apu'; did you mean 'api'?"),
        (["tools", "api.bil"], "no tool 'bil' in pool 'api'; did you mean 'bill'?"),
        (["tools", "--workers", "2"], "flags of a pool need --target"),
        (["call"], "missing TOOL"),
        (["call"], "`clutch tools` lists them"),
        (["call", "bill"], "`clutch tools` lists them"),
        (["call", "api.bil"], "did you mean 'bill'?\n`clutch tools` lists them"),
        (["call", "apu.bill"], "did you mean 'api'?\n`clutch tools` lists them"),
    ],
)
def test_names_that_are_wrong(server: Server, arguments: list[str], words: str) -> None:
    done = clutch(*arguments, "--url", server.http, cwd=TARGETS)
    assert done.returncode in (1, 2)
    assert words in done.stderr


def test_nobody_there(tmp_path: Path) -> None:
    done = clutch("tools", "--url", "127.0.0.1:1", cwd=tmp_path)
    assert done.returncode == 1
    assert "start a server with `clutch run`, or give --target" in done.stderr


def test_what_a_terminal_would_obey_is_shown_escaped() -> None:
    done = clutch("tools", "--target", "odd_tools", cwd=TARGETS)
    assert done.stdout.splitlines() == [
        "call: ready, process",
        r"  a/b\nc\x1b[2J(value: object = \x1b[31mred) -> int",
        "      Says \\x1b]0;title\\x07 — 日本\u3000語.",
    ]
    whole = clutch("tools", "--target", "odd_tools", "call.a/b\nc\x1b[2J", cwd=TARGETS)
    assert whole.stdout.splitlines()[-1] == r"      More\u202e."
    assert r"there are: a/b\nc\x1b[2J" in clutch("tools", "--target", "odd_tools", "call.zzz", cwd=TARGETS).stderr


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_a_path_that_is_not_there_says_where_the_page_is(server: Server, path: str) -> None:
    found = get(server, path)
    assert found.status == 404
    assert "GET / in a browser is a page to try them" in found.body.decode()
