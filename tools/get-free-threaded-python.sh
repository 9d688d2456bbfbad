#!/usr/bin/env bash
# Puts a free-threaded CPython on this machine and prints the path of its interpreter; all else goes to stderr.
#
#   tools/get-free-threaded-python.sh [SERIES]      SERIES: 3.13 (default), 3.14 …
#
# Nothing happens where one is there already. Otherwise: a build by uv, where uv is installed and may download;
# else the distribution's own source package (Debian, Ubuntu), compiled in a few minutes.
# CLUTCH_PYTHON_PREFIX is the folder that gets `pythonSERIESt/`: /opt for root, else ~/.local/share/clutch.
# Exit 1: a step failed, its log is shown. Exit 3: not to be had here.
set -euo pipefail

series=${1:-3.13}
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ]; then default_home=/opt; else default_home=$HOME/.local/share/clutch; fi
export CLUTCH_PYTHON_PREFIX=${CLUTCH_PYTHON_PREFIX:-$default_home}
prefix=$CLUTCH_PYTHON_PREFIX/python${series}t
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

note() { echo "free-threaded $series: $*" >&2; }

# Runs a step with its output in a log, shown only when the step fails.
step() {
    local name=$1
    shift
    note "$name"
    "$@" >"$work/$name.log" 2>&1 || { tail -n 25 "$work/$name.log" >&2; note "$name failed"; return 1; }
}

works() {
    "$1" -c '
import sys, ssl, sqlite3, zlib, bz2, lzma, ctypes, venv, ensurepip
sys.exit(sys._is_gil_enabled())
'
}

by_uv() {
    command -v uv >/dev/null && step uv timeout 300 uv python install "${series}t"
}

distribution_mirror() {
    # The line that already serves this release, in either format of the apt sources.
    local codename
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null | awk -v codename="$codename" '
        NF == 0        { uri = "" }
        $1 == "URIs:"  { uri = $2 }
        $1 == "Suites:" && uri != "" { for (i = 2; i <= NF; i++) if ($i == codename) { print uri; exit } }
        $1 == "deb"    { sub(/\[[^]]*\] */, ""); if ($3 == codename) { print $2; exit } }'
}

keyring() {
    ls /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/ubuntu-archive-keyring.gpg 2>/dev/null | head -n 1
}

build_packages() {
    [ "$(id -u)" = 0 ] || { note "not root: taking the compiler and headers that are here"; return 0; }
    step apt-update apt-get update
    DEBIAN_FRONTEND=noninteractive step apt-install apt-get install -y --no-install-recommends \
        build-essential pkg-config xz-utils libssl-dev zlib1g-dev libffi-dev libsqlite3-dev libbz2-dev \
        liblzma-dev libreadline-dev uuid-dev libncurses-dev libexpat1-dev
}

# Downloads the source package from the suites of the same mirror that may carry the series. apt verifies the
# signature; its lists and settings live in $work, so nothing lasting is changed.
source_package() {
    local mirror suite state
    mirror=$(distribution_mirror)
    [ -n "$mirror" ] || { note "no apt mirror known"; return 1; }
    for suite in trixie forky sid; do
        state=$work/apt-$suite
        mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/source"
        echo "deb-src [signed-by=$(keyring)] $mirror $suite main" >"$state/sources.list"
        local options=(-o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=/dev/null
            -o "Dir::State::Lists=$state/lists" -o "Dir::Cache=$state/cache" -o APT::Sandbox::User=)
        apt-get "${options[@]}" update >"$state/log" 2>&1 || continue
        (cd "$state/source" && apt-get "${options[@]}" source --download-only "python$series") >>"$state/log" 2>&1 || continue
        find "$state/source" -name "python${series}_*.orig.tar.*" ! -name '*.asc' -print -quit
        return 0
    done
    return 1
}

compile() {
    local tarball=$1
    mkdir "$work/tree"
    tar -xf "$tarball" -C "$work/tree" --strip-components=1
    cd "$work/tree"
    step configure ./configure --disable-gil --prefix="$prefix" --with-ensurepip=install
    step make make -j"$(nproc)"
    # Installed aside and moved at once: an interrupted run leaves no half-made interpreter.
    step install make install DESTDIR="$work/staged"
    mkdir -p "$CLUTCH_PYTHON_PREFIX"
    mv "$work/staged$prefix" "$prefix"
}

by_source() {
    local tarball
    command -v apt-get >/dev/null || { note "no uv that may download, no apt"; exit 3; }
    if [ -e "$prefix" ]; then
        note "$prefix is there but does not work; move it away"
        exit 1
    fi
    build_packages
    tarball=$(source_package) || true
    [ -n "$tarball" ] || { note "no mirror known here serves the source of python$series"; exit 3; }
    compile "$tarball"
}

find_it() { "$here/find-python.sh" "${series}t" 2>/dev/null; }

if ! find_it; then
    by_uv || by_source
    python=$(find_it)
    works "$python"
    note "installed $python"
    echo "$python"
fi
