"""What an app speaks, by how it is called: `kind_of`, which the zygote asks."""

from __future__ import annotations

from typing import Any

import app_forms
import pytest

from clutch._worker.handlers.app import kind_of
from clutch.errors import ConfigError

SEEN = [(kind, name) for kind, forms in app_forms.FORMS.items() if kind is not None for name in forms]


@pytest.mark.parametrize(("kind", "name"), SEEN)
def test_an_app_is_known_by_its_form(kind: Any, name: str) -> None:
    assert kind_of(app_forms.FORMS[kind][name]) == kind


@pytest.mark.parametrize("name", app_forms.UNSEEN)
def test_a_form_that_tells_nothing_is_an_error_that_names_the_option(name: str) -> None:
    with pytest.raises(ConfigError, match=r'interface = "asgi", "asgi2" or "wsgi"'):
        kind_of(app_forms.UNSEEN[name])


@pytest.mark.parametrize("name", app_forms.TOOLS)
def test_a_tool_is_no_app(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is a tool.*`clutch run`.*--interface"):
        kind_of(app_forms.TOOLS[name])


@pytest.mark.parametrize("name", app_forms.FUNCTIONS)
def test_a_function_that_takes_no_request_is_no_app(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is a function.*@tool.*`clutch run`.*--interface"):
        kind_of(app_forms.FUNCTIONS[name])
