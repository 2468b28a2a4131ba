#!/usr/bin/env bash
# Runs the tests and the first commands on a GPU machine, from what gpu-pack.sh has packed:
#
#   scripts/gpu-check.sh [FOLDER [PART...]]
#
# FOLDER is where the tests make their files, /tmp by default. PARTs choose some parts: a run of all
# takes up to ten minutes.
#
# Each part runs even if others have failed. The last lines have the outcome of each; the exit status
# is the worst one. With OUT set, check.log there gets the whole output of each part as it ends, and
# report.html the page of penstock report.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

files=${1:-/tmp}
chosen=("${@:2}")
mkdir -p "$files"
logs=$(mktemp -d)
summary=()
failed=0
. scripts/gpu-site.sh || exit 1

# part NAME SECONDS COMMAND...: shows the end of the output, all of it where the part failed.
part() {
    local name=$1 seconds=$2 log=$logs/${1// /-}.log begin=$SECONDS status=0
    shift 2
    ((${#chosen[@]} == 0)) || [[ " ${chosen[*]} " = *" $name "* ]] || return 0
    echo "== $name"
    # pytest prints the failures when it is interrupted.
    timeout --signal=INT --kill-after=20 "$seconds" "$@" >"$log" 2>&1 || status=$?
    # One file, because few come back from a lent machine; at once, because a run can be cut off.
    [[ -n ${OUT-} ]] && { printf '==== %s\n' "$name"; cat "$log"; } >>"$OUT/check.log"
    if ((status == 0)); then
        tail -n 25 "$log"
        summary+=("ok      $name ($((SECONDS - begin)) s) $(tail -n 1 "$log" | cut -c1-100)")
    else
        tail -n 150 "$log"
        failed=1
        ((status == 124)) && status="$status, out of time"
        summary+=("FAILED  $name ($((SECONDS - begin)) s), exit status $status")
    fi
}

rust_tests() {
    local test status=0 code
    for test in dist-gpu/bin/*; do
        [[ -x $test ]] || continue
        code=0
        PENSTOCK_TEST_DIR=$files timeout 90 "$test" </dev/null >"$logs/rust" 2>&1 || code=$?
        echo "-- ${test##*/}: $(grep '^test result' "$logs/rust")"
        ((code == 0)) && continue
        # A process can also end badly after all of its tests have passed.
        cat "$logs/rust"
        echo "-- ${test##*/} FAILED, exit status $code"
        status=1
    done
    return "$status"
}

# The C programs of tests/hdf5 in a folder of dist-gpu, on a stock HDF5 and with device memory, each
# in a folder of its own.
hdf5_programs() { # FOLDER
    local program skipped=0 passed=0 status=0 code folder
    HDF5_PLUGIN_PATH=$(env -u HDF5_DRIVER -u HDF5_VOL_CONNECTOR python3 -m penstock_command --plugin-dir)
    export HDF5_PLUGIN_PATH LD_LIBRARY_PATH=$site/penstock/lib PENSTOCK_TEST_MEMORY=device
    for program in "$PWD/dist-gpu/$1"/*; do
        folder=$(mktemp -d "$files/penstock-$1-XXXXXX")
        code=0
        (cd "$folder" && timeout 60 "$program") || code=$?
        rm -rf "$folder"
        case $code in
            0) passed=$((passed + 1)) ;;
            77) skipped=$((skipped + 1)) ;;
            *)
                echo "-- ${program##*/} FAILED, exit status $code"
                status=1
                ;;
        esac
    done
    echo "$passed passed, $skipped skipped"
    return "$status"
}

driver_programs() {
    export HDF5_DRIVER=penstock
    hdf5_programs driver
}

# Alone, and above the driver.
connector_programs() {
    local status=0
    export HDF5_VOL_CONNECTOR="penstock_async under_vol=0;under_info={}"
    hdf5_programs connector || status=1
    HDF5_DRIVER=penstock hdf5_programs connector || status=1
    return "$status"
}

report() {
    python3 -m penstock_command report "$files" --measure --json --html "${OUT:-$logs}/report.html" \
        >"$logs/report.json" || return
    python3 -m json.tool "$logs/report.json"
}

export files logs site
export -f rust_tests hdf5_programs driver_programs connector_programs report
part "machine" 60 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
udev_entry "$files"
# In as many processes as there are cores, less two, where pytest-xdist is, which takes a tenth of the
# time; at most 14, because they share the first GPU. -v leaves the name of each test in the log.
# gpu-bench.sh runs the benchmarks, so their smoke test is left out.
processes=$(($(nproc) > 16 ? 14 : $(nproc) > 2 ? $(nproc) - 2 : 1))
side_by_side=()
python3 -c 'import xdist' 2>/dev/null &&
    side_by_side=(-v -n "$processes" --dist worksteal -p no:benchmark)
python3 -c 'import pytest_timeout' 2>/dev/null && side_by_side+=(--timeout 150)
part "pytest" 400 python3 -m pytest tests/python -p no:cacheprovider "${side_by_side[@]}" \
    --durations=10 --basetemp="$files/penstock-pytest" --ignore=tests/python/test_benches.py
part "torch" 150 python3 -m pytest tests/torch -q -m gpu -p no:cacheprovider \
    --basetemp="$files/penstock-torch"
part "ranks" 200 python3 -m pytest tests/dist/test_{mpi,torch,examples}.py -q -m gpu -p no:cacheprovider \
    --basetemp="$files/penstock-ranks"
if compgen -G 'dist-gpu/bin/*' >/dev/null; then
    part "rust tests" 300 bash -c rust_tests
fi
if compgen -G 'dist-gpu/driver/*' >/dev/null; then
    part "driver programs" 200 bash -c driver_programs
fi
if compgen -G 'dist-gpu/connector/*' >/dev/null; then
    part "connector programs" 300 bash -c connector_programs
fi
part "demo" 120 python3 -m penstock_command demo --size 1GiB --dir "$files"
part "report" 60 bash -c report
echo
printf '%s\n' "${summary[@]}"
exit "$failed"
