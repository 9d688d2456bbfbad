"""Where `clutch.Pool` differs from the standard library's process pool, as far as that one's own cases can tell.

docs/differences.md says the same; a test compares them.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from clutch import BadArguments, RemoteError

PYTHON = (3, 13)
"""Whose cases these are."""


@dataclass(frozen=True)
class Difference:
    """A reason, in a sentence, and the cases that fail by it and with which error."""

    reason: str
    error: type[BaseException]
    cases: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(f"`{case}`" for case in self.cases)
        return textwrap.fill(f"* {self.reason} ({names})", 120, subsequent_indent="  ", break_on_hyphens=False)


DIFFERENCES = (
    Difference(
        "The test reads private attributes of ProcessPoolExecutor (`_processes`, `_broken`, "
        "`_executor_manager_thread`). A `Pool` has `stats()` instead, and a lost worker or a failed initializer does "
        "not break it for good. It does have `_max_workers`, which some programs read: how many calls run at once.",
        AttributeError,
        (
            "ProcessPoolExecutorTest.test_killed_child",
            "ProcessPoolExecutorTest.test_idle_process_reuse_one",
            "ProcessPoolExecutorTest.test_idle_process_reuse_multiple",
            "ProcessPoolExecutorTest.test_max_tasks_per_child",
            "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context",
            "ProcessPoolShutdownTest.test_context_manager_shutdown",
            "ProcessPoolShutdownTest.test_del_shutdown",
            "ProcessPoolShutdownTest.test_shutdown_no_wait",
            "ProcessPoolShutdownTest.test_processes_terminate",
            "FailingInitializerMixin.test_initializer",
            "ExecutorDeadlockTest.test_shutdown_deadlock_pickle",
        ),
    ),
    Difference(
        "The test makes the start of ProcessPoolExecutor's second Python thread fail; a `Pool` starts none.",
        TypeError,
        ("ProcessPoolExecutorTest.test_python_finalization_error",),
    ),
    Difference(
        "The worker's traceback is the cause of an exception here too, but as `clutch.errors.RemoteTraceback` instead "
        "of a private class.",
        AssertionError,
        ("ProcessPoolExecutorTest.test_traceback",),
    ),
    Difference(
        "`shutdown(cancel_futures=True)` cancels all work that has not begun; ProcessPoolExecutor still runs the work "
        "that is already in its pipe.",
        AssertionError,
        ("ProcessPoolShutdownTest.test_cancel_futures",),
    ),
    Difference(
        "A closed pool raises `PoolClosed`: a RuntimeError with the same message, but printed under its own name.",
        AssertionError,
        ("ProcessPoolShutdownTest.test_submit_after_interpreter_shutdown",),
    ),
    Difference(
        "Arguments that cannot be pickled raise `BadArguments` in `submit`, with pickle's error as its cause; "
        "ProcessPoolExecutor reports them through the future. This includes locks and queues of multiprocessing, "
        "because workers are not children of the program. Those of a `multiprocessing.Manager()` work, and so do locks "
        "of the spawn context.",
        BadArguments,
        (
            "ExecutorDeadlockTest.test_error_at_task_pickle",
            "ProcessPoolExecutorTest.test_saturation",
        ),
    ),
    Difference(
        "Arguments that cannot be unpickled fail only their own call, with `BadArguments`.",
        BadArguments,
        (
            "ExecutorDeadlockTest.test_error_at_task_unpickle",
            "ExecutorDeadlockTest.test_exit_at_task_unpickle",
        ),
    ),
    Difference(
        'A result that cannot be pickled is a `RemoteError(kind="encode")`, which cannot be mistaken for an error of '
        "the function.",
        RemoteError,
        (
            "ExecutorDeadlockTest.test_error_during_result_pickle_on_worker",
            "ExecutorDeadlockTest.test_exit_during_result_pickle_on_worker",
        ),
    ),
    Difference(
        'A result that cannot be unpickled fails only its own call, with `RemoteError(kind="decode")`.',
        RemoteError,
        ("ExecutorDeadlockTest.test_error_during_result_unpickle_in_result_handler",),
    ),
    Difference(
        "A result is unpickled in the thread that asks for it, so `sys.exit()` or Ctrl-C during that ends the program. "
        "In callbacks, such a `sys.exit()` is a `RemoteError`.",
        SystemExit,
        ("ExecutorDeadlockTest.test_exit_during_result_unpickle_in_result_handler",),
    ),
)
