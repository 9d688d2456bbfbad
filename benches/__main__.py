"""`python -m benches [row …] [--quick] [--json]`: Clutch's calls beside their peers."""

from __future__ import annotations

import sys

from benches import command

if __name__ == "__main__":
    sys.exit(command.main("benches", "benches.rows"))
