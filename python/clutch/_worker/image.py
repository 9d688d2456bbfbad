"""Image of a zygote: the target, its tools and hooks, and the effects of loading it on the process.

Used by the zygote, and by workers that import for themselves (`preload = false`, `start = "spawn"`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import logging
import os
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from clutch import _core
from clutch._worker import tracebacks
from clutch._worker.afresh import Plan, Roots, libraries
from clutch._worker.failure import traceback_of, type_name
from clutch._worker.handlers.call import Tool
from clutch._worker.leftovers import ImportWatch, forget_seed_of_sqlite, numpy_generators, write_out
from clutch._worker.ports import SharedPorts
from clutch._worker.script import Script
from clutch.errors import ConfigError, NoSuchTool
from clutch.tools import HOOK_MARK, HOOKS, TOOL_MARK, ToolOptions, mark_of, retry_problems

if TYPE_CHECKING:
    import mmap

    from clutch._worker.handlers.kind import TargetKind
    from clutch.celery.tasks import Tasks

WAITING = ("threading", "thread", "socket", "select", "queue")
"""Modules that gevent patches and in which code waits."""

ASYNC_TOOLS_MAX = 256
"""Names of `async def` tools that the dispatcher is told."""

is_here = False
"""True if this process is a zygote or a worker, with an image loaded or being loaded."""


class LoadError(Exception):
    """Loading worked but the image cannot be used; the text says why and what to do."""


def shared_byte() -> mmap.mmap:
    """Create, in the zygote, a byte that its workers share: whether one of them has said something."""
    import mmap

    return mmap.mmap(-1, 1)


class Image:
    """The loaded target."""

    def __init__(self, launch: dict[str, Any]) -> None:
        self.launch = launch
        self.options: dict[str, Any] = launch["launch"]
        self.shape: dict[str, Any] = launch["shape"]
        self.collects_at = gc.get_threshold()
        """Before the target, which may set others."""
        self.imported = False
        self.module: types.ModuleType | None = None
        self.found: Any = None
        self.instance: Any = None
        self.app: Tool | None = None
        self.kind: str | None = None
        """The kind of the target, by its name in `handlers/kinds.py`."""
        self.served: TargetKind | None = None
        self.warnings: list[str] = []
        self.notes: list[str] = []
        """What users cannot change."""
        self.plan: Plan | None = None
        """Why and with what the zygote starts afresh, or has."""
        self.starts_afresh = False
        """True: this image is none to fork from."""
        self.seeded: tuple[list[Any], list[Any]] = ([], [])
        """Generators that the system has seeded: of `random`, and bit generators of numpy."""
        self.known: dict[str, Tool] = {}
        """Its tools, by name."""
        self.tasks: Tasks | None = None
        """Those of a target that is a Celery app."""
        self.gil_module: str | None = None
        self.schemas: dict[str, Any] | None = None
        """Schemas of its tools, if a network front can reach them."""
        self.script: Script | None = None
        self.told_of_logs: mmap.mmap | None = None
        if self.options.get("logging") is not None:
            self.told_of_logs = shared_byte()
        self.told_of_start: mmap.mmap | None = None
        """Whether one has said that it could not start, in pools of programs. Those of servers have a log."""
        if self.options.get("argv"):
            self.told_of_start = shared_byte()
        if self.options.get("settings") is not None:
            importlib.import_module("clutch._worker.settings")  # for all workers, each of which applies them
        self.told_of_values: mmap.mmap | None = None
        if self.options.get("values"):
            self.told_of_values = shared_byte()

    @classmethod
    def load(cls, launch: dict[str, Any], plan: Plan | None = None) -> Image:
        """Prepares the process and loads what `preload` says. Raises what the import raises.

        `plan`: that of the program before.
        """
        global is_here
        is_here = True
        image = cls(launch)
        image.prepare()
        preload = image.options.get("preload", "auto") if launch["start"] == "fork" else False
        if plan is not None:
            image.take_over(plan)
        elif isinstance(preload, list):
            for name in preload:
                importlib.import_module(name)
        elif preload:
            image.preload(afresh=preload == "auto")
        return image

    def preload(self, afresh: bool) -> None:
        """Imports the target and looks at what that has left. `afresh`: makes a plan if a fork would share or lack any
        of it; otherwise it is told only."""
        before, roots = list(sys.modules), Roots()
        sys.meta_path.insert(0, roots)  # type: ignore[arg-type]
        try:
            with ImportWatch() as watch, SharedPorts(os.getppid()):
                self.import_target()
        finally:
            sys.meta_path.remove(roots)  # type: ignore[arg-type]
        self.describe_tools()
        found = watch.found()
        self.seeded = watch.generators, numpy_generators(watch.entropy)
        forget_seed_of_sqlite()
        if watch.appended:
            write_out(watch.appended)
        if found and afresh:
            self.plan = Plan(self.launch, self.report(), found, libraries(before), roots.changes)
            self.starts_afresh = True
        elif found:
            self.warnings.append(
                f"importing the target left what forked workers share or lack ({'; '.join(found)}): do this in "
                '@clutch.on_start, or leave preload at "auto"'
            )

    def take_over(self, plan: Plan) -> None:
        """Imports the libraries of a plan. What is known of the target is what its import has shown before."""
        self.plan = plan
        self.starts_afresh = not plan.import_libraries()
        if self.starts_afresh:
            return
        if plan.report["shape"] is not None:
            self.shape = plan.report["shape"]
        if plan.report["interface"] is not None:
            from clutch._worker.handlers import kinds

            self.served = kinds.KINDS[plan.report["interface"]]
        if plan.is_of_libraries():
            self.notes.append(plan.words())
        else:
            self.warnings.append(plan.words())

    def prepare(self) -> None:
        """Set up the output, the caller's arguments, sys.path, folder, key and script; patch for greenlets before any
        import."""
        tracebacks.print_at_once()
        if self.options.get("log_format") == "json":
            # Here, since others need nothing of it.
            from clutch._worker.json_lines import write_tracebacks

            for stream in (sys.stdout, sys.stderr):
                write_tracebacks(stream)
        sys.argv[:] = self.options.get("argv") or sys.argv
        if self.options.get("cwd"):
            os.chdir(self.options["cwd"])
        if self.options.get("sys_path"):
            own = [path for path in sys.path if path not in self.options["sys_path"]]
            sys.path[:] = [*self.options["sys_path"], *own]
        if self.shape["profile"] == "greenlet":
            patch_for_greenlets()
        if self.options.get("authkey"):
            from multiprocessing import process

            process.current_process().authkey = bytes.fromhex(self.options["authkey"])
        if self.options.get("main"):
            self.script = Script(self.options["main"], self.options["main_imports"])

    def import_target(self) -> None:
        """Import the target, or run the script if there is none, and record the effects on the process."""
        self.imported = True
        with watch_gil(self._note_gil):
            if self.options.get("target"):
                self.module, self.found = find_target(self.options["target"])
                if self.script is not None:
                    self.script.prepare()
            elif self.script is not None:
                self.script.load_early()
            if self.options.get("app"):
                self._take_app(self.options["app"])
                self._check_filters()
            else:
                self.tasks = tasks_of(self.found, self.shape)
            if self.options.get("validate"):
                self._check_tools()
        self._check_patched()
        self._check_gil()
        if not self._makes_instance():
            self._find_marked(self.found)
            self._check_queues(self.options.get("queues") or ())

    def _check_filters(self) -> None:
        """Tells who sets up the access log of another server that it is none of theirs."""
        for name in ("uvicorn.access", "gunicorn.access"):
            logger = logging.root.manager.loggerDict.get(name)
            if isinstance(logger, logging.Logger) and (logger.filters or logger.handlers):
                self.warnings.append(
                    f"filters and handlers of the logger {name} have no effect: the access log is Clutch's own; "
                    "--access-log-skip /health leaves paths out of it"
                )

    def _check_patched(self) -> None:
        """Checks for code that gevent has patched: it waits in a hub, which only the main thread has. Raises LoadError
        where slots are other threads, or tasks of an event loop."""
        monkey, profile = sys.modules.get("gevent.monkey"), self.shape["profile"]
        if monkey is None or profile == "greenlet" or (profile == "process" and not self.needs_loop):
            return
        patched = [name for name in WAITING if monkey.is_module_patched(name)]
        if patched:
            raise LoadError(
                f"the target has patched {', '.join(patched)} for gevent, with which the {profile} profile does not "
                'work: set profile = "greenlet", or do without gevent.monkey.patch_all()'
            )

    def _take_app(self, options: dict[str, Any]) -> None:
        """Report a target that cannot be served now, not at its first client. Some kinds choose their profile."""
        from clutch._worker.handlers import kinds

        try:
            self.found, self.kind = kinds.find(self.options["target"], self.found, options)
        except ConfigError as error:
            raise LoadError(str(error)) from None
        self.served = kinds.KINDS[self.kind]
        if self.served.shape is not None and not self.options.get("profile_given"):
            self.shape = self.served.shape(self.shape)

    @property
    def needs_loop(self) -> bool:
        """Returns whether the target runs on event loops even if slots are processes or threads."""
        return self.served is not None and self.served.needs_loop

    def _check_tools(self) -> None:
        """Report tools that network callers could not call now, not at the first call."""
        from clutch._worker.handlers.json import JsonFace

        for name, (function, _) in self.tools(self.found).items():
            try:
                JsonFace(name, function)
            except ConfigError as error:
                self.warnings.append(f"{error}: it cannot be called over the network")

    def describe_tools(self) -> None:
        """Make the schemas for network callers. The tools stay callable if that fails."""
        if not (self.options.get("validate") and self.options.get("target")):
            return
        from clutch._worker.handlers.schema import describe

        tools = {name: function for name, (function, _) in self.tools(self.found).items()}
        owner = self.found if isinstance(self.found, type) else None
        try:
            self.schemas = describe(tools, owner, self.launch["pool"])
        except Exception as error:  # pydantic's, or of code that a hint runs
            self.warnings.append(f"the tools have no schemas: {type(error).__name__}: {error}")

    def _note_gil(self, text: str) -> None:
        self.gil_module = text.partition("module '")[2].partition("'")[0] or "unknown"

    def _check_gil(self) -> None:
        """On a free-threaded build in the thread profile: an import that turned the GIL back on, by policy."""
        free_threaded = "t" in sys.abiflags
        if not free_threaded or not gil_is_enabled():
            return
        policy = self.options.get("gil_policy", "warn")
        module = self.gil_module or "an extension module"
        text = f"importing {module!r} turned the GIL back on: threads of this pool do not run in parallel"
        if policy == "fail":
            raise LoadError(f'{text}; do without it, or set gil_policy to "warn" or "processes"')
        if policy == "processes" and self.shape["profile"] == "thread":
            workers = self.shape["workers"] * self.shape["threads"]
            self.shape = {"profile": "process", "workers": workers, "threads": 1, "tasks": 1}
            text += f"; running {workers} processes instead"
        self.warnings.append(text)

    def report(self) -> dict[str, Any]:
        """The description of the image for the dispatcher."""
        for kind, texts in (("warning", self.warnings), ("info", self.notes)):
            for text in texts:
                print(f"{kind}: {text}", file=sys.stderr, flush=True)
        if self.plan is not None:
            return {**self.plan.report, "warnings": [*self.plan.report["warnings"], *self.warnings]}
        return {
            "warnings": self.warnings,
            "shape": self.shape if self.shape != self.launch["shape"] else None,
            "tools": self._names(),
            "async_tools": self._async_tools(),
            "schemas": self.schemas,
            "interface": self.kind,
            "python": sys.version.split()[0],
            "gil": gil_is_enabled(),
        }

    def _names(self) -> list[str] | None:
        if self.tasks is not None:
            return self.tasks.names
        return sorted(self.tools(self.found)) if self.options.get("target") and self.module else None

    def _async_tools(self) -> list[str]:
        """Names of tools that are `async def`, as many as anybody looks at."""
        tools = self.tools(self.found) if self.options.get("target") and self.module else {}
        is_async = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        return sorted(name for name, (function, _) in tools.items() if any(is_it(function) for is_it in is_async))[
            :ASYNC_TOOLS_MAX
        ]

    # ---- in a worker

    def start(self, worker: _core.Worker | None = None, imported: Callable[[], object] = lambda: None) -> None:
        """Create the instance of a class target, run the hooks, and create the tool of an app. `imported` is called
        when the target has been imported here."""
        if not self.imported:
            self.import_target()
            imported()
        if self._makes_instance():
            self._find_marked(self.found())
        elif self.options.get("initializer"):
            self._find_marked(self.found)  # which it may have changed
        if worker is not None and self.served is not None:
            self.app = self.served.entry(self.instance, self.options["app"], self.shape["profile"], worker)
        if self.tasks is not None:
            self.tasks.start()
        self.run_hooks("start")
        self._check_patched()

    def run_hooks(self, when: str) -> None:
        for hook, at in self.hooks.items():
            if at == when:
                hook()

    def _makes_instance(self) -> bool:
        """Returns whether the target is a class and each worker has an instance of it."""
        return isinstance(self.found, type) and (self.served is None or self.served.has_instances)

    def _find_marked(self, instance: Any) -> None:
        """Tools and hooks. Before the fork where it can be: each worker has for itself what a look at it touches."""
        self.instance = instance
        tools = self.tools(instance)
        self.known = {name: Tool(name, function, options) for name, (function, options) in tools.items()}
        self._check_retries()
        holders = [vars(self.module) if self.module else {}, members(instance)]
        marked = ((value, mark_of(value, HOOK_MARK)) for names in holders for value in names.values())
        self.hooks = {value: when for value, when in marked if type(when) is str and when in HOOKS}

    def _check_retries(self) -> None:
        """Reports names of exceptions that mean nothing now, not when a job has failed."""
        for name, tool in self.known.items():
            for problem, is_certain in retry_problems(tool.options):
                if is_certain:
                    raise LoadError(f"tool {name!r}: {problem}")
                self.warnings.append(f"tool {name!r}: {problem}")

    def _check_queues(self, taken: Sequence[str]) -> None:
        """Warns if its tools name queues of which none is taken from: `--queues` was forgotten."""
        named: dict[str, list[str]] = {}
        for name, tool in self.known.items():
            if tool.options.job.queue is not None:
                named.setdefault(tool.options.job.queue, []).append(name)
        if taken and named and not named.keys() & set(taken):
            queues = "; ".join(f"{queue} ({', '.join(sorted(tools)[:3])})" for queue, tools in sorted(named.items()))
            self.warnings.append(
                f"no job of these tools runs here, since their queues are not taken from: {queues}; taken from: "
                f"{', '.join(taken)}; add --queues {','.join([*taken, *sorted(named)])}, unless others take them"
            )

    @staticmethod
    def tools(holder: Any) -> dict[str, tuple[Callable[..., Any], Any]]:
        """Name to (function, options) of all that is marked as a tool."""
        tools: dict[str, tuple[Callable[..., Any], Any]] = {}
        for value in members(holder).values():
            options = mark_of(value, TOOL_MARK)
            if not isinstance(options, ToolOptions):  # of some objects, each name is an attribute
                continue
            name = options.name or value.__name__
            other, _ = tools.setdefault(name, (value, options))
            if other != value:
                raise LoadError(
                    f"the target has two tools named {name!r}, {place(other)} and {place(value)}: give one of them "
                    f'another name, such as @tool(name="{value.__module__.rpartition(".")[2]}.{name}")'
                )
        return tools

    def tool(self, name: str) -> Tool:
        """Return the tool of this name, or the app if there is no name. Raises NoSuchTool with the nearest names."""
        if not name and self.app is not None:
            return self.app
        if self.tasks is not None:
            return self.tasks.tool(name)
        if name in self.known:
            return self.known[name]
        target = self.options.get("target")
        if target is None:
            raise NoSuchTool(f"no tool {name!r}: this pool has no target; pass a function, or give the pool a target")
        near = nearest(name, self.known, 3)
        some = ", ".join(sorted(self.known)[:10]) + (" …" if len(self.known) > 10 else "")
        has = some or "none: mark functions with @clutch.tool"
        hint = f"nearest: {', '.join(near)}" if near else f"it has {has}"
        raise NoSuchTool(f"target {target!r} has no tool {name!r}; {hint}", name=name)


def place(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def members(holder: Any) -> dict[str, Any]:
    """Public attributes of a module, a class or an instance, bound; properties are not run."""
    if holder is None:
        return {}
    if isinstance(holder, types.ModuleType):
        return dict(vars(holder))
    kind = holder if isinstance(holder, type) else type(holder)
    names = [name for name in dir(kind) if callable(getattr(kind, name, None)) and not name.startswith("__")]
    return {name: getattr(holder, name) for name in names}


def find_target(target: str) -> tuple[types.ModuleType, Any]:
    """Resolve `package.module` or `package.module:object` to (module, object with the tools); of several modules, to
    one that has what is in any of them."""
    if "," in target:
        together = types.ModuleType(target)
        for name in target.split(","):
            try:
                names = vars(find_target(name)[0])
            except LoadError as error:  # of rq, whose workers are given the names of queues
                raise LoadError(f"{error}; each name here is a module, and queues are named by --queues") from error
            # Two of them may have a helper of one name; of two tools, whoever looks for tools tells.
            together.__dict__.update({f"{name}.{inside}": value for inside, value in names.items()})
        return together, together
    name, _, path = target.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise LoadError(f"target {target!r} does not import: {error}{_as_imported(name)}") from error
        raise
    found: Any = module
    for part in filter(None, path.split(".")):
        if not hasattr(found, part):
            near = nearest(part, dir(found), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise LoadError(f"target {target!r}: {name!r} imports, but has no {part!r}{hint}")
        found = getattr(found, part)
    return module, found


def tasks_of(found: Any, shape: dict[str, Any]) -> Tasks | None:
    """The tasks of a target that is a Celery app, or has one and no tools."""
    if "celery" not in sys.modules or (isinstance(found, types.ModuleType) and Image.tools(found)):
        return None
    from clutch.celery import apps

    app = apps.find(found)
    if app is None:
        return None
    from clutch.celery.tasks import Tasks

    return Tasks(app, has_loop=shape["profile"] == "async")


def not_imported(subject: str, error: BaseException) -> str:
    """Returns why a target was not loaded, with the traceback from the user's own first line on."""
    if isinstance(error, LoadError):
        return str(error)
    return f"{subject} does not import: {type_name(error)}: {error}{hint_of(error)}\n{traceback_of(error)}".rstrip("\n")


