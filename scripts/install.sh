#!/usr/bin/env bash
# Make the environment: find a Python of at least 3.12, install the locked versions with uv, then sparta and its models.
# Usage: install.sh FOLDER [LOCK]   (FOLDER relative to the repository, or absolute; default: requirements-install.lock)
set -euo pipefail
unset CDPATH PYTHONHOME PYTHONPATH
cd "$(dirname "$0")/.."
venv=${1:-.venv}
base=requirements-install.lock
lock=${2:-$base}

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; }

# 3.12 first, which the locked versions were tested with; a name on the PATH may be pyenv's and lead nowhere.
find_python() {
  local candidate versions=${PYENV_ROOT:-$HOME/.pyenv}/versions
  for candidate in "${PYTHON:-}" python3.12 "$versions"/3.12*/bin/python \
    python3.13 "$versions"/3.13*/bin/python python3.14 "$versions"/3.14*/bin/python \
    python3 python "$versions"/3*/bin/python; do
    if [ -n "$candidate" ] && command -v "$candidate" >/dev/null && fits "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

if [ -n "${PYTHON:-}" ] && ! fits "$PYTHON"; then
  echo "PYTHON=$PYTHON is not a Python 3.12 or newer; looking for another" >&2
fi
if ! python=$(find_python); then
  echo "error: sparta needs Python 3.12 or newer and found none" >&2
  echo "  → install one, for example with pyenv install 3.12, or set PYTHON=/path/to/python3.12" >&2
  exit 1
fi

# Works, has pip, and was made in this place: its scripts name the folder.
usable() {
  fits "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1 &&
    grep -qF "$(cd "$venv" && pwd -P)" "$venv/bin/activate"
}

made=
if ! usable; then
  if [ -e "$venv" ] && [ ! -e "$venv/pyvenv.cfg" ] && [ -n "$(ls -A "$venv")" ]; then
    echo "error: $venv is there and is no environment that python -m venv made" >&2
    echo "  → move it away, or run: make install VENV=another-folder" >&2
    exit 1
  fi
  echo "making $venv with $("$python" --version)"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  made=yes
fi
# Every file that is downloaded must have a hash of the lock, uv itself included.
sed -n '/^uv==/,/[^\\]$/p' "$lock" >"$venv/uv.lock"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$venv/uv.lock"
echo "installing the versions of $lock (downloads them the first time)"
# With this option, uv compiles all packages that are there. For torch and what comes with it, that takes two minutes;
# for the part that most tests import, half a minute.
compile=--compile-bytecode
[ "$lock" = "$base" ] || [ "$made" ] || compile=
"$venv/bin/uv" pip install --quiet $compile --python "$venv/bin/python" --require-hashes --requirement "$base"
if [ "$lock" != "$base" ]; then
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes --requirement "$lock"
  env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -c "import sentence_transformers" || true
fi
# Editable in the compatible form: the packages are found from any folder, also one that holds a "sparta".
# Without build isolation nothing is downloaded to build: setuptools is among the locked packages.
editable=(--editable .)
for model in models/*/pyproject.toml; do [ ! -f "$model" ] || editable+=(--editable "$(dirname "$model")"); done
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation \
  --config-settings editable_mode=compat "${editable[@]}"
# Where Python writes no bytecode (containers often forbid it), every command would compile what it imports; and
# the first search would load Lucene's classes from the jar. Neither is needed to search.
"$venv/bin/python" -m compileall -q sparta dense hybrid cli || true
"$venv/bin/python" -m sparta.lucene.jvm >/dev/null 2>&1 || true
