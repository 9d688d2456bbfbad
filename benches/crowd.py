"""One sample of the start row: make many workers, have all of them answer at once, weigh the process tree.

Run as `python -m benches.crowd clutch|spawn|fork COUNT`, where spawn and fork are the peer's start methods; prints one
JSON line. The spawned workers of the peer load this file as their main module, so it imports next to nothing.
"""

import importlib
import json
import os
import sys
import tempfile
import time


def load_numpy() -> None:
    """The peer's initializer."""
    importlib.import_module("numpy")


def rendezvous(arrivals: str, gate: str) -> bool:
    """Report this worker as arrived, wait until all have, and say whether numpy is loaded here."""
    with open(arrivals, "wb", buffering=0) as fifo:
        fifo.write(b".")
    with open(gate, "rb", buffering=0) as fifo:
        fifo.read(1)
    return "numpy" in sys.modules


def main() -> None:
    who, count = sys.argv[1], int(sys.argv[2])
    make = _clutch_pool if who == "clutch" else lambda: _executor(who)
    with tempfile.TemporaryDirectory() as folder:
        arrivals, gate = _fifo(folder, "arrivals"), _fifo(folder, "gate")
        make()  # imports only; the clock starts with the pool
        began = time.perf_counter()
        with make()(count) as pool:
            futures = [pool.submit(rendezvous, arrivals.name, gate.name) for _ in range(count)]
            _wait_for_all(arrivals, count)
            gate.write(b"." * count)
            assert all(future.result() for future in futures), "a worker answered without numpy"
            seconds = time.perf_counter() - began
            print(json.dumps({"seconds": seconds, "pss_bytes": _weigh()}))


def _clutch_pool():
    import clutch

    return lambda count: clutch.Pool("benches.numpy_target", profile="process", workers=count)


def _executor(start_method):
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context(start_method)
    return lambda count: ProcessPoolExecutor(count, mp_context=context, initializer=load_numpy)


def _fifo(folder: str, name: str):
    """A FIFO opened for both directions, so that neither side's open blocks."""
    path = os.path.join(folder, name)
    os.mkfifo(path)
    return open(path, "r+b", buffering=0)


def _wait_for_all(arrivals, count: int) -> None:
    arrived = 0
    while arrived < count:
        arrived += len(arrivals.read(count))


def _weigh() -> int:
    from benches import processes

    return processes.pss_bytes(processes.tree())


if __name__ == "__main__":
    main()
