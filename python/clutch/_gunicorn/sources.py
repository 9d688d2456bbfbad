"""Sources of gunicorn's settings, later ones win: variables, gunicorn.conf.py, GUNICORN_CMD_ARGS, command line.

Each layer becomes a dict by the setting's name, parsed by the one table of settings. Promises to report all that is
wrong at once, and to name all that has no place here.
"""

from __future__ import annotations

import contextlib
import importlib
import runpy
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from clutch._gunicorn.peers import (
    ADDRESS_FLAGS,
    ALIASES,
    OF_OTHERS,
    WITHOUT_EFFECT,
    address_of,
    warnings_of_variables,
)
from clutch._gunicorn.settings import (
    COMMAND_ARGS,
    CONF_FILE,
    HOOKS,
    REFUSED,
    REFUSED_OF,
    SETTING_OF,
    SETTINGS,
    Refused,
    Setting,
)
from clutch.config.layers import nearest
from clutch.errors import ConfigError, Problem

VARIABLES = {
    "workers": "WEB_CONCURRENCY",
    "forwarded_allow_ips": "FORWARDED_ALLOW_IPS",
    "bind": "PORT",
    "root_path": "SCRIPT_NAME",
}
"""Defaults from the environment, as gunicorn takes them."""
Command = TypeVar("Command", bound=Callable[..., Any] | click.Command)

PLAIN = (str, int, float, list, tuple, dict)


@dataclass(frozen=True, slots=True)
class Given:
    """A parsed value, and where it was given: for errors that are found later."""

    value: Any
    source: str


@dataclass(slots=True)
class Layers:
    """All settings merged, the later layer winning."""

    given: dict[str, Given]
    on_command_line: dict[str, Given]
    warnings: list[str]

    def value(self, name: str, default: Any = None) -> Any:
        return self.given[name].value if name in self.given else default


@dataclass(slots=True)
class Findings:
    """Findings in the layers so far."""

    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def layer(self, raw: Mapping[str, Any], source: str, shown: Callable[[Setting], str]) -> dict[str, Given]:
        """`shown`: how a person wrote the name in this layer."""
        layer = {}
        for name, value in raw.items():
            place = shown(SETTING_OF[name])
            with self._collected(place, source, value, SETTING_OF[name]):
                layer[name] = Given(SETTING_OF[name].kind.parse(value), f"{place}, {source}" if source else place)
        return layer

    @contextlib.contextmanager
    def _collected(self, place: str, source: str, value: Any, setting: Setting) -> Iterator[None]:
        try:
            yield
        except ValueError:
            near = nearest(value, setting.kind.names) if isinstance(value, str) else None
            allowed = setting.kind.allowed
            self.problems.append(Problem(place, "invalid value", repr(value), allowed, near, source or None))


def read(command_line: Mapping[str, Any], environ: Mapping[str, str]) -> Layers:
    """`command_line`: what it gave, by the setting's name. Raises `ConfigError`; `click.UsageError` for a flag."""
    findings = Findings()
    variables = findings.layer(_of_variables(environ), "", lambda setting: VARIABLES[setting.name])
    arguments = findings.layer(_command_args(environ), COMMAND_ARGS, _flag)
    typed = findings.layer(command_line, "", _flag)
    findings.warnings += warnings_of_variables(environ)
    conf = _conf_layer({**arguments, **typed}.get("config"), findings)
    if findings.problems:
        raise ConfigError(problems=findings.problems)
    return Layers({**variables, **conf, **arguments, **typed}, typed, findings.warnings)


def _of_variables(environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: environ[variable] for name, variable in VARIABLES.items() if environ.get(variable)}
    if "bind" in found:
        found["bind"] = f"0.0.0.0:{found['bind']}"
    return found


def _flag(setting: Setting) -> str:
    return setting.flags[-1] if setting.name != "errorlog" else setting.flags[0]


OFF = ("false", "0", "no", "off", "f", "n")
"""Values by which click turns a switch off."""

# Letters, as click takes them.


def setting_flags(command: Command) -> Command:
    for option in reversed([*map(_option, SETTINGS), *map(_refusal, (*REFUSED, *OF_OTHERS))]):
        if option is not None:
            command = option(command)
    for flag, takes_value in _hidden():
        more: dict[str, Any] = {} if takes_value else {"is_flag": True, "flag_value": True}
        command = click.option(flag, _parameter(flag), hidden=True, default=None, **more)(command)
    return command


def _hidden() -> Iterator[tuple[str, bool]]:
    """Flags of other servers that are taken, and whether they have a value."""
    yield from ((flag, True) for flag in ADDRESS_FLAGS)
    yield from ((alias.flag, alias.bare is None) for alias in ALIASES)
    yield from ((one.flag, one.takes_value) for one in WITHOUT_EFFECT)


def _parameter(flag: str) -> str:
    return "other_" + flag.removeprefix("--").replace("-", "_")


def without_effect(context: click.Context) -> tuple[list[str], list[str]]:
    """Returns lines about the given flags that have no effect here: warnings of what is missed, and the others."""
    values = ((one, context.params[_parameter(one.flag)]) for one in WITHOUT_EFFECT)
    typed = [(one, value) for one, value in values if value is not None]
    missed = [one for one, value in typed if one.is_missed and str(value).lower() not in OFF]
    lines = {one.flag: f"{one.flag} has no effect: {one.why}" for one, _ in typed}
    return [lines.pop(one.flag) for one in missed], list(lines.values())


