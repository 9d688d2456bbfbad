"""The same jobs as tools of Clutch, which the peers' environments do not have."""

from __future__ import annotations

from benches.jobs import work
from clutch import tool

mark, mark_async = tool(work.mark), tool(work.mark_async)
stamp, stamp_async = tool(work.stamp), tool(work.stamp_async)
nap, nap_async = tool(work.nap), tool(work.nap_async)
