"""Many workers that answer all at once, and what they weigh then: `python -m benches.calls.crowd WHO COUNT`.

WHO is clutch, or a start method of ProcessPoolExecutor. Prints a line of JSON. Spawned workers load this file as their
main module, so it imports next to nothing.
"""

import importlib
import json
import os
import sys
import tempfile
import time


def load_numpy() -> None:
    """The initializer of the executor's workers."""
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
    make = clutch_pool() if who == "clutch" else executor(who)
    with tempfile.TemporaryDirectory() as folder:
        arrivals, gate = fifo(folder, "arrivals"), fifo(folder, "gate")
        began = time.perf_counter()
        with make(count) as pool:
            futures = [pool.submit(rendezvous, arrivals.name, gate.name) for _ in range(count)]
            arrived = 0
            while arrived < count:
                arrived += len(arrivals.read(count))
            gate.write(b"." * count)
            assert all(future.result() for future in futures), "a worker answered without numpy"
            print(json.dumps({"seconds": time.perf_counter() - began, "megabytes": weight_mb()}))


def clutch_pool():
    import clutch

    return lambda count: clutch.Pool("benches.calls.numpy_target", profile="process", workers=count)


def executor(start_method):
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context(start_method)
    return lambda count: ProcessPoolExecutor(count, mp_context=context, initializer=load_numpy)


def fifo(folder: str, name: str):
    """Opened for both directions, so that neither side's open blocks."""
    path = os.path.join(folder, name)
    os.mkfifo(path)
    return open(path, "r+b", buffering=0)


def weight_mb() -> float:
    from clutch.lab import watching

    return watching.pss_bytes(watching.below(os.getpid())) / 1e6


if __name__ == "__main__":
    main()
