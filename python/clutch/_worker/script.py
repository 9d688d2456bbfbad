"""The caller's script in a zygote or a worker: its `__main__`, run as `__mp_main__`, as multiprocessing does.

A pool without a target runs it at once, in the zygote. One with a target leaves that to each worker, for when something
of the script is first asked for: a script that calls tools by name alone is never run there, and needs no guard. So it
is with the `__main__.py` of a package or folder, which rarely has more than the call that starts the program.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import runpy
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

from clutch._worker import failure
from clutch._worker.exclusive import Exclusive

NAME = "__mp_main__"
WHAT_TO_DO = (
    "; workers run it for its functions: put the code that starts the program under "
    '`if __name__ == "__main__":`, or move the functions into a module'
)

is_running = False
"""True if the script is running: a pool that it creates meanwhile means that its guard is missing."""

_failed: str | None = None
"""Reason why the script failed, once it has been run."""


class ScriptError(Exception):
    """The script cannot be run. The text says why and what to do, and has the traceback."""


class ScriptLookupError(ScriptError, AttributeError):
    """ScriptError for lookups in the script: an AttributeError, so that `hasattr` returns False."""


def explain(error: BaseException) -> BaseException:
    """The failure of the script, in place of an error of `pickle` or `import` that only says: a name is missing."""
    is_of_script = isinstance(error, AttributeError | ImportError) and NAME in str(error)
    return ScriptError(_failed) if is_of_script and _failed is not None else error


def where_to_put(error: BaseException) -> str:
    """Advice on how to make a function importable in workers that is missing there."""
    if NAME in str(error):
        return 'workers run the script without the code under `if __name__ == "__main__":`; define it above that line'
    return "it must be importable there"


class Script:
    """The script of the caller, under both names of `__main__`."""

    def __init__(self, main: dict[str, str], imports: list[str]) -> None:
        """`imports`: modules of the standard library and of Clutch that the script imports."""
        self._main = main
        self._imports = imports
        self._code: types.CodeType | None = None
        self._names: dict[str, Any] = {}
        """Attributes of the module that are set before its code runs."""
        self._module = types.ModuleType(NAME)
        self._loading = Exclusive()
        self._is_loaded = False
        self.when_loaded: Callable[[], object] = lambda: None
        vars(self._module)["__getattr__"] = self._find
        sys.modules["__main__"] = sys.modules[NAME] = self._module

    def load_early(self) -> None:
        """Loads the script itself if there is no target; of a package with a `__main__.py`, what is around that."""
        package, _, name = self._main.get("module", "").rpartition(".")
        if name == "__main__":
            importlib.import_module(package)
        elif os.path.basename(self._main.get("path", "")) != "__main__.py":
            self.load()

    def prepare(self) -> None:
        """Prepare what all workers share when they run the script: harmless imports, and its compiled code."""
        for name in self._imports:
            with contextlib.suppress(ImportError):  # this Python has no such module
                importlib.import_module(name)
        with warnings.catch_warnings(), contextlib.suppress(Exception):  # the worker that runs it tells what is wrong
            warnings.simplefilter("ignore")
            self._compile()

    def _compile(self) -> None:
        """Not what is found by running its package, or in an archive: that is left to `runpy`."""
        if (name := self._main.get("module")) is None:
            path = self._main["path"]
            with open(path, "rb") as file:
                self._code = compile(file.read(), path, "exec", dont_inherit=True)
            self._names = {"__file__": path, "__package__": "", "__cached__": None}
            return
        # To find it would import the package that it is in.
        spec = importlib.util.find_spec(name) if name.rpartition(".")[0] in (*sys.modules, "") else None
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            self._code = spec.loader.get_code(name)
            self._names = {"__file__": spec.origin, "__package__": spec.parent, "__cached__": spec.cached}
            self._names |= {"__spec__": spec, "__loader__": spec.loader}

    def load(self) -> None:
        """Run the script, once. Raises ScriptError, each time, if it fails. Runs it again if it was interrupted."""
        if not (self._is_loaded or self._loading.is_mine):
            self._loading.run(self._load)

    def _load(self) -> None:
        if not self._is_loaded and _failed is None:
            self._run()
        if _failed is not None:
            raise ScriptError(_failed)

    def _find(self, name: str) -> Any:
        """Names that libraries look up in every module do not load the script."""
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
            if self._code is not None:
                content = self._execute(self._code)
            elif "module" in self._main:
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
        self.when_loaded()

    def _execute(self, code: types.CodeType) -> dict[str, Any]:
        """Run the code as `runpy` does: lookups meanwhile, as by dataclasses, find the partly executed module."""
        module = types.ModuleType(NAME)
        vars(module).update(self._names)
        sys.modules[NAME] = module
        try:
            exec(code, vars(module))
        finally:
            sys.modules[NAME] = self._module
        return vars(module)

    def _told(self, error: BaseException) -> str:
        where = self._main.get("path") or f"python -m {self._main['module']}"
        what = f"{failure.type_name(error)}: {failure.message_of(error)}"
        advice = "" if "__name__" in what else WHAT_TO_DO  # of a pool without a guard it has been said
        return f"the script {where!r} does not load in a worker: {what}{advice}\n{failure.traceback_of(error)}".rstrip()
