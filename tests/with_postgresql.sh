#!/usr/bin/env bash
# Run a command with a throw-away PostgreSQL server that the tests find by AUTOTUNE_TEST_POSTGRESQL_URL:
#   tests/with_postgresql.sh .venv/bin/python -m pytest tests/contract
# Where PostgreSQL is not installed, the command runs without one.
set -euo pipefail
newest() { find /usr/lib/postgresql -name pg_ctl 2>/dev/null | sort --version-sort | tail -1; }
[ -n "$(newest)" ] || exec "$@"
bin=$(dirname "$(newest)")
# Not in TMPDIR, which may be a folder of its user alone: root has another user run PostgreSQL.
data=$(mktemp -d /tmp/postgresql-XXXXXX)
# PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    chown postgres "$data"
    as_owner=(runuser -u postgres --)
else
    as_owner=()
fi
stop() {
    "${as_owner[@]}" "$bin/pg_ctl" --pgdata="$data/db" --mode=immediate stop >/dev/null || true
    rm -rf "$data"
}
trap stop EXIT
pushd "$data" >/dev/null
"${as_owner[@]}" "$bin/initdb" --pgdata="$data/db" --auth=trust --username=autotune >/dev/null
# A socket in a folder of its own needs no free port.
"${as_owner[@]}" "$bin/pg_ctl" --pgdata="$data/db" --log="$data/log" --wait --timeout=60 \
    --options="-c listen_addresses='' -c unix_socket_directories='$data' -c fsync=off" start >/dev/null
chmod 755 "$data"
popd >/dev/null
AUTOTUNE_TEST_POSTGRESQL_URL="postgresql://autotune@/postgres?host=$data" "$@"
