"""What an app speaks, by how it is called: `find` and `kind_of`, which the zygote asks."""

from __future__ import annotations

from typing import Any

import app_forms
import pytest

from clutch._worker.handlers.app import find, kind_of
from clutch.errors import ConfigError


class Opaque:
    """Forwards all that it is called with, as objects of Dash do."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


class Maker:
    def __init__(self) -> None:
        self.app = Opaque()

    def http_app(self, path: str = "/") -> Any:
        raise NotImplementedError

    def mount_app(self, app: Any) -> None:
        raise NotImplementedError


SEEN = [(kind, name) for kind, forms in app_forms.FORMS.items() if kind is not None for name in forms]


@pytest.mark.parametrize(("kind", "name"), SEEN)
def test_an_app_is_known_by_its_form(kind: Any, name: str) -> None:
    assert kind_of(app_forms.FORMS[kind][name]) == kind


@pytest.mark.parametrize("name", app_forms.UNSEEN)
def test_a_form_that_tells_nothing_is_an_error_that_names_the_option(name: str) -> None:
    with pytest.raises(ConfigError, match=r'interface = "asgi", "asgi2" or "wsgi"'):
        kind_of(app_forms.UNSEEN[name])


@pytest.mark.parametrize("name", ["app", "asgi_app", "server"])
@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_an_object_that_takes_anything_is_judged_by_the_app_that_it_holds(kind: Any, name: str) -> None:
    for app in app_forms.FORMS[kind].values():
        assert kind_of(Opaque(**{name: Opaque(**{name: app})})) == kind


def test_objects_that_hold_each_other_tell_nothing() -> None:
    app = Opaque()
    app.__dict__["app"] = app
    with pytest.raises(ConfigError, match="cannot be seen"):
        kind_of(app)


def test_an_object_that_makes_or_holds_apps_is_answered_with_them() -> None:
    for found, words in ((Maker(), "; did you mean 'shop:mcp.http_app()' or 'shop:mcp.app'?"), (3, "factory of one$")):
        with pytest.raises(ConfigError, match=words.replace("?", r"\?").replace("()", r"\(\)")):
            find("shop:mcp", found, is_factory=False)


@pytest.mark.parametrize("name", app_forms.TOOLS)
def test_a_tool_is_no_app(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is a tool.*`clutch run`.*--interface"):
        kind_of(app_forms.TOOLS[name])


@pytest.mark.parametrize("name", app_forms.FUNCTIONS)
def test_a_function_that_takes_no_request_is_no_app(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is a function.*@tool.*`clutch run`.*--interface"):
        kind_of(app_forms.FUNCTIONS[name])


@pytest.mark.parametrize("name", app_forms.FACTORIES)
def test_a_callable_that_needs_nothing_is_asked_whether_it_makes_the_app(name: str) -> None:
    with pytest.raises(ConfigError, match=r"(no|a class, not an)( ASGI or WSGI)? app\. If it makes.*--factory"):
        find("shop:make", app_forms.FACTORIES[name], is_factory=False)


@pytest.mark.parametrize("name", app_forms.FACTORIES)
def test_a_factory_that_is_said_to_be_one_is_called(name: str) -> None:
    made = find("shop:make", app_forms.FACTORIES[name], is_factory=True)
    assert kind_of(made) == "asgi"


@pytest.mark.parametrize(("kind", "name"), SEEN)
def test_no_app_is_taken_for_a_factory(kind: Any, name: str) -> None:
    app = app_forms.FORMS[kind][name]
    assert find("shop:app", app, is_factory=False) is app


@pytest.mark.parametrize("name", app_forms.UNSEEN)
def test_what_takes_anything_may_be_an_app(name: str) -> None:
    app = app_forms.UNSEEN[name]
    assert find("shop:app", app, is_factory=False) is app


def test_an_app_whose_arguments_have_defaults_is_an_app() -> None:
    assert find("shop:app", app_forms.with_defaults, is_factory=False) is app_forms.with_defaults
