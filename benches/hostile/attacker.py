"""`python -m benches.hostile.attacker PLAN`: one attack; prints what the server answered and whether that is wrong."""

from __future__ import annotations

import json
import resource
import sys

from benches.hostile.attack import Target
from benches.hostile.catalogue import ATTACKS


def main(plan: str) -> None:
    name, port, admin_port, seconds = json.loads(plan)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        answer, wrong = ATTACKS[name].act(Target(port, admin_port, seconds)), False
    except AssertionError as error:
        answer, wrong = str(error), True
    print(json.dumps([answer, wrong]))


if __name__ == "__main__":
    main(sys.argv[1])
