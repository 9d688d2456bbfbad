"""Where `clutch.Pool` differs from the standard library's process pool, as far as that one's own cases can tell.

docs/differences.md says the same; a test compares them.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field

from clutch import BadArguments, RemoteError

FIRST, LAST = (3, 13), (3, 15)
"""The Pythons whose cases these are."""


@dataclass(frozen=True)
class Difference:
    """A reason, in a sentence, and the cases that fail by it and with which error."""

    reason: str
    error: type[BaseException]
    cases: tuple[str, ...]
    later: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict)
    """Those of later Pythons, by the first that has them."""

    def cases_of(self, python: tuple[int, int]) -> list[str]:
        later = (case for first, cases in self.later.items() if first <= python for case in cases)
        return [*self.cases, *later]

    def __str__(self) -> str:
        names = ", ".join(f"`{case}`" for case in self.cases_of(LAST))
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
        {
            (3, 14): (
                "ProcessPoolExecutorTest.test_broken_process_pool_traceback",
                "ProcessPoolExecutorTest.test_force_shutdown_workers",
                "ProcessPoolExecutorTest.test_force_shutdown_workers_invalid_op",
                "ProcessPoolExecutorTest.test_force_shutdown_workers_stops_pool",
                "ProcessPoolExecutorTest.test_force_shutdown_during_max_tasks_worker_exit",
                "ProcessPoolExecutorTest.test_failed_worker_replacement_breaks_pool",
                "ProcessPoolExecutorTest.test_gc_during_max_tasks_worker_exit_gh152967",
                "ProcessPoolExecutorTest.test_shutdown_no_wait_max_tasks_gh119592",
                "ProcessPoolShutdownTest.test_shutdown_gh_132969_case_1",
                "ProcessPoolShutdownTest.test_shutdown_gh_132969_case_2",
            ),
        },
    ),
    Difference(
        "How a worker ended is in the message of `WorkerLost`, not in a cause of a private class.",
        AssertionError,
        (),
        {(3, 15): ("ProcessPoolExecutorTest.test_traceback_when_child_process_terminates_abruptly",)},
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
        "These tests look whether `terminate_workers()` and `kill_workers()` call the private `_force_shutdown`.",
        AssertionError,
        (),
        {(3, 14): ("ProcessPoolExecutorTest.test_terminate_workers", "ProcessPoolExecutorTest.test_kill_workers")},
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
