"""Event loops, threads, greenlets and other processes."""

from __future__ import annotations

from .case import STANDARD, case

CASES = [
    case(
        "asyncio",
        "a loop that has run",
        """
        import asyncio
        loop = asyncio.new_event_loop()
        loop.run_until_complete(asyncio.sleep(0))
        """,
        "return loop.run_until_complete(asyncio.sleep(0, n))",
        STANDARD,
        in_greenlets=False,
    ),
    case(
        "uvloop",
        "a loop that has run",
        """
        import asyncio, uvloop
        loop = uvloop.new_event_loop()
        loop.run_until_complete(asyncio.sleep(0))
        """,
        "return loop.run_until_complete(asyncio.sleep(0, n))",
        in_greenlets=False,
    ),
    case(
        "thread-pool",
        "an executor that has run",
        """
        from concurrent.futures import ThreadPoolExecutor
        e = ThreadPoolExecutor(2)
        e.submit(abs, 1).result()
        """,
        "return e.submit(abs, -n).result(10)",
        STANDARD,
    ),
    case(
        "multiprocessing",
        "only imported",
        "import multiprocessing",
        """return multiprocessing.get_context("spawn").Lock().acquire()""",
        STANDARD,
    ),
    case(
        "asyncio-thread",
        "a loop that runs in a thread",
        """
        import asyncio, threading
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        async def double(n):
            await asyncio.sleep(0)
            return 2 * n
        asyncio.run_coroutine_threadsafe(double(1), loop).result(10)
        """,
        "return asyncio.run_coroutine_threadsafe(double(n), loop).result(10)",
        STANDARD,
        in_greenlets=False,
    ),
    case(
        "trio",
        "a run that has ended",
        """
        import trio
        async def double(n):
            await trio.sleep(0)
            return 2 * await trio.to_thread.run_sync(abs, n)
        trio.run(double, 1)
        """,
        "return trio.run(double, n)",
        in_greenlets=False,
    ),
    case(
        "anyio",
        "a portal to a loop in a thread",
        """
        import anyio
        from anyio.from_thread import start_blocking_portal
        async def double(n):
            await anyio.sleep(0)
            return 2 * n
        entered = start_blocking_portal()
        portal = entered.__enter__()
        portal.call(double, 1)
        """,
        "return portal.call(double, n)",
        in_greenlets=False,
    ),
    case(
        "asgiref",
        "a coroutine that was waited for",
        """
        from asgiref.sync import async_to_sync, sync_to_async
        @async_to_sync
        async def double(n):
            return 2 * await sync_to_async(abs, thread_sensitive=False)(n)
        double(1)
        """,
        "return double(n)",
        in_greenlets=False,
    ),
    case(
        "crochet",
        "a reactor of Twisted in a thread",
        """
        import crochet
        crochet.setup()
        from twisted.internet import reactor
        from twisted.internet.task import deferLater
        @crochet.wait_for(timeout=5)
        def double(n):
            return deferLater(reactor, 0, lambda: 2 * n)
        double(1)
        """,
        "return double(n)",
        in_greenlets=False,
    ),
    case(
        "twisted",
        "only imported",
        """
        from twisted.internet import defer, reactor
        """,
        "return defer.succeed(n).result",
        in_greenlets=False,
    ),
    case(
        "gevent",
        "a hub with threads",
        """
        import gevent
        from gevent.pool import Pool
        gevent.get_hub().threadpool.apply(abs, (-1,))
        """,
        "return gevent.get_hub().threadpool.apply(abs, (-n,)), Pool(2).map(abs, [-n])",
    ),
    case(
        "gevent-patched",
        "all patched",
        """
        from gevent import monkey
        monkey.patch_all()
        import gevent, threading, time
        gevent.spawn(time.sleep, 0).join()
        """,
        """
        thread = threading.Thread(target=time.sleep, args=(0.01,))
        thread.start()
        thread.join()
        return gevent.spawn(abs, -n).get(5)
        """,
        "gevent",
    ),
    case(
        "eventlet",
        "a hub with threads",
        """
        import eventlet, eventlet.tpool
        eventlet.tpool.execute(abs, -1)
        """,
        "return eventlet.tpool.execute(abs, -n), list(eventlet.GreenPool(2).imap(abs, [-n]))",
        in_greenlets=False,
    ),
    case(
        "process-pool",
        "an executor that has run",
        """
        from concurrent.futures import ProcessPoolExecutor
        executor = ProcessPoolExecutor(2)
        executor.submit(abs, -1).result()
        """,
        "return executor.submit(abs, -n).result(10)",
        STANDARD,
    ),
    case(
        "multiprocessing-pool",
        "a pool that has run",
        """
        import multiprocessing
        pool = multiprocessing.Pool(2)
        pool.map(abs, [-1, -2])
        """,
        "return pool.map_async(abs, [-n, -1]).get(10)",
        STANDARD,
    ),
    case(
        "multiprocessing-manager",
        "a manager with a dictionary",
        """
        import multiprocessing
        manager = multiprocessing.Manager()
        words = manager.dict(k=7)
        """,
        """return words["k"] + n""",
        STANDARD,
    ),
    case(
        "multiprocessing-queue",
        "a queue that was put to",
        """
        import multiprocessing
        queue = multiprocessing.Queue()
        queue.put(1)
        queue.get(timeout=5)
        """,
        """
        queue.put(n)
        return queue.get(timeout=5)
        """,
        STANDARD,
    ),
    case(
        "shared-memory",
        "a block of shared memory",
        """
        from multiprocessing.shared_memory import SharedMemory
        memory = SharedMemory(create=True, size=100)
        memory.buf[0] = 7
        """,
        "return memory.buf[0] + n",
        STANDARD,
    ),
    case(
        "loky",
        "an executor that has run",
        """
        from loky import get_reusable_executor
        get_reusable_executor(max_workers=2, timeout=5).submit(abs, -1).result()
        """,
        "return get_reusable_executor(max_workers=2, timeout=5).submit(abs, -n).result(15)",
    ),
    case(
        "pebble",
        "a pool of processes that has run",
        """
        from pebble import ProcessPool
        pool = ProcessPool(max_workers=1)
        pool.schedule(abs, args=[-1]).result(10)
        """,
        "return pool.schedule(abs, args=[-n]).result(10)",
    ),
    case(
        "subprocess",
        "a program that answers over pipes",
        """
        import subprocess
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        def ask(n):
            child.stdin.write(b"%06d\\n" % n)
            return int(child.stdout.readline())
        ask(1)
        """,
        "return [ask(1000 * n + m) for m in range(500)]",
        STANDARD,
    ),
    case(
        "pexpect",
        "a program on a terminal",
        """
        import pexpect
        child = pexpect.spawn("cat", echo=False, timeout=5)
        def ask(n):
            child.sendline(f"<{n}>")
            child.expect(r"<(\\d+)>")
            return int(child.match[1])
        ask(1)
        """,
        "return [ask(1000 * n + m) for m in range(20)]",
    ),
    case(
        "inotify",
        "a watch of a folder",
        """
        import os, tempfile
        from inotify_simple import INotify, flags
        folder = tempfile.mkdtemp()
        inotify = INotify()
        inotify.add_watch(folder, flags.CREATE)
        def seen_after(name):
            open(os.path.join(folder, name), "w").close()
            return [event.name for event in inotify.read(timeout=1000)]
        """,
        """return [seen_after(f"{n}-{m}") for m in range(100)]""",
        "inotify_simple",
    ),
    case(
        "interval-timer",
        "a signal that comes again and again",
        """
        import signal
        ticks = 0
        def tick(*_):
            global ticks
            ticks += 1
        signal.signal(signal.SIGALRM, tick)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        """,
        """
        import time
        before = ticks
        until = time.monotonic() + 1
        while ticks == before and time.monotonic() < until:
            time.sleep(0.1)
        return ticks > before
        """,
        STANDARD,
    ),
    case(
        "faulthandler",
        "a traceback that is due in an hour",
        """
        import faulthandler
        faulthandler.dump_traceback_later(3600)
        """,
        "return n",
        STANDARD,
    ),
    case(
        "filelock",
        "a lock that only one process may have",
        """
        from filelock import FileLock
        lock = FileLock("only.lock", timeout=3)
        lock.acquire()
        """,
        "return lock.is_locked",
        answered="it is a lock that only one process may have: the second worker waits for it in vain",
    ),
    case(
        "jpype",
        "a Java machine",
        """
        import jpype
        jpype.startJVM()
        absolute = jpype.JClass("java.lang.Math").abs
        """,
        "return int(absolute(-n))",
        "jpype1",
    ),
    case(
        "mini-racer",
        "a JavaScript machine",
        """
        from py_mini_racer import MiniRacer
        machine = MiniRacer()
        machine.eval("1 + 1")
        """,
        """return machine.eval(f"{n} + 1")""",
    ),
    case(
        "wasmtime",
        "an instance of a module",
        """
        import wasmtime
        store = wasmtime.Store()
        text = "(module (func (export \\"f\\") (param i32) (result i32) local.get 0 i32.const 2 i32.mul))"
        double = wasmtime.Instance(store, wasmtime.Module(store.engine, text), []).exports(store)["f"]
        double(store, 1)
        """,
        "return double(store, n)",
    ),
]
