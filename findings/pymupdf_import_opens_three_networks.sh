#!/usr/bin/env bash
# `import pymupdf` opens three neural networks with onnxruntime, each with threads of its own, before any document is
# opened.
#
# Seen: PyMuPDF 2.0, onnxruntime 1.32.0, CPython 3.11.7, 2 CPUs: the import takes 130 MiB of memory and starts 5
# threads; 74 MiB and 2 threads without the networks. The packages take 290 MB on disk.
#
# Why: 2.0 requires pymupdf_layout, imports it if it is there, and that makes the analyzer for tables and columns as it
# is imported. So a program that only reads text or counts pages has threads when it forks. With
# sys.modules["pymupdf.layout"] = None before the import there are no networks, though numpy and onnxruntime are
# imported.
#
# Fails if this changes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check \
    pymupdf==2.0 onnxruntime==1.32.0 numpy==2.4.6
cat >"$folder/opens.py" <<'PROGRAM'
import gc
import os
import sys


def count_threads():
    return len(os.listdir("/proc/self/task"))


def count_mib():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20


layout = sys.argv[1] == "with"
if not layout:
    sys.modules["pymupdf.layout"] = None  # then `import pymupdf.layout` raises ImportError
threads, mib = count_threads(), count_mib()
import pymupdf

threads, mib = count_threads() - threads, count_mib() - mib
networks = sum(type(value).__name__ == "InferenceSession" for value in gc.get_objects())
seen = f"{networks} networks, {threads} threads, {mib} MiB"
print(f"import of PyMuPDF {pymupdf.__version__} {sys.argv[1]} layout: {seen}")
page = pymupdf.open().new_page()
page.insert_text((72, 72), "some text")
assert page.get_text() == "some text\n"
assert networks == (3 if layout else 0)
with open(sys.argv[2], "w") as file:
    file.write(str(threads))
PROGRAM
for layout in with without; do "$folder/env/bin/python" "$folder/opens.py" $layout "$folder/$layout"; done
if [ "$(nproc)" != 1 ] && [ "$(<"$folder/with")" -lt $(($(<"$folder/without") + 3)) ]; then
    echo "changed: fewer threads than networks"
    exit 1
fi
