"""A store of jobs, and a dispatcher in the test's process that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import clutch
from clutch._jobs.records import ENDS
from clutch.jobs import Job
from support.clutch_process import COMMAND, PYTHON_PATH, WAIT_SECONDS, Dispatcher, soon


def worker(folder: Path, store: str, *flags: str) -> Dispatcher:
    """`clutch work` with the tools of `job_tools` and short leases."""
    arguments = ["work", "job_tools", "--store", store, "--lease", "1s", "--workers", "2", *flags]
    return Dispatcher(folder, [*COMMAND, *arguments])


class JobsHouse:
    """`pool`: its options; its tools are those of `job_tools`."""

    def __init__(self, folder: Path, pool: Mapping[str, Any], front: str = "", url: str | None = None) -> None:
        self.url = url or f"sqlite:///{folder}/jobs.db"
        self.jobs = clutch.Jobs(self.url)
        self._config = folder / "clutch.toml"
        options = "\n".join(f"{name} = {toml(value)}" for name, value in {"target": "job_tools", **pool}.items())
        options += f'\nenv = {{ PYTHONPATH = "{PYTHON_PATH}" }}'
        self._config.write_text(f'[pools.work]\n{options}\n[stores.main]\nurl = "{self.url}"\n[fronts.jobs]\n{front}\n')
        self.dispatcher: clutch.Dispatcher | None = None

    def start(self) -> Self:
        self.dispatcher = clutch.Dispatcher(self._config)
        self.dispatcher.start()
        self.dispatcher.wait_ready()
        return self

    def stop(self, grace: float | None = None) -> None:
        if self.dispatcher is not None:
            self.dispatcher.stop(grace)
            self.dispatcher = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop(0)

    def run(self, tool: Any, *args: Any, **kwargs: Any) -> Any:
        """What a job returned."""
        return self.jobs.result(self.jobs.options(result=60).enqueue(tool, *args, **kwargs), WAIT_SECONDS)

    def ended(self, job: str) -> Job:
        return self.until(job, lambda found: found.state in ENDS)

    def until(self, job: str, condition: Callable[[Job], object]) -> Job:
        found: list[Job] = []

        def is_so() -> bool:
            found[:] = [seen for seen in [self.jobs.get(job)] if seen is not None]
            return bool(found and condition(found[0]))

        soon(is_so)
        return found[0]


def toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
