"""Install the peers: `python -m benches.jobs.install`, each into a folder of its own (`benches.jobs.packages`).

One that cannot be installed is told, here and by the rows, and the others go on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from benches.jobs import contestants
from benches.jobs.packages import Packages, RedisPy

_SECONDS_MAX = 600


def main() -> int:
    """0 when all are there."""
    everyone = {one.folder: one for one in (RedisPy(), *(kind() for kind in contestants.ALL)) if one.requirements}
    installed = [install(packages) for packages in everyone.values()]
    return 0 if all(installed) else 1


def install(packages: Packages) -> bool:
    """Unless it is there. What was made of other requirements is removed first: pip leaves it in such a folder."""
    wanted = "\n".join(packages.requirements)
    if packages.installed.exists() and packages.installed.read_text() == wanted:
        return True
    shutil.rmtree(packages.folder, ignore_errors=True)
    packages.failure.unlink(missing_ok=True)
    # Its advice on conflicts is about this environment, which nothing here changes.
    flags = ["--quiet", "--disable-pip-version-check", "--no-warn-conflicts", "--target", str(packages.folder)]
    command = [sys.executable, "-m", "pip", "install", *flags, *packages.requirements]
    variables = os.environ | {"PIP_NO_INPUT": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=_SECONDS_MAX)
    if done.returncode == 0:
        packages.installed.write_text(wanted)
        return True
    shutil.rmtree(packages.folder, ignore_errors=True)
    packages.failure.parent.mkdir(parents=True, exist_ok=True)
    reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr.strip()]
    packages.failure.write_text(reasons[-1])
    print(f"bench-jobs: {packages.name} is left out: {reasons[-1]}", file=sys.stderr)
    return False


if __name__ == "__main__":
    sys.exit(main())
