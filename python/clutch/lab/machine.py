"""The machine and the versions of all that was measured: what figures are worth nothing without."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import sys
import sysconfig
from pathlib import Path


def facts() -> dict[str, str]:
    """By name, for people and for saved files."""
    cpus = len(os.sched_getaffinity(0))
    found = {
        "CPUs": f"{cpus} of {os.cpu_count()}, {processor()}",
        "memory": f"{memory_bytes() / 1e9:.1f} GB",
        "kernel": f"Linux {platform.release()}",
        "Python": python(),
        "Clutch": version_of("clutch"),
        "load": "{:.2f} {:.2f} {:.2f} (1, 5, 15 minutes)".format(*os.getloadavg()),
        "placement": "load and work share all CPUs; each server has a session of its own, and nothing is pinned",
    }
    for name, path in {
        "autogroups": "/proc/sys/kernel/sched_autogroup_enabled",
        "governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        "CPU limit": "/sys/fs/cgroup/cpu.max",
    }.items():
        with contextlib.suppress(OSError):
            found[name] = Path(path).read_text().strip()
    return found


def line() -> str:
    """The machine in one line."""
    return f"{len(os.sched_getaffinity(0))} CPUs, Linux {os.uname().release}, {python()}"


def python() -> str:
    """With the number that tells releases of one series apart: 3.14.0 to 3.14.4 have another garbage collector than
    3.14.5."""
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    built = sysconfig.get_config_var("Py_GIL_DISABLED")
    kind = (" free-threaded" + (" with the GIL on" if gil else "")) if built else ""
    return f"{platform.python_implementation()} {platform.python_version()}{kind}"


def packages() -> dict[str, str]:
    """Versions of all packages of this environment."""
    found = ((found.name, found.version) for found in importlib.metadata.distributions())
    return {name: version for name, version in sorted(found) if name}


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def processor() -> str:
    with contextlib.suppress(OSError):
        for entry in Path("/proc/cpuinfo").read_text().splitlines():
            if entry.startswith("model name"):
                return entry.partition(":")[2].strip()
    return platform.machine()


def memory_bytes() -> int:
    """Of the machine, or as the cgroup limits it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total
