"""The caller's script in a zygote or a worker: its `__main__`, run as `__mp_main__`, as multiprocessing does.

A pool without a target runs it at once, in the zygote. One with a target leaves that to each worker, for when something
of the script is first asked for: a script that calls tools by name alone is never run there, and needs no guard. So it
is with the `__main__.py` of a package or folder, which rarely has more than the call that starts the program.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import types
from typing import Any

from clutch._worker import failure
from clutch._worker.exclusive import Exclusive

NAME = "__mp_main__"
WHAT_TO_DO = (
    '; workers run it for its functions: put what starts the program under `if __name__ == "__main__":`, or the '
    "functions into a module of their own"
)

is_running = False
"""The script is being run: a pool that it makes now means that its guard is missing."""

_failed: str | None = None
"""Why it cannot be run, once that was tried."""


class ScriptError(Exception):
    """The script cannot be run. The text says why and what to do, and has the traceback."""


class ScriptLookupError(ScriptError, AttributeError):
    """The same, where something of the script is looked for: `hasattr` says no."""


def explain(error: BaseException) -> BaseException:
    """What to tell instead of an error of `pickle` or `import`: those keep of a name only that it is not there."""
    is_of_script = isinstance(error, AttributeError | ImportError) and NAME in str(error)
    return ScriptError(_failed) if is_of_script and _failed is not None else error


def where_to_put(error: BaseException) -> str:
    """What makes a function that is missing in the worker importable there."""
    if NAME in str(error):
        return 'workers run the script without what is under `if __name__ == "__main__":`; define it above that line'
    return "it must be importable there"


class Script:
    """What is found by both names of `__main__`."""

    def __init__(self, main: dict[str, str]) -> None:
        self._main = main
        self._module = types.ModuleType(NAME)
        self._loading = Exclusive()
        self._is_loaded = False
        vars(self._module)["__getattr__"] = self._find
        sys.modules["__main__"] = sys.modules[NAME] = self._module

    def load_early(self) -> None:
        """Where there is no target: the script itself, or of a package with a `__main__.py` what is around that."""
        package, _, name = self._main.get("module", "").rpartition(".")
        if name == "__main__":
            importlib.import_module(package)
        elif os.path.basename(self._main.get("path", "")) != "__main__.py":
            self.load()

    def load(self) -> None:
        """Runs it, once. Raises ScriptError, each time where it cannot be run. One that was stopped is run again."""
        if not (self._is_loaded or self._loading.is_mine):
            self._loading.run(self._load)

    def _load(self) -> None:
        if not self._is_loaded and _failed is None:
            self._run()
        if _failed is not None:
            raise ScriptError(_failed)

    def _find(self, name: str) -> Any:
        """What libraries look for in any module does not load it."""
        if not (name.startswith("__") and name.endswith("__")):
            try:
                self.load()
            except ScriptError as error:
                raise ScriptLookupError(str(error)) from None
            if name in vars(self._module):
                return vars(self._module)[name]
        raise AttributeError(f"module {NAME!r} has no attribute {name!r}")

    def _run(self) -> None:
        global is_running, _failed
        is_running = True
        try:
            if "module" in self._main:
                content = runpy.run_module(self._main["module"], run_name=NAME, alter_sys=True)
            else:
                content = runpy.run_path(self._main["path"], run_name=NAME)
        except (Exception, SystemExit) as error:
            if failure.was_interrupted(error):
                raise
            _failed = self._told(error)
            return
        finally:
            is_running = False
        del vars(self._module)["__getattr__"]
        vars(self._module).update(content)
        self._is_loaded = True

    def _told(self, error: BaseException) -> str:
        where = self._main.get("path") or f"python -m {self._main['module']}"
        what = f"{failure.type_name(error)}: {failure.message_of(error)}"
        advice = "" if "__name__" in what else WHAT_TO_DO  # of a pool without a guard it has been said
        return f"the script {where!r} does not load in a worker: {what}{advice}\n{failure.traceback_of(error)}".rstrip()