def typed_settings(context: click.Context) -> dict[str, Any]:
    """Returns the given flags by the setting's name."""
    on_command_line = click.core.ParameterSource.COMMANDLINE
    typed = {
        setting.name: context.params[setting.name]
        for setting in SETTINGS
        if setting.flags and context.get_parameter_source(setting.name) is on_command_line
    }
    address = {flag: text for flag in ADDRESS_FLAGS if (text := context.params[_parameter(flag)]) is not None}
    if address:
        _put_once(typed, "bind", (address_of(address),), ", ".join(address), context)
    for alias in ALIASES:
        if (value := context.params[_parameter(alias.flag)]) is not None:
            _put_once(typed, alias.setting, alias.bare or value, alias.flag, context)
    return typed


def _put_once(typed: dict[str, Any], name: str, value: Any, flag: str, context: click.Context) -> None:
    if name in typed:
        raise click.UsageError(f"{flag} is the same as {_flag(SETTING_OF[name])}: give one of them", context)
    typed[name] = value


def _option(setting: Setting) -> Callable[..., Any] | None:
    if not setting.flags:
        return None
    more: dict[str, Any] = {"help": setting.help, "multiple": setting.many, "metavar": setting.kind.name.upper()}
    if setting.bare is not None:
        more = {"help": setting.help, "is_flag": not setting.value_too, "flag_value": setting.bare, "default": None}
    return click.option(*setting.flags, setting.name, **more)


def _refusal(refused: Refused) -> Callable[..., Any] | None:
    if not refused.flags:
        return None

    def refuse(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is not None:
            said = f"{refused.flags[-1]} of {refused.whose} is not supported: {refused.instead}"
            raise click.UsageError(said, context)

    more: dict[str, Any] = {"hidden": True, "expose_value": False, "callback": refuse, "default": None}
    if not refused.takes_value:
        more |= {"is_flag": True, "flag_value": True}
    return click.option(*refused.flags, f"refused_{refused.name}", **more)


def _command_args(environ: Mapping[str, str]) -> dict[str, Any]:
    """gunicorn's variable with flags; an app in it has no effect there, and is an error here."""
    text = environ.get(COMMAND_ARGS, "")
    command = setting_flags(click.Command(COMMAND_ARGS, callback=None, add_help_option=False))
    try:
        with command.make_context(COMMAND_ARGS, shlex.split(text)) as context:
            return typed_settings(context)
    except (ValueError, click.UsageError) as error:
        said = error.format_message() if isinstance(error, click.UsageError) else str(error)
        raise click.UsageError(f"{COMMAND_ARGS}={text!r}: {said}") from error


# gunicorn.conf.py


def _conf_layer(chosen: Given | None, findings: Findings) -> dict[str, Given]:
    place = chosen.value if chosen is not None else CONF_FILE
    if chosen is None and not Path(CONF_FILE).is_file():
        return {}
    source = place.removeprefix("file:")
    names = _executed(place, source)
    _name_refused(names, source, findings)
    _name_without_effect(names, source, findings)
    raw = {name: value for name, value in names.items() if name in SETTING_OF and value is not None}
    return findings.layer(raw, source, lambda setting: setting.name)


def _executed(place: str, source: str) -> dict[str, Any]:
    """The names that the file leaves behind. It runs here, with the working folder to import from, as in gunicorn."""
    with _importing_from_here():
        try:
            if place.startswith("python:"):
                return dict(vars(importlib.import_module(place.removeprefix("python:"))))
            if source.endswith(".toml"):
                raise ConfigError(
                    f"-c takes a file of gunicorn's, in Python; a configuration of Clutch: clutch run {source}"
                )
            if not Path(source).is_file():
                raise ConfigError(problems=[Problem(source, "not found (given with -c)")])
            return runpy.run_path(source, run_name="__config__")
        except ConfigError:
            raise
        except Exception as error:
            told = "".join(traceback.format_exception(error)).rstrip()
            raise ConfigError(f"{source} failed:\n{told}") from error


@contextlib.contextmanager
def _importing_from_here() -> Iterator[None]:
    before = sys.path[:]
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = before


def _name_refused(names: Mapping[str, Any], source: str, findings: Findings) -> None:
    for name, refused in REFUSED_OF.items():
        if not names.get(name):  # what is not set, or is off already
            continue
        if refused.matters:
            findings.problems.append(
                Problem(name, f"not supported: {refused.instead}", repr(names[name]), source=source)
            )
        else:
            findings.warnings.append(f"{source}: {name} is not supported: {refused.instead}")


def _name_without_effect(names: Mapping[str, Any], source: str, findings: Findings) -> None:
    for name in sorted(name for name in HOOKS if callable(names.get(name))):
        findings.warnings.append(f"{source}: the hook {name} is not supported: use {HOOKS[name]}")
    known = {*SETTING_OF, *REFUSED_OF, *HOOKS}
    unknown = [
        name
        for name, value in names.items()
        if name not in known and not name.startswith("_") and isinstance(value, PLAIN)
    ]
    for name in unknown:
        near = nearest(name, known)
        meant = f"; did you mean {near}?" if near else ""
        findings.warnings.append(f"{source}: {name} is not a setting and has no effect{meant}")
