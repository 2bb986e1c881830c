#!/bin/sh
# Install a wheel of Seglake and its requirements, at the versions of requirements.lock, into a new
# folder, and compile its kernels there.
#
#   conf/deploy/install.sh WHEEL FOLDER [EXTRA,… or another package …]
#
# PYTHON names the Python to use. NUMBA_CPU_NAME=generic compiles for any processor of this kind.
set -eu
wheel=$1 folder=$2
shift 2
here=$(dirname "$0")
"${PYTHON:-python3}" -m venv --copies "$folder"
grep -oE '^[A-Za-z0-9._-]+==[^ ;\]+' "$here/../../requirements.lock" > "$folder/constraints.txt"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
  --constraint "$folder/constraints.txt" "$wheel" "$@"
"$folder/bin/seglake" warm
