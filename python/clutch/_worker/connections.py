"""Old connections of Django's: closed before and after each call, job and item, as Django does it around a request.

`crates/clutch-py/src/handlers/connections.rs` calls this where Django is, and the profile whose loops run batches.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from typing import Any

from clutch._worker.failure import was_interrupted


def close_old() -> None:
    """Close the connections of this thread, or greenlet, that are lost, or older than `CONN_MAX_AGE`."""
    try:
        sys.modules["django.db"].close_old_connections()
    except Exception as error:  # it is loaded in part, has no settings, or a loop runs here
        if was_interrupted(error):
            raise


async def around(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine between two closings, in the thread in which Django's queries of its context run."""
    try:
        from asgiref.sync import sync_to_async
    except ImportError:
        return await coroutine
    try:
        await sync_to_async(close_old)()
    except BaseException:
        coroutine.close()
        raise
    try:
        return await coroutine
    finally:
        await sync_to_async(close_old)()


def is_django_here() -> bool:
    return "django.db" in sys.modules
