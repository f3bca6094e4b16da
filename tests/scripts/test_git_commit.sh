#!/usr/bin/env bash
# The git commit that results quote is that of the build: the header follows commits and changes, and is left alone
# otherwise, so that nothing is compiled again.
#   test_git_commit.sh <cmake> <GitCommit.cmake>
set -euo pipefail

cmake="$1" script="$2"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.invalid \
  GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.invalid

# holds <commit>
holds() {
  "$cmake" -D source_folder="$work/sources" -D header="$work/build/header.hpp" -P "$script"
  grep -qxF "#define STRAIT_GIT_COMMIT \"$1\"" build/header.hpp || { echo "not $1:" && cat build/header.hpp && exit 1; }
}
commit() { git -C sources add -A && git -C sources commit -qm "$1"; }
head_of() { git -C sources rev-parse --short=12 HEAD; }

mkdir sources
echo 1 >sources/file
holds ""  # no clone
git init -q  # nor is it part of the one around it
git add sources && git commit -qm around
holds ""
git -C sources init -q
commit first
holds "$(head_of)"
touch -d 2001-01-01 build/header.hpp
holds "$(head_of)"
[[ "$(stat --format %y build/header.hpp)" == 2001-* ]] || { echo "it was written again" && exit 1; }
echo 2 >sources/file
holds "$(head_of)-dirty"
commit second
holds "$(head_of)"
