#!/bin/sh
# Run uv for an environment that has pip: conf/uv.sh VENV ARGUMENTS…
#
# uv does not read pip's configuration, so this passes on the index, the links and the certificates
# of pip's variables and files. Variables of uv win. Without a uv on the path, pip installs one into
# the environment.
set -eu
venv=$1
shift
config=$("$venv/bin/python" -m pip config list --disable-pip-version-check 2>/dev/null || true)

# pip lists variables (:env:) before files, and a variable wins.
from_pip() {
  printf '%s\n' "$config" | sed -nE "s/^(:env:|global|install)\.$1='(.*)'$/\2/p" | head -n 1 |
    sed 's/\\n/ /g'
}

pass_on() {
  eval "known=\${$1-}"
  value=$(from_pip "$2")
  if [ -z "$known" ] && [ -n "$value" ]; then
    export "$1=$value"
  fi
}

pass_on UV_DEFAULT_INDEX index-url
pass_on UV_INDEX extra-index-url
pass_on UV_FIND_LINKS find-links
pass_on SSL_CERT_FILE cert

uv=$(command -v uv || echo "$venv/bin/uv")
if [ ! -x "$uv" ]; then
  echo "installing uv into $venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
    --require-hashes -r conf/uv.lock
fi
exec "$uv" "$@"
