#!/usr/bin/env bash
# Runs benchmarks on a GPU machine, from what gpu-pack.sh has packed:
#
#   scripts/gpu-bench.sh [--quick] [FOLDER] [NAME...]
#
# Results go to FOLDER ($OUT by default): benches.json, performance.md, bench.log. NAMEs choose some
# benchmarks; `raw` means those of plain bytes, `hdf5` all of compressed and chunked datasets,
# `driver` those of H5Dread and H5Dwrite through the driver, `connector` those of operations that
# continue after their call, `shared` the plot files that MPI ranks write together (PENSTOCK_BENCH_SHARED has
# more options for it). The first two together, which is the default, take longer than one of them.
# PENSTOCK_BENCH_DIR is where their files are, on the file system to be measured;
# PENSTOCK_BENCH_SECONDS bounds all of them together.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick=()
if [[ ${1-} = --quick ]]; then
    quick=(--quick)
    shift
fi
results=${1:-${OUT:?give a folder for the results, or set OUT}}
(($# > 0)) && shift
files=${PENSTOCK_BENCH_DIR:-/tmp/penstock-bench}
deadline=$((SECONDS + ${PENSTOCK_BENCH_SECONDS:-480}))
mkdir -p "$results"
. scripts/gpu-site.sh || exit 1

# Benchmarks of a cached file come first, so that the file is dropped and read again only once.
raw=(link cached_read sizes random_read overhead cold_read write_durable)
hdf5=(hdf5_gzip hdf5_few hdf5_write hdf5_codecs hdf5_strided hdf5_plain hdf5_host hdf5_small
    hdf5_sizes reread)
driver=(vfd vfd_write vfd_durable vfd_attributes vfd_small)
connector=(async_small async_submit async_plotfile)
documents=(hdf5-read hdf5-write tensor memory decode small plotfile vfd vfd-threads scaling)
names=()
(($#)) || set -- raw hdf5
for name in "$@"; do
    case $name in
        raw) names+=("${raw[@]}") ;;
        hdf5) names+=("${hdf5[@]}") ;;
        driver) names+=("${driver[@]}") ;;
        connector) names+=("${connector[@]}") ;;
        documents) names+=("${documents[@]/#/bench:}") ;;
        shared) names+=(bench:plotfile-shared) ;;
        *) names+=("$name") ;;
    esac
done
# The most seconds of one benchmark.
declare -A limits=([async_plotfile]=300 [hdf5_gzip]=150 [hdf5_few]=60 [hdf5_write]=90 [hdf5_codecs]=90
    [hdf5_strided]=90 [hdf5_plain]=60 [hdf5_host]=90 [hdf5_sizes]=300 [hdf5_small]=300 [reread]=120
    [vfd]=400 [vfd_write]=250 [vfd_durable]=400 [vfd_attributes]=60 [vfd_small]=60
    [bench:vfd]=300 [bench:memory]=240 [bench:scaling]=300
    [bench:plotfile-shared]=560)

# A stock HDF5 rather than h5py's, if one is packed; and one of the driver's modes is cuFile's.
for library in "$PWD"/dist-gpu/lib/libhdf5.so.*; do
    [[ -e $library ]] && export PENSTOCK_BENCH_HDF5=${PENSTOCK_BENCH_HDF5:-$library}
done
[[ " ${names[*]} " = *[\ :]vfd* || " ${names[*]} " = *bench:* ]] && mkdir -p "$files" && udev_entry "$files"

