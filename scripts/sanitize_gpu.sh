#!/usr/bin/env bash
# Runs tests of GPU ranks under NVIDIA's compute-sanitizer and prints a table. Builds nothing: first scripts/test.sh
# --preset cuda, or cmake --build build/cuda --target tests_gpu.
#   scripts/sanitize_gpu.sh [--build FOLDER] [--tool NAME] [--program NAME] [--limit SECONDS]
#   --tool: memcheck (addresses), racecheck (hazards in shared memory), synccheck (barriers) or initcheck (memory that
#           nobody has written); all if absent
#   --limit: of each run, 120 if absent
# Exit status: 0 nothing was found; 1 something was, or a run failed or took too long; 77 no sanitizer or no GPU here.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
build="$root/build/cuda" only_tool='' only_program='' limit_s=120
while [[ $# -gt 0 ]]; do
  case "$1" in
    --build) build="${2:?--build needs a folder}" && shift 2 ;;
    --tool) only_tool="${2:?--tool needs a name}" && shift 2 ;;
    --program) only_program="${2:?--program needs a name}" && shift 2 ;;
    --limit) limit_s="${2:?--limit needs seconds}" && shift 2 ;;
    --help) sed -n '2,8s/^# \{0,1\}//p' "$0" && exit 0 ;;
    *) echo "sanitize_gpu: unknown option $1; see --help" >&2 && exit 1 ;;
  esac
done

cuda="${CUDA_HOME:-${CUDA_PATH:-/usr/local/cuda}}"
sanitizer="$(command -v compute-sanitizer || true)"
for place in "$cuda/bin" "$cuda/compute-sanitizer"; do
  [[ -n "$sanitizer" || ! -x "$place/compute-sanitizer" ]] || sanitizer="$place/compute-sanitizer"
done
if [[ -z "$sanitizer" ]]; then
  echo "sanitize_gpu: skipped, no compute-sanitizer in PATH or $cuda (it comes with the CUDA toolkit)"
  exit 77
fi
if ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  echo "sanitize_gpu: skipped, no GPU here"
  exit 77
fi

# Tool, program, its arguments. Kernels of two ranks wait for one another: tools that hold launches up get ranks that are
# processes on GPUs of their own. Racecheck looks at shared memory only, which the kernels of ranks and of the executor
# use; initcheck does not see what peers write into memory that they map, so it looks at programs without peers.
readonly RUNS="
memcheck  device_collectives_test --gtest_filter=*Repeats/Threads2:*Messages/Threads2:*Repeats/Processes2
memcheck  device_collectives_test --gtest_filter=*AllShapes/Threads2
memcheck  device_collectives_test --gtest_filter=*AllTypesAndOperations/Threads2
memcheck  device_long_messages_test --gtest_filter=*LongMessages/Threads2
memcheck  device_wire_test        --gtest_filter=*Threads2
memcheck  device_faults_test      --gtest_filter=*AnAbortEnds*:*CallsThatDiffer*
memcheck  wire_on_gpu_test
memcheck  cuda_group_test         --gtest_filter=*AllReducePlans*:*CopyingPlans*
memcheck  race_hunt               --calls=500
racecheck device_collectives_test --gtest_filter=*Messages/Processes2
racecheck device_collectives_test --gtest_filter=*AllShapes/Processes2
racecheck wire_on_gpu_test
synccheck device_collectives_test --gtest_filter=*Messages/Processes2
synccheck device_collectives_test --gtest_filter=*AllShapes/Processes2
synccheck wire_on_gpu_test
initcheck wire_on_gpu_test
initcheck device_collectives_test --gtest_filter=*AllShapes/Threads1
"

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
# sum <regular expression>: of the last number in each match in the log; nothing where there is none
sum() { grep -oE "$1" "$log" | grep -oE '[0-9]+$' | awk '{ all += $1 } END { if (NR) print all }' || true; }

set -f  # filters have asterisks
ran=0 bad=0
printf '%-10s %-24s %-58s %5s  %s\n' tool program arguments s result
while read -r tool program arguments; do
  if [[ -z "$tool" || "$tool" != "${only_tool:-$tool}" || "$program" != "${only_program:-$program}" ]]; then continue; fi
  start=$SECONDS status=0
  options=()
  # It enables access to peers for every group anew, of which CUDA answers that it is on already.
  [[ "$tool $program" != "memcheck cuda_group_test" ]] || options=(--report-api-errors no)
  # shellcheck disable=SC2086  # one argument or none
  timeout --kill-after=10 "$limit_s" "$sanitizer" --tool "$tool" "${options[@]}" --target-processes all \
    --error-exitcode 99 "$build/bin/$program" $arguments >"$log" 2>&1 </dev/null || status=$?
  errors="$(sum '(ERROR|RACECHECK) SUMMARY: [0-9]+')"
  result=passed
  if ((status == 124 || status == 137)); then
    result="took longer than $limit_s s"
  elif ((status == 77)) || grep -qF '[  PASSED  ] 0 tests.' "$log"; then
    result=skipped
  elif [[ -z "$errors" ]]; then
    result="no report of the sanitizer (status $status)"
  elif ((errors > 0)); then
    result="$errors errors"
  elif ((status != 0)); then
    result="failed (status $status)"
  fi
  printf '%-10s %-24s %-58s %5d  %s\n' "$tool" "$program" "$arguments" $((SECONDS - start)) "$result"
  ran=$((ran + 1))
  case "$result" in
    passed | skipped) ;;
    *) bad=$((bad + 1)) && { grep -E '========= |FAILED|WRONG|Failure' "$log" || tail -20 "$log"; } | head -40 | sed 's/^/    /' ;;
  esac
done <<<"$RUNS"
((ran > 0)) || { echo "sanitize_gpu: no run has this tool and program" >&2 && exit 1; }
echo "sanitize_gpu: $ran runs, $bad bad"
((bad == 0))
