"""What a program has set for its whole process before it makes a pool: its workers, which start anew, get it too.

A setting is a row of `SETTINGS`. What no row knows stays as the worker's own imports leave it, as in multiprocessing's
`spawn`.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib.util
import os
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from clutch._pickle import dumps


class ProgramSetting(NamedTuple):
    """A setting of a module, which is one for the whole process."""

    module: str
    read: Callable[[Any], Any]
    """Returns what was set, or None where it is as Python or the library starts with."""
    write: Callable[[Any, Any], object]


# ---- the standard library's


def read_decimal(decimal: Any) -> Any:
    context = decimal.getcontext().copy()
    context.clear_flags()
    traps = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
    fresh = decimal.Context(28, decimal.ROUND_HALF_EVEN, -999_999, 999_999, 1, 0, [], traps)
    return None if repr(context) == repr(fresh) else context


def write_decimal(decimal: Any, context: Any) -> None:
    """Also for threads that start later, which begin with the default context."""
    for name in ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps"):
        setattr(decimal.DefaultContext, name, getattr(context, name))
    decimal.setcontext(context)


def read_stack_size(threading: Any) -> int | None:
    size = threading.stack_size()  # which sets it to 0
    threading.stack_size(size)
    return size or None


def read_temporary_folder(tempfile: Any) -> str | None:
    """None also where the first use has set what the environment says, which workers have too."""
    given = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return other_than(next(filter(None, given), "/tmp"), tempfile.tempdir)


CATEGORIES = ("LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME")


def read_locale(locale: Any) -> dict[str, str] | None:
    found = {name: locale.setlocale(getattr(locale, name)) for name in CATEGORIES}
    # Python itself sets LC_CTYPE, by the environment, which workers have too.
    is_set = any(value != "C" for name, value in found.items() if name != "LC_CTYPE")
    return found if is_set else None


def write_locale(locale: Any, found: dict[str, str]) -> None:
    for name, value in found.items():
        with contextlib.suppress(locale.Error):
            locale.setlocale(getattr(locale, name), value)


def read_filters(warnings: Any) -> list[Any] | None:
    """The filters that are not there when Python starts without `-W`, their categories by name: to read a class would
    import its library in each worker."""
    fresh = {("default", DeprecationWarning), *(("ignore", category) for category in IGNORED)}
    filters = [one for one in warnings.filters if one[1] is not None or one[::2][:2] not in fresh or one[4]]
    return [(*one[:2], named(one[2]), *one[3:]) for one in filters] or None


def named(category: type) -> Any:
    """The program's own class is sent as such."""
    return category if category.__module__ == "__main__" else (category.__module__, category.__qualname__)


IGNORED = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)


ERROR = "error"
"""Action of filters that turn warnings into exceptions."""


def write_filters(warnings: Any, sent: list[Any]) -> None:
    """Those of the program come before the ones that the worker's own imports have added. One of a category that is not
    loaded here is left out: nobody can warn of it yet."""
    filters = []
    for action, message, category, *rest in sent:
        found = found_by_name(*category) if isinstance(category, tuple) else category
        if isinstance(found, type):
            filters.append((action, message, found, *rest))
    own = [one for one in warnings.filters if one not in filters]
    warnings.resetwarnings()
    warnings.filters.extend([*filters, *own])


