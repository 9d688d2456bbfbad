#!/usr/bin/env bash
# Each thread that draws random numbers with OpenCV gets the same ones, also in each new run, and cv2.setRNGSeed does
# not change that: it reaches only the thread that calls it.
#
# Seen: opencv-python-headless 5.0.0.93, CPython 3.11.7: cv2.randu in three threads of a pool, in a thread started after
# setRNGSeed in the main thread, and in another process. A thread that lived before goes on with its numbers.
#
# Why: there is one generator for each thread, and all begin in the same state. So the noise that four threads add to
# four images is four times the same one, and a seed at the top of a program says nothing about its threads.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    opencv-python-headless==5.0.0.93 numpy==2.4.6
cat >"$folder/draws.py" <<'PROGRAM'
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy


def draw():
    numbers = numpy.zeros(3, numpy.int32)
    cv2.randu(numbers, 0, 1_000_000)
    return numbers.tolist()


def draw_with(barrier):
    barrier.wait()  # so that each task has a thread of its own
    return draw()


if sys.argv[1:] == ["once"]:
    sys.exit(str(draw()))

first, second = draw(), draw()
with ThreadPoolExecutor(3) as pool, ThreadPoolExecutor(1) as living:
    in_a_pool = list(pool.map(draw_with, [threading.Barrier(3)] * 3))
    before_the_seed = living.submit(draw).result()
    cv2.setRNGSeed(7)
    after_the_seed = living.submit(draw).result()
    seeded = draw()
with ThreadPoolExecutor(1) as pool:
    in_a_new_thread = pool.submit(draw).result()
elsewhere = subprocess.run([sys.executable, __file__, "once"], stderr=subprocess.PIPE, text=True).stderr.strip()

print("OpenCV", cv2.__version__, "main thread:", first, second)
print("threads of a pool:", *in_a_pool, "another process:", elsewhere)
print("after setRNGSeed, main thread:", seeded, "new thread:", in_a_new_thread, "older thread:", after_the_seed)
assert first != second and in_a_pool == [first] * 3 and elsewhere == str(first)
assert seeded not in (first, second) and in_a_new_thread == first
assert (before_the_seed, after_the_seed) == (first, second)
PROGRAM
"$folder/env/bin/python" "$folder/draws.py"
