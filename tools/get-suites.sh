#!/usr/bin/env bash
# Fetches the suites of others into .conformance/, each once, by the ordinary clients of Go's and Python's packages:
# h2spec (HTTP/2), gunicorn's request corpus (HTTP/1), Autobahn's cases (WebSockets), Django's of tasks, the tests of
# Starlette, FastAPI and MCP's SDK, and Celery's integration tests. What is fetched is pinned by version and hash in
# tests/conformance. What cannot be had is left out with a word, and its tests are skipped; it is tried again next time.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/.conformance
pins=$PWD/tests/conformance
python=${PYTHON:-python3}
mkdir -p "$folder"

# Runs get_NAME unless what it got by the same files is still there.
get() {
    local name=$1 pinned
    pinned=$(cat "${@:2}" tools/get-suites.sh | sha256sum)
    [ "$(cat "$folder/$name.pinned" 2>/dev/null)" = "$pinned" ] && return
    rm -rf "${folder:?}/$name" "$folder/$name.pinned"
    if "get_$name" >"$folder/$name.log" 2>&1; then
        echo "$pinned" >"$folder/$name.pinned"
    else
        rm -rf "${folder:?}/$name"
        echo "$name cannot be had, its tests are skipped: $(tail -n 1 "$folder/$name.log"); all of it: .conformance/$name.log"
    fi
}

get_h2spec() (
    command -v go || { echo "there is no Go"; exit 1; }
    cd "$pins/h2spec" && GOFLAGS=-mod=readonly GOBIN=$folder/h2spec go install github.com/summerwind/h2spec/cmd/h2spec
)

get_corpus() (
    mkdir "$folder/corpus" && cd "$folder/corpus" &&
        "$python" -m pip download --no-deps --no-binary :all: --require-hashes -r "$pins/corpus.txt" &&
        tar xzf gunicorn-*.tar.gz --strip-components 3 --wildcards 'gunicorn-*/tests/requests/*' && rm gunicorn-*.tar.gz
)

# The sdist wants a newer Python, for Django itself, which nothing here installs.
get_django() (
    mkdir "$folder/django" && cd "$folder/django" &&
        "$python" -m pip download --no-deps --no-binary :all: --ignore-requires-python --require-hashes -r "$pins/django.txt" &&
        tar xzf django-*.tar.gz --strip-components 2 --wildcards 'django-*/tests/tasks/*' && rm django-*.tar.gz
)

# With an environment of its own, for what the tests import.
get_celery() (
    mkdir -p "$folder/celery/suite" && cd "$folder/celery" &&
        "$python" -m pip download --no-deps --no-binary :all: --require-hashes -r "$pins/celery.txt" &&
        tar xzf celery-*.tar.gz --strip-components 1 -C suite --wildcards 'celery-*/t/*' 'celery-*/pyproject.toml' &&
        rm celery-*.tar.gz && "$python" -m venv env && env/bin/pip install -r "$pins/celery_needs.txt"
)

# The same for frameworks; the tests of all are run in one environment.
get_frameworks() (
    mkdir "$folder/frameworks" && cd "$folder/frameworks" &&
        "$python" -m pip download --no-deps --no-binary :all: --require-hashes -r "$pins/frameworks.txt" &&
        for sdist in *.tar.gz; do tar xzf "$sdist" && rm "$sdist"; done &&
        "$python" -m venv env && env/bin/pip install -r "$pins/frameworks_needs.txt"
)

# Autobahn's suite is for Python 2.7, whose last virtualenv is 20.15.1; it lives in a folder of its own meanwhile.
get_autobahn() {
    local old
    old=$(tools/find-python.sh 2.7) || { echo "there is no Python 2.7 (tools/find-python.sh 2.7)"; return 1; }
    "$old" -m pip install --target "$folder/autobahn/virtualenv" virtualenv==20.15.1 &&
        PYTHONPATH=$folder/autobahn/virtualenv "$old" -m virtualenv "$folder/autobahn" &&
        "$folder/autobahn/bin/pip" install --require-hashes -r "$pins/autobahn.txt" &&
        rm -rf "$folder/autobahn/virtualenv"
}

get h2spec "$pins/h2spec/go.mod" "$pins/h2spec/go.sum"
get corpus "$pins/corpus.txt"
get django "$pins/django.txt"
get frameworks "$pins/frameworks.txt" "$pins/frameworks_needs.txt"
get celery "$pins/celery.txt" "$pins/celery_needs.txt"
# It works as long as its Python is there.
get autobahn "$pins/autobahn.txt" <(tools/find-python.sh 2.7)
