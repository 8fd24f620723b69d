#!/bin/sh
# install_missing.sh PACKAGE...: installs the listed Debian packages that are not installed yet.
# Does not call the package manager if no package is missing.
set -eu

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "dpkg: not found. If the build fails, install what Debian calls: $*" >&2
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
  # Let sudo ask for a password only in a terminal.
  if command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
  else
    echo "Packages are missing, and installing them requires root or sudo. As root, run:" >&2
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
  # The package lists may be old: after a failure, update them and try again.
  install || { update && install; }
else
  update
  install
fi
