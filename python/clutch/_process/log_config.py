"""Destination of our own log by a configuration of `logging`: gunicorn's `logconfig`, uvicorn's `--log-config`.

Files written for one of these name its loggers; what they say of `gunicorn.error` or `uvicorn.error` is meant for our
log where they say nothing of `clutch`. Only this process is configured: an app configures its own loggers.
"""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clutch._dispatcher import logs
from clutch.errors import ConfigError, Problem

OURS = ("clutch", "gunicorn.error", "uvicorn.error", "gunicorn", "uvicorn")
"""Whose handlers are ours: of the first that has its own."""
OF_ACCESS = ("gunicorn.access", "uvicorn.access")
OF_SERVERS = {"clutch", "gunicorn", "uvicorn"}
"""Loggers in the files that people have: everything below these concerns a server."""


def apply(config: str | Mapping[str, Any], source: str, level: str | None) -> list[str]:
    """Configures `logging`, then our log. `level` wins over the configuration's. Returns warnings.

    Raises `ConfigError`, naming `source`, for what cannot be read or is no configuration.
    """
    before = _configured()
    try:
        if isinstance(config, str):
            _apply_file(Path(config.removeprefix("file:")))
        else:
            _apply_dict(config)
    except OSError as error:
        what = f"cannot be read: {error.strerror}" if error.filename == config else str(error)
        raise ConfigError(problems=[Problem(source, what, repr(config))]) from error
    except ImportError as error:
        raise ConfigError(problems=[Problem(source, f"needs PyYAML: pip install pyyaml ({error})")]) from error
    except Exception as error:  # handlers and formatters of any kind were made
        # The cause is what a handler or formatter said; around it is only which one.
        why = f"{error}: {error.__cause__}" if error.__cause__ is not None else str(error)
        what = f"is not a logging configuration: {type(error).__name__}: {why}"
        raise ConfigError(problems=[Problem(source, what)]) from error
    _take_over(level)
    written = [name for name in OF_ACCESS if logging.getLogger(name).handlers]
    access = "the access log is written by the dispatcher, not through logging: use --access-logfile"
    warnings = [f"{source}: {', '.join(written)}: {access}"] if written else []
    of_app = sorted(name for name in _configured() - before if name.partition(".")[0] not in OF_SERVERS)
    in_workers = "configured here, in the dispatcher; the app logs in its workers, where it configures its own loggers"
    return [*warnings, f"{source}: {', '.join(of_app)}: {in_workers}"] if of_app else warnings


def _configured() -> set[str]:
    """Loggers with a level or with handlers."""
    loggers = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    return {one.name for one in loggers if one.handlers or one.level != logging.NOTSET}


def _apply_file(path: Path) -> None:
    if path.suffix == ".json":
        _apply_dict(json.loads(path.read_text(encoding="utf-8")))
    elif path.suffix in (".yaml", ".yml"):
        import yaml

        _apply_dict(yaml.safe_load(path.read_text(encoding="utf-8")))
    else:
        path.open().close()  # else what is not there would be told as a file without sections
        defaults = {"__file__": str(path), "here": str(path.resolve().parent)}
        logging.config.fileConfig(path, defaults=defaults, disable_existing_loggers=False)


def _apply_dict(config: Any) -> None:
    if not isinstance(config, Mapping):
        raise TypeError(f"a {type(config).__name__}, not a table")
    logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, **config})


def _take_over(level: str | None) -> None:
    """All that the configuration would hand our records to becomes our own, so that a queue can stand before it."""
    chosen = next((logger for logger in map(logging.getLogger, OURS) if logger.handlers), logging.getLogger("clutch"))
    handlers = list(_handlers(chosen))
    if not handlers:
        logs.set_up("text", level or logging.getLevelName(chosen.getEffectiveLevel()))
        return
    effective = logging.getLevelName(chosen.getEffectiveLevel())
    logs.log.handlers[:] = handlers
    logs.log.propagate = logs.log.disabled = False
    logs.log.setLevel(effective if level is None else level.upper())


def _handlers(logger: logging.Logger | None) -> Iterator[logging.Handler]:
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None
