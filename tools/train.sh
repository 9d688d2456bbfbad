#!/usr/bin/env bash
# Writes down which code of Clutch runs often, for the compiler (profile-guided optimization): builds the extension so that
# it counts, puts it to the work of `python -m benches.training`, and merges the counts.
#
#   tools/train.sh COUNTS PYTHON… [-- MATURIN ARGUMENTS]     COUNTS is written; each PYTHON is of an environment in which
#                                                            the benches run: .venv/bin/python after `make build`
#
# The arguments must be those of the build that uses the counts: what is compiled for another target has other names.
# MATURIN is the maturin to use. The tool that merges comes with Rust (rustup's component llvm-tools).
# Exit 1: a build or some of the work failed; COUNTS is as before.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${MATURIN:?the path of maturin}" "${1:?usage: train.sh COUNTS PYTHON… [-- MATURIN ARGUMENTS]}"
counts=$1
shift
pythons=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do pythons+=("$1"); shift; done
[ $# = 0 ] || shift
[ "${#pythons[@]}" -gt 0 ] || { echo "train: which Python is to do the work?" >&2; exit 1; }

# Only a tool of the compiler's own LLVM reads its counts.
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
merger=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/llvm-profdata
[ -x "$merger" ] || rustup component add llvm-tools >/dev/null 2>&1 || true
[ -x "$merger" ] || merger=$(command -v "llvm-profdata-$llvm") || {
    echo "train: no llvm-profdata of LLVM $llvm: rustup component add llvm-tools; or build without: make … TRAINED=no" >&2
    exit 1
}

mkdir -p target
work=$(mktemp -d -p "$PWD/target")
trap 'rm -rf "$work"' EXIT
# Workers end without the end of a program, so counts are kept in a file as they are made. The compiler would also note
# which values occur, which cannot be kept so.
flags="-Cprofile-generate -Cllvm-args=-runtime-counter-relocation -Cllvm-args=-disable-vp"
for python in "${pythons[@]}"; do
    python=$(realpath -s "$python")
    rm -rf "$work/package"
    # The build runs programs of its own, which count, too.
    LLVM_PROFILE_FILE=/dev/null RUSTFLAGS="${RUSTFLAGS:-} $flags" CARGO_TARGET_DIR=target/counting "$MATURIN" build --quiet \
        --release --interpreter "$python" --out "$work/wheel" "$@"
    "$python" -m zipfile -e "$work"/wheel/*.whl "$work/package"
    rm -r "$work/wheel"
    PYTHONPATH=$work/package:$PWD LLVM_PROFILE_FILE=$work/%p%c.profraw "$python" -P -m benches.training
done
mkdir -p "$(dirname "$counts")"
"$merger" merge --failure-mode=all --output="$work/merged" "$work"/*.profraw
mv "$work/merged" "$counts"
