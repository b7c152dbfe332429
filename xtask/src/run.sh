#!/usr/bin/env bash
# Tests and measures nearjoin on the GPU of this machine.
#
#   run.sh [section …]    sections: conformance unit memcheck racecheck bench scaling papers
#                         hybrid hybrid-papers knn product crossover knn-papers
#                         (default: all of them; check: the first four; tables: the others)
#
# Logs, and record.md with the tables, go to $OUT, or to the folder of this script.
# QUICK=1 makes the tables smaller. SMALL=N gives the sanitizers N points. PYTHON=PATH is an
# interpreter with CuPy, to be timed beside. A section that fails does not keep the others from
# running.

set -u -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here}
mkdir -p "$out"
record=$out/record.md
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bin=$scratch/bin
mkdir "$bin"
for packed in "$here"/*.gz; do
    program=$bin/$(basename "$packed" .gz)
    gzip -dc "$packed" >"$program" && chmod +x "$program"
done
quick=${QUICK:+--quick}
failed=()

# sanitizer TOOL PROGRAM…: memory errors and races end in an exit status of 9.
sanitizer() {
    local tool=$1 program=compute-sanitizer
    shift
    command -v "$program" >/dev/null || program=/usr/local/cuda/bin/compute-sanitizer
    "$program" --tool "$tool" --error-exitcode 9 "$@"
}

# table NAME FLAG…: a section of the benchmark, whose tables are added to the record.
table() {
    local name=$1 status
    shift
    "$bin/nearjoin-bench" "$@" $quick --record "$scratch/$name.md"
    status=$?
    [ -f "$scratch/$name.md" ] && cat "$scratch/$name.md" >>"$record" && echo >>"$record"
    return $status
}

section() {
    case $1 in
    conformance) NEARJOIN_TEST_GPU=1 "$bin/suite" gpu:: hybrid:: ;;
    # The sham driver is for machines without one.
    unit) "$bin/unit" exec::gpu::cuda --skip sham ;;
    memcheck) sanitizer memcheck "$bin/nearjoin-bench" --gpu-small ${SMALL:+--points "$SMALL"} ;;
    racecheck) sanitizer racecheck "$bin/nearjoin-bench" --gpu-small ${SMALL:+--points "$SMALL"} ;;
    bench) table gpu --gpu ;;
    scaling) table gpu-scaling --gpu-scaling ;;
    papers) table gpu-papers --gpu-papers --reps 3 ;;
    hybrid) table hybrid --hybrid ;;
    hybrid-papers) table hybrid-papers --hybrid-papers --reps 2 ;;
    knn) table gpu-knn --gpu-knn ${PYTHON:+--python "$PYTHON"} ;;
    product) table gpu-product --gpu-product ${PYTHON:+--python "$PYTHON"} ;;
    crossover) table gpu-crossover --gpu-crossover --reps 3 ;;
    knn-papers) table knn-papers --knn-papers --reps 2 ;;
    *)
        echo "no section $1: see the top of run.sh"
        return 2
        ;;
    esac
}

checks="conformance unit memcheck racecheck"
tables="bench scaling papers hybrid hybrid-papers knn product crossover knn-papers"
wanted=()
for name in "${@:-all}"; do
    case $name in
    all) wanted+=($checks $tables) ;;
    check) wanted+=($checks) ;;
    tables) wanted+=($tables) ;;
    *) wanted+=("$name") ;;
    esac
done

: >"$record"
nvidia-smi 2>&1 || echo "no nvidia-smi"
"$bin/nearjoin" info 2>&1
results=$'## Sections\n\n'
for name in "${wanted[@]}"; do
    echo "== $name"
    start=$SECONDS
    if section "$name" 2>&1 | tee "$out/$name.log"; then
        verdict=passed
    else
        verdict="FAILED with status ${PIPESTATUS[0]}"
        failed+=("$name")
    fi
    line="- $name: $verdict, $((SECONDS - start)) s"
    echo "== $line"
    results+=$line$'\n'
done
printf '%s' "$results" >>"$record"

if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
echo "all passed"
