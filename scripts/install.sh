#!/usr/bin/env bash
# Make the environment: find a Python of at least 3.12, install the locked versions with uv, then sparta itself.
set -euo pipefail
venv=$1
cd "$(dirname "$0")/.."

fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.14 python3.13 python3.12 python3 python; do
    if command -v "$candidate" >/dev/null && fits "$candidate"; then command -v "$candidate"; return; fi
  done
  # newest first; 3.12 is what the locked versions were tested with
  for candidate in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12*/bin/python $(ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[3-9]*/bin/python 2>/dev/null | sort -V); do
    if [ -x "$candidate" ] && fits "$candidate"; then echo "$candidate"; return; fi
  done
  return 1
}

if ! python=$(find_python); then
  echo "sparta needs Python 3.12 or newer and found none." >&2
  echo "  → install one, for example: pyenv install 3.12   (or set PYTHON=/path/to/python3.12)" >&2
  exit 1
fi

if [ ! -x "$venv/bin/python" ] || ! fits "$venv/bin/python"; then
  echo "making $venv with $("$python" --version)"
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv
echo "installing the locked versions (a few minutes of download the first time)"
export VIRTUAL_ENV="$PWD/$venv"
"$venv/bin/uv" pip install --quiet --requirement requirements.lock
"$venv/bin/uv" pip install --quiet --no-deps --editable .
