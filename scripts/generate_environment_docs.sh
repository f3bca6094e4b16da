#!/usr/bin/env bash
# Writes docs/environment.md from the table in src/base/environment.hpp. A test compares the two.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cmake -S "$root" --preset cpu >/dev/null
cmake --build "$root/build/cpu" --target environment_page
"$root/build/cpu/bin/environment_page" >"$root/docs/environment.md"
echo "wrote $root/docs/environment.md"
