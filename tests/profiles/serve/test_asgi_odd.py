"""ASGI apps that do what few do: each keeps its own to itself, and its worker serves on."""

from __future__ import annotations

from collections.abc import Iterator

import asgi_odd
import pytest

from clutch import ConfigError
from support.http_service import Service, serving
from support.rendezvous import Rendezvous
from support.shapes import Shape
from support.stderr import Stderr

pytestmark = pytest.mark.usual_shape("async")


@pytest.fixture(scope="module")
def service(shape: Shape) -> Iterator[Service]:
    with serving(shape, "asgi_odd:app", "auto", workers=1) as service:
        yield service


@pytest.mark.parametrize("app", ["awaitable", "starts_a_task"])
def test_an_app_is_whatever_gives_something_to_await(shape: Shape, app: str) -> None:
    with serving(shape, f"asgi_odd:{app}", "asgi", workers=1) as service:
        assert service.ask("/quick").body == b"quick"


@pytest.mark.per_profile
def test_an_app_whose_call_is_in_a_slot(shape: Shape) -> None:
    with serving(shape, "asgi_odd:in_a_slot", "auto", workers=1) as service:
        assert service.ask("/quick").body == b"quick"


def test_an_app_that_tells_nothing_of_itself_is_served_where_its_interface_is_given(shape: Shape) -> None:
    with pytest.raises(ConfigError, match="interface ="), serving(shape, "asgi_odd:anything", "auto"):
        pass
    with serving(shape, "asgi_odd:anything", "asgi", workers=1) as service:
        assert service.ask("/quick").body == b"quick"


# ---- the lifespan


def test_an_exception_of_the_lifespan_is_told_once_and_the_app_is_served(shape: Shape) -> None:
    with Stderr() as stderr:
        with serving(shape, "asgi_odd:raises_at_startup", "auto") as service:
            assert service.ask("/quick").body == b"quick"
            workers = len(service.pids())
        told = stderr.text.count("info: at lifespan.startup the app raised KeyError('NO_SUCH_URL')")
    # Workers that are not forked have nothing in common.
    assert told == (workers if shape.options.get("start") == "spawn" else 1)


@pytest.mark.parametrize(
    ("app", "did"),
    [
        ("raises_at_startup", r"raised KeyError\('NO_SUCH_URL'\)"),
        ("returns_at_startup", "returned before lifespan.startup.complete"),
    ],
)
def test_with_lifespan_on_an_app_without_one_cannot_start(shape: Shape, app: str, did: str) -> None:
    with pytest.raises(ConfigError, match=did) as caught, serving(shape, f"asgi_odd:{app}", "auto", lifespan="on"):
        pass
    assert "/clutch/_worker/" not in str(caught.value), "frames of ours say nothing about the app"


def test_with_lifespan_off_the_app_is_never_asked(shape: Shape) -> None:
    with serving(shape, "asgi_odd:says_what_it_saw", "auto", lifespan="off", workers=1) as service:
        assert service.ask("/").json == []


@pytest.mark.parametrize("form", asgi_odd.MESSAGES)
def test_messages_are_mappings_and_headers_any_pairs_of_bytes(service: Service, form: str) -> None:
    answer = service.ask("/forms", form=form)
    assert (answer.status, answer.headers["x-form"], answer.body) == (200, "seen", b"body")


@pytest.mark.parametrize(("what", "shown"), [("text", "('x', 'y')"), ("three", "b'z'"), ("one", "[b'x']")])
def test_a_header_that_is_none_is_shown_in_the_exception(service: Service, what: str, shown: str) -> None:
    said = service.ask("/wrong_header", what=what).json
    assert said.startswith("a header is a name and a value, each bytes; given: ") and shown in said


def test_a_header_that_is_a_number(service: Service) -> None:
    assert "not iterable" in service.ask("/wrong_header", what="number").json


def test_whoever_waits_for_a_message_is_told_when_the_response_is_whole(
    service: Service, rendezvous: Rendezvous
) -> None:
    assert service.ask("/waits_on", port=rendezvous.port).body == b"whole"
    told = rendezvous.guest()
    assert told.word == "http.disconnect http.disconnect"
    told.let_go()


@pytest.mark.per_profile
def test_a_task_that_an_app_leaves_behind_is_told_that_it_is_over(
    service: Service, shape: Shape, rendezvous: Rendezvous
) -> None:
    assert service.ask("/leaves_behind", port=rendezvous.port).status == 500
    # The loop of a slot runs only while its slot does: all are kept running.
    running = [service.get("/part", port=rendezvous.port) for _ in range(shape.slots_of_worker)]
    guests = rendezvous.guests(len(running) + 1)
    assert sorted(guest.word for guest in guests) == ["http.disconnect", *["sent"] * len(running)]
    for guest in guests:
        guest.let_go()
    assert service.ask("/quick").body == b"quick"


@pytest.mark.per_profile
def test_waits_that_were_given_up_leave_nothing_behind(service: Service) -> None:
    assert service.ask("/impatient").json < asgi_odd.IMPATIENT_WAITS / 5


@pytest.mark.per_profile
def test_what_is_sent_from_threads_holds_up_nobody(service: Service, shape: Shape, rendezvous: Rendezvous) -> None:
    # Threads of the greenlet profile are greenlets, in a thread whose loop runs already.
    for loop in ["none"] if shape.options["profile"] == "greenlet" else ["none", "own"]:
        for _ in range(shape.slots_of_worker):
            assert service.ask("/from_threads", loop=loop).body == b"from a thread"
    clients = [service.get("/part", port=rendezvous.port) for _ in range(shape.slots_of_worker)]
    guests = rendezvous.guests(len(clients))
    for client in clients:
        lines = client.makefile("rb")
        while lines.readline() != b"\r\n":
            pass
        assert [lines.readline(), lines.readline()] == [b"4\r\n", b"part\r\n"]
    for guest in guests:
        guest.let_go()


@pytest.mark.per_profile
def test_a_task_of_the_apps_that_exits_ends_no_loop(service: Service) -> None:
    before = service.pids()
    service.ask("/child_exits", code=3)
    assert service.ask("/quick").body == b"quick"
    assert service.pids() == before
