#!/usr/bin/env bash
# Builds the wheel, installs it in an empty environment outside the checkout and tunes a script there.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOME="$folder/home"
mkdir "$HOME"
unset XDG_CACHE_HOME "${!AUTOTUNE_@}"
"$VENV/bin/python" -m build --quiet --wheel --outdir "$folder/dist" "$checkout"
"$PYTHON" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --constraint "$checkout/constraints.txt" "$folder"/dist/*.whl
mkdir "$folder/work"
cp "$checkout/tests/e2e/scripts/loader_loop.py" "$checkout/tests/e2e/scripts/toy.py" "$folder/work/"
cd "$folder/work"
"$folder/venv/bin/autotune" --version
for file in datasource.yml dashboards.yml studies.json; do test -s "$folder"/venv/lib/python*/site-packages/autotune/dashboards/grafana/$file; done
"$folder/venv/bin/autotune" doctor
"$folder/venv/bin/autotune" run loader_loop.py --time-budget 60s --max-trials 4 --output bundle
for file in mem_opt.json stack.json env.sh README.txt report.html; do test -s "bundle/$file"; done
lines=$("$folder/venv/bin/autotune" launch bundle loader_loop.py | grep -c '^LOSS ')
test "$lines" -gt 0
echo "wheel-test: the installed wheel tuned a script and launched its bundle"
