#!/usr/bin/env bash
# Runs Legate's tests and measurements on a GPU machine, from what `gpu-pack.sh --legate` has packed:
#
#   scripts/gpu-legate.sh [FOLDER [RUNS]]
#
# FOLDER is where the files are made, /tmp by default, with 14 GiB of free space. RUNS is how often new
# processes read one compressed dataset by all GPUs and by CPUs, to find a read that hangs, 20 by default.
#
# dist-gpu/legate.tar.xz is unpacked into PENSTOCK_LEGATE (/tmp/penstock-legate), an environment of its own
# that also sees the packages of the machine. Each part runs even if others have failed, with a limit of its
# own, and all of them together for PENSTOCK_LEGATE_SECONDS (520). The last lines have the outcome of each; the
# exit status is the worst one. With OUT set, the whole output goes to $OUT/legate.log, too.
#
# Without a GPU, under `scripts/standin-gpu --preload-path`, it runs on Legate's CPU tasks, to try the script.
# PENSTOCK_LEGATE_SIZES ("64MiB 512MiB 4GiB") are the sizes that are measured.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

tee=
if [[ -n ${OUT-} ]]; then
    exec > >(tee "$OUT/legate.log") 2>&1
    tee=$!
fi
deadline=$((SECONDS + ${PENSTOCK_LEGATE_SECONDS:-520}))
files=$(mktemp -d "${1:-/tmp}/penstock-legate-files-XXXXXX")
runs=${2:-20}
# The log is complete only after tee has ended.
trap 'rm -rf "$files"; exec >&- 2>&-; wait $tee' EXIT
environment=${PENSTOCK_LEGATE:-/tmp/penstock-legate}
summary=()
failed=0
. scripts/gpu-site.sh || exit 1
archive=dist-gpu/legate.tar.xz

# -- Legate's environment

# A virtual environment, because a test starts the program `legate` beside its interpreter. It sees the packages
# of the machine's interpreter, which may itself be of a virtual environment, after its own.
install() {
    rm -rf "$environment"
    python3 -m venv --without-pip "$environment" || return
    local packages
    packages=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || return
    python3 -m tarfile --filter data -e "$archive" "$packages" || return
    env -u PYTHONPATH python3 -c '
import sys
print(*(folder for folder in sys.path if folder.endswith("-packages")), sep="\n")' >"$packages/machine.pth"
    printf '%s\n' "#!$environment/bin/python" 'import sys' 'from legate.driver import main' 'sys.exit(main())' \
        >"$environment/bin/legate"
    chmod +x "$environment/bin/legate"
    sha256sum <"$archive" >"$environment/.complete"
}

if [[ -e $archive ]]; then
    sha256sum <"$archive" | cmp --quiet - "$environment/.complete" || install || {
        echo "$archive could not be unpacked into $environment" >&2
        exit 1
    }
elif [[ ! -e $environment/.complete ]]; then
    echo "there is no $archive: run scripts/gpu-pack.sh --legate" >&2
    exit 1
fi
export PATH=$environment/bin:$PATH

# Legate finds the libraries of NVIDIA's wheels only by the loader's path. NCCL is torch's.
libraries=$(python - <<'PYTHON'
import sys
from pathlib import Path

wanted = ("nvidia/*/lib/libcudart.so.12", "nvidia/*/lib/libnccl.so.2", "legate_cu12.libs/libatomic.so.1")
found = [next((f for folder in sys.path for f in Path(folder).glob(name)), None) for name in wanted]
print(*(file.parent for file in found if file), sep=":")
PYTHON
)
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# Not "gpus" nor "cpus": legate takes exported variables of these names for lists of devices.
gpu_count=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ')
core_count=$(nproc)
export LEGATE_AUTO_CONFIG=0 PENSTOCK_TEST_LEGATE=$environment/bin/python

# Legate's options. Its memory, in MiB, is what a part needs, because Penstock and CuPy need some of the GPU's,
# and page-locking much of the host's takes long.
processors() { # GPUS CPUS HOST_MEMORY GPU_MEMORY
    echo "--gpus $1 --cpus $2 --omps 0 --sysmem $3$( (($1 > 0)) && echo " --zcmem $3 --fbmem $4")"
}

# within SECONDS COMMAND...: at most as long as the part, since the signal that ends a part does not reach the
# process group of another timeout. Nor does it reach the session of a program that `legate` starts, so that
# `python` starts the programs that may hang.
within() {
    local left=$((part_end - EPOCHSECONDS))
    ((left > 0)) || return 124
    timeout --kill-after=5 "$(($1 < left ? $1 : left))" "${@:2}"
}

# -- parts

# part NAME SECONDS COMMAND...: shows the end of the output, more of it where the part failed.
part() {
    local name=$1 seconds=$2 log begin=$SECONDS status=0 left=$((deadline - SECONDS))
    log=$(mktemp)
    shift 2
    echo "== $name"
    if ((left < 10)); then
        summary+=("FAILED  $name: no time left")
        failed=1
        return
    fi
    ((left < seconds)) && seconds=$left
    export part_end=$((EPOCHSECONDS + seconds - 7))
    # pytest prints the failures when it is interrupted.
    timeout --signal=INT --kill-after=10 "$seconds" "$@" >"$log" 2>&1 || status=$?
    if [[ -n ${OUT-} ]]; then
        cat "$log"
    else
        tail -n "$((status == 0 ? 30 : 150))" "$log"
    fi
    if ((status == 0)); then
        summary+=("ok      $name ($((SECONDS - begin)) s) $(tail -n 1 "$log" | cut -c1-120)")
    else
        # A status above 128 is that of a signal, where exit statuses are compared.
        ((status > failed)) && failed=$status
        ((status == 124 || status == 137)) && status="$status, out of time"
        summary+=("FAILED  $name ($((SECONDS - begin)) s), exit status $status")
    fi
    rm "$log"
}

