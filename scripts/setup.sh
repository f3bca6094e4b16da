#!/usr/bin/env bash
# Installs by apt what Strait's build and tests need and this machine lacks (Debian 12, Ubuntu 24.04). Installs nothing
# where all is there.
#   scripts/setup.sh [--dev]     --dev: also the tools of CI (clang, clang-format, clang-tidy, shellcheck)
set -euo pipefail

# Without these nothing builds.
needed=(
  cmake g++ ninja-build pkg-config python3
  libcli11-dev libexpected-dev libfmt-dev libgmock-dev libgtest-dev libpugixml-dev libsodium-dev libtomlplusplus-dev
  nlohmann-json3-dev
)
# Without these a few tests and comparisons are left out: MPI, network namespaces, hwloc, UCX, models of the protocols. And
# without dpkg-dev there are no packages (scripts/package.sh).
extra=(ccache dpkg-dev iproute2 libhwloc-dev libopenmpi-dev libpmix-dev libucx-dev openmpi-bin spin)
dev=(clang clang-format clang-tidy clang-tools libclang-rt-dev shellcheck)

case "${1:-}" in
  "") ;;
  --dev) extra+=("${dev[@]}") ;;
  *)
    sed -n '2,4s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac

# Prints those of its arguments that are not installed.
missing() {
  local package
  for package in "$@"; do
    dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not Debian or Ubuntu. The build needs the equivalents of: ${needed[*]}"
  echo "setup: some tests need the equivalents of: ${extra[*]}"
  exit 0
fi

mapfile -t lacking_needed < <(missing "${needed[@]}")
mapfile -t lacking < <(missing "${needed[@]}" "${extra[@]}")
if [[ ${#lacking[@]} -eq 0 ]]; then
  echo "setup: nothing to install"
  exit 0
fi

# Ends, in an error unless it is only extras that are lacking.
go_on_without() {
  [[ ${#lacking_needed[@]} -eq 0 ]] || exit 1
  echo "setup: going on without them; the tests that need them are left out"
  exit 0
}

as_root=()
if [[ $EUID -ne 0 ]]; then
  as_root=(sudo)
  # A password may be asked for only where somebody can type it.
  if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo --non-interactive true 2>/dev/null; }; then
    echo "setup: missing: ${lacking[*]}"
    echo "setup: this needs root. Run: apt-get update && apt-get install --yes --no-install-recommends ${lacking[*]}"
    go_on_without
  fi
fi

echo "setup: installing ${lacking[*]}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
# apt_get <arguments>: says nothing unless it fails, and asks nothing. sudo does not pass the environment on.
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 "$@" </dev/null >"$log" 2>&1 && return
  cat "$log" >&2
  echo "setup: apt-get $1 failed; what it said is above. Missing: ${lacking[*]}" >&2
  go_on_without
}
apt_get update
apt_get install --yes --no-install-recommends -o Dpkg::Use-Pty=0 "${lacking[@]}"
echo "setup: done"
