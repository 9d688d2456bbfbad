"""`python -m benches.serve [row …] [--quick] [--json] [--peers]`: served apps beside their peers."""

from __future__ import annotations

import sys

from benches import command

if __name__ == "__main__":
    sys.exit(command.main("benches.serve", "benches.serve.rows"))
