#!/usr/bin/env bash
# `strait run`: the program gets Strait's library and says so, keeps its exit status, and mistakes are told.
#   test_run.sh <strait> <libnccl.so.2> <a program of NCCL's for host ranks> <folder with another libnccl.so.2>
set -euo pipefail

strait="$1" library="$(realpath "$2")" program="$3" others="$4"
fail() { echo "$1" && exit 1; }
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
unset LD_PRELOAD VLLM_NCCL_SO_PATH STRAIT_NCCL_PROOF STRAIT_NCCL_VERSION NCCL_DEBUG STRAIT_DEBUG

# A command that has nothing to do with NCCL.
said="$("$strait" run -- true 2>&1)" || fail "strait run -- true failed: $said"
grep -qF "true gets NCCL 2.28.9 from $library" <<<"$said" || fail "no line on which library serves: $said"
# A library for host ranks alone serves no program of NCCL's; a library that is named may be of another build.
if [[ "$("$strait" version)" == *"without GPU support"* ]]; then
  grep -q "warning: this build has no GPU support" <<<"$said" || fail "no warning that there is no GPU support: $said"
else
  grep -q "no GPU support" <<<"$said" && fail "a warning in a build for GPUs: $said"
fi
grep -q "no GPU support" <<<"$("$strait" run --library "$library" -- true 2>&1)" && fail "a warning on a library that is named"
[[ -z "$("$strait" run --quiet -- true 2>&1)" ]] || fail "--quiet is not quiet"
"$strait" run --quiet -- true >&- || fail "a program that prints nothing needs no standard output"
"$strait" run --quiet -- sh -c '[ ! -e /proc/self/fd/1 ]' >&- || fail "a closed standard output is not closed for the program"

# The environment of the command; what was preloaded before stays.
env="$(LD_PRELOAD=libm.so.6 "$strait" run --quiet -- env)"
grep -qxF "LD_PRELOAD=$library:libm.so.6" <<<"$env" || fail "LD_PRELOAD is wrong: $env"
for variable in VLLM_NCCL_SO_PATH SGLANG_NCCL_SO_PATH SGLANG_DIFFUSION_NCCL_SO_PATH; do
  grep -qxF "$variable=$library" <<<"$env" || fail "$variable is wrong: $env"
done
env="$(LD_LIBRARY_PATH=/some/where "$strait" run --quiet -- env)"
grep -qxF "LD_LIBRARY_PATH=$(dirname "$library"):/some/where" <<<"$env" || fail "LD_LIBRARY_PATH is wrong: $env"

# Exit statuses, arguments with blanks and dashes, and standard input pass through.
"$strait" run --quiet -- sh -c 'exit 37' && fail "a failure was lost" || [[ $? == 37 ]] || fail "the status is not 37"
[[ "$("$strait" run --quiet -- printf '<%s>' --library 'a b' -- -x)" == '<--library><a b><--><-x>' ]] ||
  fail "arguments do not pass through"
# Lists of Python's, empty words and such are no business of `strait run`, also where there is no --.
words=('[0, 1]' '[]' '[a,b]' '[[x],[y]]' '' ' ' '--devices=[0,1]' -n -- '{1,2}' '"[q]"' 'a,b' '%%' '++' '*' $'two\nlines' $'\xfc')
expected="$(printf '<%s>' "${words[@]}")"
[[ "$("$strait" run --quiet -- printf '<%s>' "${words[@]}")" == "$expected" ]] || fail "words are changed"
[[ "$("$strait" run --quiet printf '<%s>' '[0, 1]' '[]' '' - perf)" == '<[0, 1]><[]><><-><perf>' ]] ||
  fail "words without -- are changed"
[[ "$(echo text | "$strait" run --quiet -- cat)" == text ]] || fail "standard input does not pass through"

# A program that brings an NCCL of its own, by an RPATH that beats LD_LIBRARY_PATH, is served by ours and says so.
export STRAIT_NCCL_HOST_RANKS=1
LD_LIBRARY_PATH="$others" "$program" >"$work/without" 2>&1 && fail "without strait run, the other library should serve"
grep -q "another library serves" "$work/without" || fail "the other library was not used: $(cat "$work/without")"
"$strait" run --quiet -- "$program" >"$work/out" 2>"$work/err" || fail "the program failed: $(cat "$work/err")"
grep -qx "sums are right, NCCL 22809" "$work/out" || fail "wrong output: $(cat "$work/out")"
[[ "$(grep -cF "NCCL 2.28.9 is served by Strait" "$work/err")" == 1 ]] || fail "not one proof: $(cat "$work/err")"
grep -qF ", $library (rank 0 of 3)" "$work/err" || fail "the proof names no file: $(cat "$work/err")"

