#!/usr/bin/env bash
# scripts/setup.sh on machines that lack something, with an apt and a dpkg that only pretend.
#   test_setup.sh <scripts/setup.sh>
set -euo pipefail

setup="$1"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/a folder" && tools="$work/a folder"

# Lacks what $LACKS names; apt-get update fails where $OFFLINE is set; what apt-get was asked for is in $work/asked.
cat >"$tools/dpkg-query" <<'FAKE'
#!/usr/bin/env bash
[[ " $LACKS " == *" ${!#} "* ]] || echo installed
FAKE
cat >"$tools/apt-get" <<FAKE
#!/usr/bin/env bash
[[ -z "\$OFFLINE" ]] || { echo "E: Temporary failure resolving" >&2 && exit 100; }
echo "\$*" >>"$work/asked"
FAKE
cat >"$tools/sudo" <<'FAKE'
#!/usr/bin/env bash
[[ "$1" != --non-interactive ]] || shift
exec "$@"
FAKE
chmod +x "$tools"/*

# expect <status> <words> <LACKS> <OFFLINE>
expect() {
  local status=0
  rm -f "$work/asked"
  PATH="$tools:$PATH" LACKS="$3" OFFLINE="$4" bash "$setup" >"$work/out" 2>&1 </dev/null || status=$?
  if [[ $status -ne "$1" ]] || ! grep -qF -- "$2" "$work/out"; then
    echo "lacking \"$3\"${4:+, offline}: status $status and this, not $1 and \"$2\":" && cat "$work/out" && exit 1
  fi
}

expect 0 "nothing to install" "" offline
[[ ! -e "$work/asked" ]]
expect 0 "setup: done" "g++ spin" ""
grep -q 'install .* g++ spin' "$work/asked"
expect 1 "Temporary failure" "g++ spin" offline
# What only some tests need keeps nobody from building without a network.
expect 0 "going on without them" "spin" offline
