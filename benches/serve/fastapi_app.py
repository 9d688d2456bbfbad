"""The FastAPI app of the lab's grid, and which worker answers."""

import asyncio
import os

from clutch.lab.samples.fastapi_app import app

_PID_SECONDS = 0.05


@app.get("/pid")
async def pid() -> int:
    """Slow enough for requests at the same time to reach all workers."""
    await asyncio.sleep(_PID_SECONDS)
    return os.getpid()
