#!/usr/bin/env bash
# Install the oldest versions that setup.cfg allows into build/oldest, and run the fast tests of the library with them.
# Usage: test_oldest.sh FOLDER [PYTEST-ARGUMENT…]   (FOLDER holds uv and the Python)
#
# Pyserini is left out: it needs newer versions of torch and transformers than sparta. Tests of programs that are not
# installed there skip, with the reason.
set -euo pipefail
unset CDPATH PYTHONHOME PYTHONPATH
bin=$(cd "${1:-.venv/bin}" && pwd)
shift || true
cd "$(dirname "$0")/.."
venv=$PWD/build/oldest
extras=()
for extra in dense eval train opensearch mcp langchain llamaindex haystack pyterrier beir mteb \
  sentence-transformers ray zh tables documents irds; do
  extras+=(--extra "$extra")
done

"$bin/uv" venv --quiet --clear --python "$bin/python" "$venv"
echo "installing the oldest supported versions in build/oldest (7 GB)"
install=("$bin/uv" pip install --quiet --python "$venv/bin/python")
"${install[@]}" --resolution lowest-direct --requirements setup.cfg "${extras[@]}"
"${install[@]}" pytest pytest-xdist psutil httpx2 setuptools
"${install[@]}" --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
[ $# -gt 0 ] || set -- tests/sparta tests/dense tests/hybrid
exec "$venv/bin/python" -m pytest -q -n 2 --dist loadfile -m "not slow and not release" "$@"
