#!/usr/bin/env bash
# Prints the path of a CPython of the series asked for (3.12, 3.13t …) that really runs. Exit 1: there is none.
# A name on the PATH is not enough: version managers put shims there that only say "not installed".
set -euo pipefail

series=${1:?usage: find-python.sh SERIES, such as 3.12 or 3.13t}
version=${series%t}
[ "$series" = "$version" ] && free_threaded=0 || free_threaded=1

matches() {
    [ -x "$1" ] && [ "$("$1" -c '
import sys, sysconfig
print("%d.%d %d" % (sys.version_info[:2] + (bool(sysconfig.get_config_var("Py_GIL_DISABLED")),)))
' 2>/dev/null)" = "$version $free_threaded" ]
}

candidates() {
    type -ap "python$series" "python$version" python3 || true
    ls -d "${CLUTCH_PYTHON_PREFIX:-/opt}/python$series/bin/python$series" \
        /opt/python"$series"/bin/python"$series" \
        "$HOME/.local/share/clutch/python$series/bin/python$series" \
        /opt/debian-python/usr/bin/python"$series" \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/python"$version"* \
        "${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/cpython-"$version"*/bin/python"$version"* \
        2>/dev/null | grep -v config || true
}

while read -r candidate; do
    if matches "$candidate"; then
        echo "$candidate"
        exit 0
    fi
done < <(candidates)
echo "no python$series that runs" >&2
exit 1
