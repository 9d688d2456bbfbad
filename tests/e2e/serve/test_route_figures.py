"""Figures by the route that answered, as the app's framework writes it: docs/metrics.md."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest

from support.clutch_process import soon
from support.serve_process import ANY_PORT, Serving

BRACES = ("/items/{number}", "/sub/fails/{why}")
ANGLES = ("/items/<int:number>", "/sub/fails/<why>")
APPS = {
    "of_fastapi": BRACES,
    "of_starlette": BRACES,
    "of_flask": ANGLES,
    "of_django": ANGLES,
    "of_django_async": ANGLES,
}


def serve(folder: Path, factory: str, *flags: str) -> Serving:
    admin = "fronts.admin.bind=127.0.0.1:0"
    return Serving(folder, f"routed_apps:{factory}", "-w", "1", "-b", ANY_PORT, "--set", admin, "--factory", *flags)


def responses(serving: Serving) -> dict[str, int]:
    """By method, route and class of status."""
    at_admin = serving.err.wait(r"admin: http://(\S+)")[1]
    with urllib.request.urlopen(f"http://{at_admin}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = re.findall(r'route_responses_total\{front="serve",method="(.*)",route="(.*)",status="(.*)"\} (\d+)', text)
    counts = {f"{method} {route} {status}": int(count) for method, route, status, count in found}
    times = re.findall(r"route_seconds_count\{.*\} (\d+)", text)
    assert sum(map(int, times)) == sum(counts.values())
    return counts


@pytest.mark.parametrize("factory", APPS)
def test_requests_are_counted_by_the_route_of_their_framework(tmp_path: Path, factory: str) -> None:
    items, fails = APPS[factory]
    with serve(tmp_path, factory) as serving:
        serving.wait_ready("web")
        statuses = [serving.get(path).status for path in ("/items/1", "/items/2", "/sub/fails/so", "/nowhere")]
        assert statuses == [200, 200, 500, 404]
        soon(lambda: len(responses(serving)) == 2)
        assert responses(serving) == {f"GET {items} 2xx": 2, f"GET {fails} 5xx": 1}


def test_what_is_mounted_or_included_has_its_prefix_without_values(tmp_path: Path) -> None:
    routes = {
        "/to/ann/v1/out/in/items/1": "/to/{tenant}/v1/out/in/items/{number}",
        "/to/ann/v1/out/in/plain/007/items/1": "/to/{tenant}/v1/out/in/plain/{kind:int}/items/{number}",
        "/to/ann/django/items/1": f"/to/{{tenant}}/django{ANGLES[0]}",
        "/to/ann/files/a": "/to/{tenant}/files/*",
    }
    with serve(tmp_path, "of_mounted") as serving:
        serving.wait_ready("web")
        for path in routes:
            assert [serving.get(path.replace("ann", name)).status for name in ("ann", "bob")] == [200, 200], path
        soon(lambda: sum(responses(serving).values()) == 2 * len(routes))
        assert responses(serving) == {f"GET {route} 2xx": 2 for route in routes.values()}


def test_apps_behind_middleware_and_below_prefixes_tell_their_routes(tmp_path: Path) -> None:
    with serve(tmp_path, "of_dispatched", "--root-path", "/shop") as serving:
        serving.wait_ready("web")
        for place in ("", "/b", "/b/django"):
            assert serving.get(f"/shop{place}/items/1").status == 200
        soon(lambda: len(responses(serving)) == 3)
        assert responses(serving) == {f"GET {place}{ANGLES[0]} 2xx": 1 for place in ("", "/b", "/b/django")}


def test_an_app_may_tell_its_route_itself(tmp_path: Path) -> None:
    with serve(tmp_path, "of_nobody") as serving:
        serving.wait_ready("web")
        assert [serving.get(path).status for path in ("/items/1", "/sub/a", "/")] == [200, 200, 200]
        soon(lambda: responses(serving))
        assert responses(serving) == {"GET /items/N 2xx": 1}


def test_the_prefix_of_a_proxy_is_no_part_of_a_route(tmp_path: Path) -> None:
    with serve(tmp_path, "of_starlette", "--root-path", "/shop") as serving:
        serving.wait_ready("web")
        assert [serving.get(path).status for path in ("/shop/items/1", "/shop/sub/fails/so")] == [200, 500]
        soon(lambda: len(responses(serving)) == 2)
        assert responses(serving) == {f"GET {BRACES[0]} 2xx": 1, f"GET {BRACES[1]} 5xx": 1}