# DeepSpeed takes numbers only, and this variable may have "9.0a".
export TORCH_CUDA_ARCH_LIST=${TORCH_CUDA_ARCH_LIST-}
TORCH_CUDA_ARCH_LIST=${TORCH_CUDA_ARCH_LIST//[a-z]/}
[[ -n $TORCH_CUDA_ARCH_LIST ]] || unset TORCH_CUDA_ARCH_LIST

# The arguments of each benchmark, chosen so that each takes a few minutes.
documents_arguments() { # NAME
    local share
    share=$(python3 -c 'import penstock as ps; print(max(len(ps.devices()), 1))')
    case $1 in
        hdf5-read) echo "$files/hdf5-documents.h5 --cache both" ;;
        hdf5-write) echo "--sizes 1000000,100000000,500000000" ;;
        tensor) echo "--mb_size 1024 -i 3" ;;
        memory) echo "-t 64KiB,1MiB,16MiB -b 64MiB --cache both -i 3" ;;
        decode) echo "--size 1GiB -i 3" ;;
        small) echo "--file-size 1GiB -i 3" ;;
        plotfile) echo "--bytes 512MiB --compute 0.5 -i 2" ;;
        plotfile-shared)
            echo "--shared --hdf5 dist-gpu/parallel --n_rank 4 --bytes 512MiB --steps 5 -i 1 --no-warm-up" \
                "${PENSTOCK_BENCH_SHARED-}"
            ;;
        vfd) echo "--sizes 64MiB,256MiB,512MiB,1GiB --cache both -i 3" ;;
        vfd-threads) echo "--sizes 64MiB,512MiB --threads 1,2,4,8,16 -i 3" ;;
        scaling) echo "--size 2GiB --n_rank $share -i 3" ;;
    esac
}

# Runs one of `penstock bench` in the folder of the files.
document() { # NAME SECONDS
    local words place=(--dir "$files")
    if [[ $1 = hdf5-read ]]; then
        place=()
        python3 - "$files/hdf5-documents.h5" <<'PYTHON'
import sys
import h5py, numpy as np
values = np.random.default_rng(1).standard_normal(1 << 28, np.float32)
with h5py.File(sys.argv[1], "w") as file:
    file["contiguous/float32"] = values
    file.create_dataset("chunked/float32", data=values, chunks=(1 << 20,))
    file.create_dataset("chunked/gzip", data=np.round(values[: 1 << 26], 2), chunks=(1 << 18,),
                        compression="gzip", compression_opts=1, shuffle=True)
PYTHON
    fi
    read -ra words <<<"$(documents_arguments "$1")"
    timeout --kill-after=10 "$2" python3 -m penstock_command bench "${1%-shared}" "${words[@]}" "${place[@]}" \
        --json "$results/bench-$1.json"
}

rows=$(mktemp -d)
failed=0
summary=()
for name in "${names[@]}"; do
    left=$((deadline - SECONDS))
    if ((left < 5)); then
        summary+=("FAILED  $name: no time left")
        failed=1
        continue
    fi
    begin=$SECONDS
    status=0
    limit=${limits[$name]-180}
    mkdir -p "$files"
    case $name in
        bench:*) document "${name#bench:}" "$((left < limit ? left : limit))" ;;
        *)
            timeout --kill-after=5 "$((left < limit ? left : limit))" python3 -m benches "$name" \
                "${quick[@]}" --dir "$files" --json "$rows/$name.json"
            ;;
    esac 2>&1 | tee -a "$results/bench.log" || status=$?
    if ((status == 0)); then
        summary+=("ok      $name ($((SECONDS - begin)) s)")
    else
        summary+=("FAILED  $name ($((SECONDS - begin)) s), exit status $status")
        failed=1
    fi
    # Each has files of its own; together they would fill the disk and the page cache.
    rm -rf "$files"/hdf5-*
done
rm -f "$files/data.h5" "$files/written.bin"
rmdir "$files" 2>/dev/null

# A benchmark in which Penstock failed has a result, too.
if compgen -G "$rows/*.json" >/dev/null; then
    python3 -m benches.documents "$rows"/*.json --merge "$results/benches.json" \
        >"$results/performance.md" || failed=1
    # The promises once more, at the end, which is what a short view of the output shows.
    grep '^| ' "$results/performance.md" | awk '/^\| Target /{on=1} /^\| (What|Contestant) /{on=0} on'
fi
printf '%s\n' "${summary[@]}"
exit "$failed"