def hint_of(error: BaseException) -> str:
    """What to do about an error of an import, where that is known: after its text, or empty."""
    kind = type_name(error)
    is_of_django = kind == "django.core.exceptions.AppRegistryNotReady" or (
        kind == "django.core.exceptions.ImproperlyConfigured" and "settings are not configured" in str(error)
    )
    return f"; {NEEDS_DJANGO}" if is_of_django else ""


NEEDS_DJANGO = (
    "Django is not set up here: `clutch work --django SETTINGS` sets it up and runs the tasks of a project; `clutch "
    "jobs enqueue` and `retry` take a task by its path alone, such as shop.tasks.confirm"
)


def nearest(name: str, known: Iterable[str], most: int) -> list[str]:
    import difflib  # for errors only

    return difflib.get_close_matches(name, list(known), most)


def _as_imported(name: str) -> str:
    """Where was looked, or a hint if the target is the path of a file."""
    module = name.removesuffix(".py")
    if module == name:
        return f" in {os.getcwd()} or among what is installed"
    return f"; a module is named as in `import`: {module!r}"


GIL_WARNING = "global interpreter lock (GIL) has been enabled"


@contextlib.contextmanager
def watch_gil(note: Callable[[str], object]) -> Iterator[None]:
    """Tells of imports that turn the GIL on, on a free-threaded build, by their warnings. What the imported code does
    with warnings, it does as without us."""
    if "t" not in sys.abiflags:
        yield
        return
    before = warnings.showwarning

    def show(message: Any, *rest: Any, **more: Any) -> None:
        if GIL_WARNING in str(message):
            note(str(message))
        else:
            before(message, *rest, **more)

    warnings.showwarning = show
    warnings.filterwarnings("always", f".*{re.escape(GIL_WARNING)}", RuntimeWarning)
    added = warnings.filters[0]
    try:
        yield
    finally:
        if warnings.showwarning is show:
            warnings.showwarning = before
        if added in warnings.filters:
            warnings.filters.remove(added)  # type: ignore[attr-defined]


def gil_is_enabled() -> bool:
    """Returns whether the GIL is on; it always is before 3.13."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def patch_for_greenlets() -> None:
    try:
        from gevent import monkey
    except ImportError as error:
        message = "the greenlet profile needs gevent: pip install 'clutch[greenlet]'"
        raise LoadError(f"{message} ({error})") from error
    monkey.patch_all()
