#!/bin/sh
# install_missing.sh PACKAGE...: installs the Debian packages of the list that are not there yet. Does
# not call the package manager when nothing is missing.
set -eu

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "This system has no dpkg; if the build below fails, install what Debian calls: $*" >&2
  exit 0
fi

missing=
for package in "$@"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || status=none
  [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
  # sudo may ask for a password only where somebody can answer.
  if command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
  else
    echo "Packages are missing, and this is neither root nor sudo. As root, run:" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends$missing" >&2
    exit 1
  fi
fi

install() {
  # shellcheck disable=SC2086 # a list of names
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -qq \
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 $missing </dev/null
}
update() {
  $as_root apt-get update -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 </dev/null
}

echo "Installing:$missing"
if ls /var/lib/apt/lists/*Packages* >/dev/null 2>&1; then
  # The lists may be old: one more try with new ones.
  install || { update && install; }
else
  update
  install
fi