versions() {
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
    echo "libraries: $libraries"
    LEGATE_CONFIG=$(processors "$gpu_count" 1 1000 1000) python - <<'PYTHON'
import h5py, legate.core, numpy, penstock
machine = legate.core.get_legate_runtime().get_machine()
print(machine)
print("penstock", penstock.__version__, "legate", legate.__version__, "numpy", numpy.__version__,
      "h5py", h5py.__version__)
PYTHON
}

suite() { # GPUS
    local options=()
    if python -c 'import pytest_timeout' 2>/dev/null; then
        options+=(--timeout 100)
    else
        # Without the plugin, its setting in pyproject.toml would be an error.
        options+=(-o addopts="-ra --strict-markers --import-mode=importlib" -W ignore::pytest.PytestConfigWarning)
    fi
    PENSTOCK_TEST_LEGATE_GPUS=$1 LEGATE_CONFIG=$(processors "$1" 2 1000 1000) \
        python -m pytest tests/legate -v -p no:cacheprovider --basetemp="$files/pytest" "${options[@]}"
}

# Both ways to read, and a read without Legate.
rates() {
    local folder=$files/rates status=0 sizes=() size
    for size in ${PENSTOCK_LEGATE_SIZES:-64MiB 512MiB 4GiB}; do
        sizes+=(--size "$size")
    done
    python scripts/legate-rates.py files "$folder" "${sizes[@]}" || return
    python scripts/legate-rates.py alone "$folder" || status=1
    # The largest array, and as much for a buffer of Legate's own reader.
    export LEGATE_CONFIG
    LEGATE_CONFIG=$(processors "$((gpu_count > 0))" 2 10000 16000)
    within 60 python scripts/legate-rates.py one "$folder" || status=1
    LEGATE_CONFIG=$(processors "$gpu_count" 2 10000 16000)
    within 60 python scripts/legate-rates.py penstock "$folder" || status=1
    # An error of Legate's own reader is no failure of this part. It can end the process, and the next one
    # continues with the next file.
    local try code
    for try in 1 2 3 4 5; do
        code=0
        within 110 python scripts/legate-rates.py legate "$folder" || code=$?
        ((code <= 1)) && break
        echo "legate.io.hdf5, process $try: exit status $code"
    done
    python scripts/legate-rates.py table "$folder" || status=1
    rm -rf "$folder"
    return "$status"
}

# A program with imports of legate.io.hdf5 only.
unchanged() {
    export LEGATE_CONFIG
    LEGATE_CONFIG=$(processors "$gpu_count" 1 1000 1000)
    python -m penstock_command run --legate --report --report-to "$files/report.json" -- \
        legate --gpus "$gpu_count" tests/legate/round_trip.py "$files/from.h5" "$files/to.h5" \
        >"$files/unchanged.log" 2>&1
    local status=$?
    cat "$files/unchanged.log"
    # Legate goes on by its CPUs where it finds no GPU.
    ((status == 0)) && ! grep -q 'gpus requested' "$files/unchanged.log" || return 1
    python - "$files/report.json" <<'PYTHON'
import collections, json, sys
moved = collections.Counter()
for flow in json.load(open(sys.argv[1]))["flows"]:
    moved[f"{flow['operation']} {flow['path']}"] += flow["bytes"]
print("; ".join(f"{way}: {count} bytes" for way, count in moved.items()) or "no file by the driver")
sys.exit(not moved)
PYTHON
}

# New processes, since a hang depends on how their threads start. Some run at the same time.
repetition() {
    local run codes
    python scripts/legate-rates.py files "$files/hang" --size 64MiB || return
    seq "$runs" | xargs -P "$((core_count > 16 ? core_count / 8 : 2))" -I{} bash -c 'once {}'
    for run in "$files"/run-*.code; do
        [[ $(<"$run") = 0 ]] || { echo "-- $run: exit status $(<"$run")" && cat "${run%.code}.log"; }
    done
    codes=$(cat "$files"/run-*.code)
    cat "$files/run-1.log"
    echo "$(wc -l <<<"$codes") of $runs runs: $(grep -c '^124$' <<<"$codes") hangs," \
        "$(grep -cEv '^(0|124)$' <<<"$codes") failures"
    ! grep -qv '^0$' <<<"$codes"
}

# once NUMBER
once() {
    local limit=60 code=0 cpus=$((core_count > 5 ? core_count - 4 : 1))
    # A run that the end of the part would end could be taken for one that hangs.
    ((part_end - EPOCHSECONDS > limit)) || return 0
    LEGATE_RATES_STACKS_AFTER=$((limit - 5)) LEGATE_CONFIG=$(processors "$gpu_count" "$cpus" 1000 1000) \
        within "$limit" python scripts/legate-rates.py once "$files"/hang/gzip-*.h5 \
        >"$files/run-$1.log" 2>&1 || code=$?
    echo "$code" >"$files/run-$1.code"
}

export files runs gpu_count core_count libraries
export -f udev_entry processors within versions suite rates unchanged repetition once
part "machine" 60 bash -c versions
if ((gpu_count > 0)); then
    part "udev entry" 20 bash -c 'udev_entry "$files"'
    part "tests, 1 GPU" 130 bash -c 'suite 1'
    ((gpu_count > 1)) && part "tests, 2 GPUs" 130 bash -c 'suite 2'
else
    part "tests, CPUs" 130 bash -c 'suite 0'
fi
part "unchanged program" 60 bash -c unchanged
part "repetition" 300 bash -c repetition
part "rates" 220 bash -c rates
echo
printf '%s\n' "${summary[@]}"
exit "$failed"
