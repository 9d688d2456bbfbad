"""`python -m benches.jobs [row …] [--quick] [--json] [--peers]`: job queues beside their peers."""

from __future__ import annotations

import sys

from benches import command

if __name__ == "__main__":
    sys.exit(command.main("benches.jobs", "benches.jobs.rows"))
