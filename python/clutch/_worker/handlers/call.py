"""The handler of calls: a function with what is known of it, and its face for JSON work.

`_core` reads `protocol`, `function`, `simple` and `attempt_ms` of a Tool, and calls `decode_json`, `encode_json` and
`encode_item`; of a Definition it calls `read`.
"""

from __future__ import annotations

import inspect
import pickle
import threading
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

from clutch._worker import script
from clutch._worker.exclusive import Exclusive
from clutch._worker.failure import was_interrupted
from clutch._worker.script import ScriptError
from clutch.tools import ToolOptions, options_of


class Turns:
    """A lock for threads that have it in the order in which they asked. `threading.Lock` gives it to any of them."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_held = False
        self._waiting: deque[threading.Lock] = deque()

    def ask(self) -> threading.Lock | None:
        """None: it is held from now on. Otherwise it is as soon as this can be acquired."""
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return None
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
            return mine

    def give_up(self, mine: threading.Lock) -> None:
        with self._guard:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return
        self.release()  # its turn had come meanwhile

    def release(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_held = False


class Tool:
    """A function that can be called."""

    protocol: str | None = None
    """The protocol of an app, which names its native handler (kinds.rs); None: a function."""
    lifecycle: Callable[[], Any] | None = None
    """Makes the `Lifecycle` (profiles/base.py) on each event loop that runs it."""
    is_eager = False
    """True if its coroutines may take their first step as soon as a loop reads their work."""

    def __init__(self, name: str, function: Callable[..., Any], options: ToolOptions | None = None) -> None:
        self.name = name
        self.function = function
        self.options = options or ToolOptions()
        self.simple = not (self.options.serial or self.options.main_thread)
        self.attempt_ms = self.options.attempt_ms
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self.turns = Turns()
        self._face: Any = None

    @classmethod
    def of_function(cls, function: Callable[..., Any]) -> Tool:
        """A function that was passed directly; as a tool it keeps its options."""
        options = options_of(function)
        name = options.name if options is not None else None
        return cls(name or getattr(function, "__qualname__", repr(function)), function, options)

    @classmethod
    def broken(cls, error: BaseException, by_name: bool) -> Tool:
        """Stands in for a function that was not found: every call raises the reason."""
        from clutch.errors import BadArguments

        error = script.explain(error)
        if isinstance(error, ScriptError):
            error = BadArguments(str(error))
        elif not by_name:
            what = error if isinstance(error, AttributeError | ImportError) else f"{type(error).__name__}: {error}"
            error = BadArguments(f"the function cannot be found in the worker: {what}; {script.where_to_put(error)}")

        def fail(*_args: Any, **_kwargs: Any) -> None:
            raise error.with_traceback(None)

        tool = cls("?", fail)
        tool.decode_json = fail  # type: ignore[method-assign]
        return tool

    # ---- JSON work

    @property
    def face(self) -> Any:
        """Validation and encoding by the function's hints; made on first use, so that only network work pays."""
        if self._face is None:
            from clutch._worker.handlers.json import JsonFace

            self._face = JsonFace(self.name, self.function)
        return self._face

    def decode_json(self, body: bytes) -> dict[str, Any]:
        return self.face.decode(body)

    def encode_json(self, value: Any) -> bytes:
        return self.face.encode(value)

    def encode_item(self, value: Any) -> bytes:
        return self.face.encode_item(value)


class Definition:
    """A pickled function. The first call unpickles it, which may import a module or run the script."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._reading = Exclusive()
        self._tool: Tool | None = None

    def read(self) -> Tool:
        """Unpickle once for all calls, even if it fails. After an interrupt, the next call unpickles again."""
        return self._tool or self._reading.run(self._read)

    def _read(self) -> Tool:
        if self._tool is None:
            try:
                self._tool = Tool.of_function(self._unpickled())
            except BaseException as error:
                if was_interrupted(error):
                    raise
                self._tool = Tool.broken(error, by_name=False)
        return self._tool

    def _unpickled(self) -> Callable[..., Any]:
        """The program may turn warnings into exceptions since it has imported the module; the import is not to fail of
        them here."""
        try:
            return pickle.loads(self._body)
        except Warning:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return pickle.loads(self._body)
