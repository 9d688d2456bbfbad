#!/usr/bin/env bash
# Builds a stripped manylinux wheel for each CPython series given that is installed here, into dist/.
#
#   tools/build-wheels.sh SERIES…      such as 3.11 3.13 3.13t; a series that is not installed is skipped with a message.
#                                      abi3: one wheel for 3.14 and all later Pythons with the GIL, built by the last
#                                      series given that is one of them
#
# MATURIN is the maturin to use, from an environment that has ziglang: zig links against an old glibc, so that no
# container is needed. Set STRICT=1 to fail where a series is not installed. TRAINERS: Pythons that train the build first
# (tools/train.sh); without any it is not trained.
# Exit 1: a build failed, or an interpreter is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

: "${MATURIN:?the path of maturin}" "${1:?usage: build-wheels.sh SERIES…}"
# glibc 2.17, the oldest that Rust supports.
platform=manylinux2014

interpreters=()
stable= by=
for series in "$@"; do
    [ "$series" != abi3 ] || { stable=1; continue; }
    if python=$(tools/find-python.sh "$series" 2>/dev/null); then
        interpreters+=("$python")
        case $series in 3.1[0-3]*|*t) ;; *) by=$python ;; esac
    else
        echo "build-wheels: $series skipped, not installed" >&2
        [ -z "${STRICT:-}" ] || exit 1
    fi
done
[ "${#interpreters[@]}" -gt 0 ] || { echo "build-wheels: none of $* is installed" >&2; exit 1; }

# A folder of its own: zig's objects and the system linker's are not to be mixed. The profile strips.
export PATH=$(dirname "$(realpath -s "$MATURIN")"):$PATH CARGO_TARGET_DIR=target/wheels
build() { "$MATURIN" build --release --zig --compatibility "$platform" --out dist "$@"; }
if [ -n "${TRAINERS:-}" ]; then
    counts=$PWD/target/counts/wheels.profdata
    # zig does not link what counts. Names of functions, by which the counts are found again, depend on the target and on what
    # maturin tells cargo where it links with zig: these three.
    host=$(rustc -vV | sed -n 's/^host: //p')
    # shellcheck disable=SC2086 # several words
    CARGO_TARGET_APPLIES_TO_HOST=false CARGO_UNSTABLE_TARGET_APPLIES_TO_HOST=true \
        __CARGO_TEST_CHANNEL_OVERRIDE_DO_NOT_USE_THIS=nightly \
        tools/train.sh "$counts" $TRAINERS -- --target "$host" --compatibility linux
    export RUSTFLAGS="${RUSTFLAGS:-} -Cprofile-use=$counts"
fi
build --interpreter "${interpreters[@]}"
[ -n "$stable" ] || exit 0
if [ -n "$by" ]; then
    build --features abi3 --interpreter "$by"
else
    echo "build-wheels: abi3 skipped, it needs 3.14 or a later Python" >&2
    [ -z "${STRICT:-}" ] || exit 1
fi
