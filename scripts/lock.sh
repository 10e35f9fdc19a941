#!/usr/bin/env bash
# Write the locked versions with their SHA-256 hashes, from setup.cfg alone:
#   requirements.lock          every package of the extra `dev`, for `make dev`
#   requirements-install.lock  the part of them that README and quickstart need, for `make install`
# Usage: lock.sh [--upgrade]   (without it, the locked versions stay)
set -euo pipefail
cd "$(dirname "$0")/.."

# What scripts/install.sh itself runs is locked as well.
lock() {
  printf '%s\n' 'setuptools>=77' 'uv>=0.5' |
    .venv/bin/uv pip compile setup.cfg - --universal --python-version 3.12 --generate-hashes --quiet \
      --no-annotate --no-header --no-emit-package sparta-search "$@"
}

lock --extra dev --output-file requirements.lock "$@"
lock --extra dense --extra eval --constraint requirements.lock --output-file requirements-install.lock
