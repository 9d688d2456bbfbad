"""`python -m soak [--minutes M] [--seed S] [--pools …]`: exit code 0 when nothing was lost, doubled, wrong or left."""

from __future__ import annotations

import argparse
import os
import secrets
import sys

from soak import pools
from soak.run import Soak


def main() -> None:
    wanted = _arguments()
    soak = Soak(wanted.pools, wanted.seed)
    is_whole = soak.run(60 * wanted.minutes)
    sys.stdout.flush()
    sys.stderr.flush()
    if not is_whole:
        os._exit(1)  # what hangs in the pools must not hang this, and nothing of theirs outlives it


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description="Mixed load while everything is broken.")
    parser.add_argument("--minutes", type=float, default=5.0, help="of load; default 5")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="of an earlier run, for the same kinds of events")
    parser.add_argument(
        "--pools", nargs="+", choices=pools.names(), default=pools.names(), metavar="pool", help=" ".join(pools.names())
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
