#!/usr/bin/env bash
# Measures GPUs of one host at once, with the package of gpu-pack.sh or the installed one:
#
#   scripts/two-gpus.sh [FOLDER] [ARGUMENT...]   # FOLDER for the results, $OUT by default
#
# The arguments are those of scripts/two-gpus.py, such as --devices 0,1,2,3. The files are made in
# PENSTOCK_BENCH_DIR, 4 GiB per GPU, and read from the page cache. It takes less than eight minutes. With
# TUNE=60s, the tuner runs afterwards, for both GPUs together.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

results=${1:-${OUT:?give a folder for the results, or set OUT}}
(($# > 0)) && shift
files=${PENSTOCK_BENCH_DIR:-/tmp/penstock-two-gpus}
mkdir -p "$results" "$files"
[[ -e dist-gpu/packed.tar.gz ]] && { . scripts/gpu-site.sh || exit 1; }

status=0
timeout --kill-after=10 475 python3 scripts/two-gpus.py --dir "$files" --json "$results/two-gpus.json" "$@" |
    tee "$results/two-gpus.txt" || status=$?
if [[ -n ${TUNE-} ]]; then
    python3 -m penstock_command tune "$files" --devices 0,1 --budget "$TUNE" --json \
        >"$results/tune.json" || status=$?
    python3 -m penstock_command tune "$files" --show | tee "$results/tune.txt"
fi
rmdir "$files" 2>/dev/null
exit "$status"
