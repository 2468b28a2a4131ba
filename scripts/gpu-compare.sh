#!/usr/bin/env bash
# Compares two builds of Penstock on a GPU machine, by turns, from what gpu-pack.sh has packed:
#
#   scripts/gpu-compare.sh [FOLDER] NAME... [--turns N] [--size SIZE]
#
# The build before is the wheel in dist-gpu/before, which gpu-pack.sh packs, too; to make it:
#
#   git worktree add /tmp/before COMMIT
#   (cd /tmp/before && pip wheel --no-deps --wheel-dir CHECKOUT/dist-gpu/before .)
#
# Results go to FOLDER/compare.json ($OUT by default). PENSTOCK_BENCH_DIR is the folder of the files.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

results=${OUT-}
if [[ ${1-} = */* ]]; then
    results=$1
    shift
fi
results=${results:?give a folder for the results, or set OUT}
files=${PENSTOCK_BENCH_DIR:-/tmp/penstock-bench}
before=/tmp/penstock-before
mkdir -p "$results" "$files"
. scripts/gpu-site.sh || exit 1
rm -rf "$before"
python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir \
    --disable-pip-version-check --root-user-action=ignore --target "$before" \
    dist-gpu/before/*.whl || exit 1

# A stock HDF5 rather than h5py's, if one is packed.
for library in "$PWD"/dist-gpu/lib/libhdf5.so.*; do
    [[ -e $library ]] && export PENSTOCK_BENCH_HDF5=${PENSTOCK_BENCH_HDF5:-$library}
done
python3 -m benches.compare --before "$before" --after "$site" --dir "$files" \
    --json "$results/compare.json" "$@"
status=$?
rm -f "$files"/hdf5-* "$files/data.h5" "$files/written.bin"
rmdir "$files" 2>/dev/null
exit "$status"
