"""`clutch tools`: what there is to call, of a running server or of a pool started just to ask it.

Asks the same paths that any other client would (docs/http.md), by the same way as `clutch call`.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import textwrap
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import click

from clutch.cli.call import NAMES_MAX, OWN_POOL, Endpoint, fetch, own_server, server_flags
from clutch.cli.flags import as_json, pool_flags, pool_options
from clutch.cli.table import printable

INDENT = "  "


@click.command("tools", short_help="List the tools that can be called.")
@click.argument("name", required=False, metavar="[POOL[.TOOL]]")
@server_flags
@click.option("--target", help="Start a pool with this target and list its tools; the flags below configure it.")
@as_json
@pool_flags
def command(
    name: str | None,
    target: str | None,
    as_json: bool,
    server: Callable[[], Endpoint],
    **flags: str | None,
) -> None:
    """List tools with their signatures and the first lines of their docstrings, or one tool with its whole docstring.

    With --json their JSON schemas, too. Without --target the tools of the server of this folder, as `clutch call` finds
    it.
    """
    options = pool_options(flags)
    if options and target is None:
        raise click.UsageError("flags of a pool need --target")
    with contextlib.nullcontext(server()) if target is None else own_server(target, options) as asked:
        pool, tool = _meant(name, target)
        pools = [_described(asked, one) for one in _pools(asked, pool)]
    if tool is not None:
        for one in pools:
            one["tools"] = [_named(one, tool)]
    if as_json:
        click.echo(json.dumps({"pools": pools}, indent=2, ensure_ascii=False))
    else:
        click.echo("\n\n".join(_text(one, tool is not None) for one in pools))


def _meant(name: str | None, target: str | None) -> tuple[str | None, str | None]:
    """Pool and tool. A target has one pool, so a name without a dot is that of a tool."""
    if name is None:
        return None, None
    pool, dot, tool = name.partition(".")
    if target is not None:
        return OWN_POOL, tool if dot else pool
    return pool, tool or None


def _pools(server: Endpoint, name: str | None) -> list[dict[str, Any]]:
    """Returns the named pool, or all without a name."""
    pools = fetch(server, "/pools")["pools"]
    if name is None:
        return pools
    known = {pool["name"]: pool for pool in pools}
    if name not in known:
        raise click.ClickException(f"no pool {name!r}{_nearest(name, list(known))}")
    return [known[name]]


def _described(server: Endpoint, pool: dict[str, Any]) -> dict[str, Any]:
    """Returns the descriptions of a pool's tools; none while the pool starts."""
    if pool["tools"] is None and pool["state"] != "ready":
        return {**pool, "note": f"its tools are not known yet: it is {pool['state']}", "tools": []}
    return {**pool, **fetch(server, f"/pools/{quote(pool['name'], '')}/tools")}


def _named(pool: dict[str, Any], name: str) -> dict[str, Any]:
    known = {tool["name"]: tool for tool in pool["tools"]}
    if name not in known:
        raise click.ClickException(f"no tool {name!r} in pool {pool['name']!r}{_nearest(name, list(known))}")
    return known[name]


def _nearest(name: str, names: list[str]) -> str:
    """Half a sentence, as the server says it."""
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    if not names:
        return "; there are none"
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"; there are: {', '.join(map(printable, names[:NAMES_MAX]))}{more}"


# To words


def _text(pool: dict[str, Any], whole: bool) -> str:
    lines = [printable(f"{pool['name']}: {pool['state']}, {pool['profile']}")]
    if pool.get("note"):
        lines.append(INDENT + printable(pool["note"]))
    elif not pool["tools"]:
        lines.append(f"{INDENT}no tools: mark functions with @clutch.tool")
    for tool in pool["tools"]:
        lines += _tool_lines(tool, whole)
    return "\n".join(lines)


def _tool_lines(tool: dict[str, Any], whole: bool) -> list[str]:
    """`whole`: all of the docstring."""
    stream = ", a stream" if tool["stream"] else ""
    text = tool["description"] if whole else tool["summary"]
    note = f"note: {tool['note']}" if tool["note"] else ""
    below = [textwrap.indent(printable(part, "\n\t"), INDENT * 3) for part in (text, note) if part]
    return [INDENT + printable(f"{tool['name']}{tool['signature']}{stream}"), *below]