def found_by_name(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def other_than(fresh: Any, value: Any) -> Any:
    return None if value == fresh else value


# ---- libraries'

NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
NUMPY_PRINTED = {
    "precision": 8,
    "threshold": 1000,
    "edgeitems": 3,
    "linewidth": 75,
    "suppress": False,
    "nanstr": "nan",
    "infstr": "inf",
    "sign": "-",
    "floatmode": "maxprec",
}


def read_numpy(numpy: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
    printed = numpy.get_printoptions()
    changed = {name: printed[name] for name, fresh in NUMPY_PRINTED.items() if printed.get(name, fresh) != fresh}
    errors = numpy.geterr()
    return (errors, changed) if changed or errors != NUMPY_ERRORS else None


def write_numpy(numpy: Any, found: tuple[dict[str, Any], dict[str, Any]]) -> None:
    numpy.seterr(**found[0])
    numpy.set_printoptions(**found[1])


def read_pandas(pandas: Any) -> dict[str, Any] | None:
    """Options other than their defaults. Pandas lists them nowhere in public."""
    with contextlib.suppress(Exception):
        rows = sys.modules["pandas._config.config"]._registered_options  # type: ignore[attr-defined]
        deprecated = sys.modules["pandas._config.config"]._deprecated_options  # type: ignore[attr-defined]
        names = [name for name in rows if name not in deprecated]
        return {name: pandas.get_option(name) for name in names if pandas.get_option(name) != rows[name].defval} or None
    return None


def write_pandas(pandas: Any, found: dict[str, Any]) -> None:
    for name, value in found.items():
        with contextlib.suppress(Exception):  # another release may not have it
            pandas.set_option(name, value)


SETTINGS = [
    ProgramSetting(
        "csv", lambda m: other_than(131_072, m.field_size_limit()), lambda m, limit: m.field_size_limit(limit)
    ),
    ProgramSetting("decimal", read_decimal, write_decimal),
    ProgramSetting("locale", read_locale, write_locale),
    ProgramSetting("logging", lambda m: other_than(0, m.root.manager.disable), lambda m, level: m.disable(level)),
    ProgramSetting("numpy", read_numpy, write_numpy),
    ProgramSetting("pandas", read_pandas, write_pandas),
    ProgramSetting("socket", lambda m: m.getdefaulttimeout(), lambda m, seconds: m.setdefaulttimeout(seconds)),
    ProgramSetting(
        "sys", lambda m: other_than(1000, m.getrecursionlimit()), lambda m, limit: m.setrecursionlimit(limit)
    ),
    ProgramSetting(
        "sys", lambda m: other_than(0.005, m.getswitchinterval()), lambda m, each: m.setswitchinterval(each)
    ),
    ProgramSetting(
        "sys",
        lambda m: other_than(4300, m.get_int_max_str_digits()),
        lambda m, digits: m.set_int_max_str_digits(digits),
    ),
    ProgramSetting("tempfile", read_temporary_folder, lambda m, folder: setattr(m, "tempdir", folder)),
    ProgramSetting("threading", read_stack_size, lambda m, size: m.stack_size(size)),
    ProgramSetting("warnings", read_filters, write_filters),
]


def of_program(has_main: bool) -> str | None:
    """The settings of this program as text, or None where all are as at its start. `has_main`: workers find its
    `__main__`."""
    found = {}
    for number, setting in enumerate(SETTINGS):
        module = sys.modules.get(setting.module)
        with contextlib.suppress(Exception):  # a library that is only half there, or a value that cannot be sent
            value = None if module is None else setting.read(module)
            if value is not None:
                found[number] = dumps(value, has_main)
    return base64.b64encode(pickle.dumps(found)).decode() if found else None


def write_early_filters(warnings: Any, sent: list[Any]) -> None:
    """Without those that turn warnings into exceptions: the program had set them when its imports were over."""
    write_filters(warnings, [one for one in sent if one[0] != ERROR])


def apply(text: str, early: bool = False) -> None:
    """Sets what the program has set: of a library that is not loaded here, as soon as it is.

    `early`: imports follow.
    """
    late: dict[str, Callable[[], object]] = {}
    for number, body in pickle.loads(base64.b64decode(text)).items():
        setting = SETTINGS[number]
        if early and setting.write is write_filters:
            setting = setting._replace(write=write_early_filters)
        if setting.module in sys.modules or setting.module in sys.stdlib_module_names:
            write(setting, body)
        else:
            late[setting.module] = functools.partial(write, setting, body)
    sys.meta_path[:] = [one for one in sys.meta_path if type(one) is not AtImport]
    if late:
        sys.meta_path.insert(0, AtImport(late))  # type: ignore[arg-type]


def write(setting: ProgramSetting, body: bytes) -> None:
    with contextlib.suppress(Exception):
        setting.write(importlib.import_module(setting.module), pickle.loads(body))


class AtImport:
    """Finder that calls a function right after the import of a module. It finds nothing itself."""

    def __init__(self, late: dict[str, Callable[[], object]]) -> None:
        self._late = late
        self._looks_for: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Finds it by the others, as often as it is looked for: whoever looks may not import it."""
        if name not in self._late or name in self._looks_for:
            return None
        self._looks_for.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looks_for.discard(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                run(module)
                self._late.pop(name, lambda: None)()

            with contextlib.suppress(AttributeError):  # a loader that takes no attributes
                spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