# Whichever name it is opened by. Of another one that a program opens by its path later its next communicator tells once.
cat >"$work/opens.py" <<'PY'
import ctypes, sys
def make_communicator(library):
    comm = ctypes.c_void_p()
    assert library.ncclCommInitAll(ctypes.byref(comm), 1, None) == 0
def libraries():
    return {line.split()[-1] for line in open("/proc/self/maps") if "libnccl" in line}
before = libraries()
ours = ctypes.CDLL("libnccl.so")
assert libraries() == before and len(before) == 1, libraries()
make_communicator(ours)
ctypes.CDLL(sys.argv[1])
make_communicator(ours)
make_communicator(ours)
PY
opens() { # level
  LD_LIBRARY_PATH="$others" STRAIT_DEBUG="$1" "$strait" run --quiet -- python3 "$work/opens.py" "$others/libnccl.so.2" \
    >"$work/out" 2>"$work/err" || fail "libnccl.so is not Strait's: $(cat "$work/err")"
}
opens info
[[ "$(grep -cF "libnccl.so.2 is loaded too, but only" "$work/err")" == 1 ]] || fail "not told once: $(cat "$work/err")"
opens warn
grep -qF "is loaded too" "$work/err" && fail "a warning of what nobody finds by name: $(cat "$work/err")"
# Where programs find that one by name, it is a warning.
LD_LIBRARY_PATH="$others" python3 - "$library" >"$work/out" 2>"$work/err" <<'PY' ||
import ctypes, sys
ctypes.CDLL("libnccl.so.2")
ours = ctypes.CDLL(sys.argv[1])
for _ in range(2):
    comm = ctypes.c_void_p()
    assert ours.ncclCommInitAll(ctypes.byref(comm), 1, None) == 0
PY
  fail "the library does not open by its path: $(cat "$work/err")"
[[ "$(grep -cF "may be served by both" "$work/err")" == 1 ]] || fail "not one warning: $(cat "$work/err")"

# The version is settable; a version that is none is refused before the program starts.
STRAIT_NCCL_VERSION=23004 "$strait" run --quiet -- "$program" >"$work/out" 2>"$work/err"
grep -qx "sums are right, NCCL 23004" "$work/out" || fail "the version is not settable"
STRAIT_NCCL_VERSION=2.28 "$strait" run -- true 2>"$work/err" && fail "STRAIT_NCCL_VERSION=2.28 was accepted"
grep -q "STRAIT_NCCL_VERSION" "$work/err" || fail "the refusal does not name the variable: $(cat "$work/err")"

# Mistakes.
"$strait" run 2>"$work/err" && fail "no command was accepted" || [[ $? == 2 ]] || fail "the status is not 2"
"$strait" run -- 2>"$work/err" && fail "no command was accepted" || [[ $? == 2 ]] || fail "the status is not 2"
for words in "--no-such -- true" "true -- true" "true -x"; do
  # shellcheck disable=SC2086  # one word an argument
  "$strait" run $words 2>"$work/err" && fail "run $words was accepted" || [[ $? == 2 ]] || fail "run $words: not status 2"
  grep -q "not expected" "$work/err" || fail "unclear: $(cat "$work/err")"
done
"$strait" run -- /does/not/exist 2>"$work/err" && fail "it ran" || [[ $? == 127 ]] || fail "the status is not 127"
"$strait" run -- /etc/passwd 2>"$work/err" && fail "it ran" || [[ $? == 126 ]] || fail "the status is not 126"
"$strait" run --library /does/not/exist -- true 2>"$work/err" && fail "a missing library was accepted"
grep -q "there is no /does/not/exist" "$work/err" || fail "unclear: $(cat "$work/err")"
"$strait" run --library /etc/passwd -- true 2>"$work/err" && fail "a file that is no library was accepted"
mkdir "$work/a b" && cp "$library" "$work/a b/"
"$strait" run --library "$work/a b/libnccl.so.2" -- true 2>"$work/err" && fail "a path with a blank was accepted"
grep -q "blank or a colon" "$work/err" || fail "unclear: $(cat "$work/err")"
ln -s "$work/a b/libnccl.so.2" "$work/libnccl.so.2"
"$strait" run --quiet --library "$work/libnccl.so.2" -- true || fail "a link to such a path was refused"
