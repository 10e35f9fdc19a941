#!/usr/bin/env bash
# Write requirements.lock: every package of the extra `dev`, with versions and SHA-256 hashes.
# Usage: lock.sh [--upgrade]   (without it, the locked versions stay)
set -euo pipefail
cd "$(dirname "$0")/.."
exec .venv/bin/uv pip compile setup.cfg --extra dev --universal --python-version 3.12 --generate-hashes --quiet \
  --no-annotate --no-header --no-emit-package sparta-search --output-file requirements.lock "$@"
