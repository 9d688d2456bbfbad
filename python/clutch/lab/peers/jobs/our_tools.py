"""The job of a comparison as tools of Clutch."""

from __future__ import annotations

from typing import Any

import clutch
from clutch.lab.drivers import marks


@clutch.tool
def job(**kwargs: Any) -> None:
    marks.job(**kwargs)


@clutch.tool
async def job_async(**kwargs: Any) -> None:
    await marks.job_async(**kwargs)
