#!/usr/bin/env bash
# Print the versions of requirements.lock without their hashes, as a constraints file for pip.
set -euo pipefail
exec sed -n 's/^\([^ ]*==[^\\]*[^\\ ]\).*/\1/p' "$(dirname "$0")/../requirements.lock"
