#!/usr/bin/env bash
# Packs dist-gpu/ for a GPU machine without a network and without cargo: Penstock's wheel, its
# peers, nvCOMP, other packages that the machine lacks, and the tests in Rust and C.
#
#   scripts/gpu-pack.sh            # Penstock's wheel, and the other wheels if they are not there yet
#   scripts/gpu-pack.sh --tests    # the tests in Rust and C, too
#   scripts/gpu-pack.sh --legate   # Penstock's wheel and dist-gpu/legate.tar.xz only, for gpu-legate.sh
#
# dist-gpu/packed.tar.gz holds all of it but KvikIO, DeepSpeed and the program in dist-gpu/peers/bin
# (fio, built by hand, where it is wanted), which are in dist-gpu/peers.tar.gz, and a
# parallel HDF5 with its MPI, in dist-gpu/parallel.tar.gz. Where only these archives arrive, the gpu-*.sh
# scripts unpack them.
#
# PYTHON names the interpreter here; GPU_PYTHON (default 3.12) the version there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
version=${GPU_PYTHON:-3.12}
# With the checkout it is 64 MiB.
limit_mib=50
folder=dist-gpu
mkdir -p "$folder/bin" "$folder/lib" "$folder/hdf5plugin"

# torch, CuPy, h5py, NumPy, pytest, hypothesis, typer and rich are expected on the machine.
# fastsafetensors is not packed: no benchmark reads its file format.
wheels=(cffi pycparser)

download() { # FOLDER NAME...
    # pip matches the platform exactly, so each that is in use has to be named.
    "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps \
        --only-binary=:all: --implementation cp --python-version "$version" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux_2_24_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --dest "$1" "${@:2}"
}

for name in "${wheels[@]}"; do
    compgen -G "$folder/${name//-/_}-*.whl" >/dev/null || download "$folder" "$name"
done

penstock_wheel() {
    rm -f "$folder"/penstock-*.whl
    "$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder" .
}

# Legate with what it needs beside the packages of torch, as a folder of packages. The wheel has its largest
# libraries two to three times, because a wheel holds no symbolic links: here all but one are links, and
# without headers and static libraries 100 MiB of wheels become about 32.
legate_archive() { # FILE
    local wheels
    wheels=$(mktemp -d)
    # The version that `make test-legate` takes; it does not run with a newer NumPy.
    download "$wheels" legate-cu12==26.6.1 'numpy<2.5' nvidia-cuda-runtime-cu12
    # The wheel expects it of the system, where only a compiler brings it.
    cp "$(cc -print-file-name=libatomic.so.1)" "$wheels"
    "$PYTHON" - "$wheels" "$1" <<'END'
import hashlib, os, sys, tarfile, zipfile
from fnmatch import fnmatch
from pathlib import Path

wheels, archive = map(Path, sys.argv[1:])
# The package nvidia has no __init__.py, so that one in a second folder adds to torch's.
unused = ("*/include/*", "*.a", "*/tests/*", "nvidia/__init__.py")
first: dict[bytes, str] = {}
with tarfile.open(archive.with_suffix(".partial"), "w:xz", preset=6) as packed:
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as unpacked:
            for item in unpacked.infolist():
                name = item.filename
                if item.is_dir() or any(fnmatch(name, pattern) for pattern in unused):
                    continue
                entry = tarfile.TarInfo(name)
                entry.mode = (item.external_attr >> 16) & 0o777 | 0o644
                with unpacked.open(item) as file:
                    digest = hashlib.sha256(file.read()).digest()
                same = first.setdefault(digest, name) if item.file_size > 1 << 16 else name
                if same != name:
                    entry.type = tarfile.SYMTYPE
                    entry.linkname = os.path.relpath(same, os.path.dirname(name))
                    packed.addfile(entry)
                else:
                    entry.size = item.file_size
                    with unpacked.open(item) as file:
                        packed.addfile(entry, file)
    packed.add(wheels / "libatomic.so.1", "legate_cu12.libs/libatomic.so.1")
archive.with_suffix(".partial").rename(archive)
END
    rm -r "$wheels"
}

if [[ ${1-} = --legate ]]; then
    [[ -e $folder/legate.tar.xz ]] || legate_archive "$folder/legate.tar.xz"
    penstock_wheel
    carried=("$folder"/*.whl "$folder/legate.tar.xz")
    ls -l "${carried[@]}"
    size=$(du -cm --apparent-size "${carried[@]}" | tail -n 1 | cut -f1)
    echo "together $size MiB"
    ((size <= limit_mib)) || echo "that is more than the $limit_mib MiB that travel to the machine" >&2
    exit "$((size > limit_mib))"
fi

# DeepSpeed has no wheel of its own, and compiles its operators where it runs, which takes libaio.
deepspeed_needs=(annotated-types einops hjson msgpack ninja psutil py-cpuinfo pydantic
    pydantic-core tqdm typing-extensions typing-inspection)
peers=$folder/peers
mkdir -p "$peers/bin"
for name in kvikio-cu13 libkvikio-cu13 rapids-logger; do
    compgen -G "$peers/${name//-/_}-*.whl" >/dev/null || download "$peers" "$name"
done
if ! compgen -G "$peers/deepspeed-*.whl" >/dev/null; then
    download "$peers" "${deepspeed_needs[@]}"
    "$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$peers" deepspeed
fi
if [[ ! -e $peers/usr/include/libaio.h ]] && command -v apt-get >/dev/null; then
    unpacked=$(mktemp -d)
    (cd "$unpacked" && apt-get --quiet=2 download libaio-dev libaio1)
    for package in "$unpacked"/*.deb; do
        dpkg --extract "$package" "$peers"
    done
    rm -r "$unpacked"
fi

# Of these wheels, only the libraries in use: whole, they exceed the limit of the transfer.
libraries() { # NAME TARGET FILE...
    local unpacked
    unpacked=$(mktemp -d)
    download "$unpacked" "$1"
    "$PYTHON" - "$unpacked" "${@:2}" <<'END'
import sys, zipfile
from fnmatch import fnmatch
from pathlib import Path

unpacked, target, *patterns = sys.argv[1:]
for wheel in Path(unpacked).glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if any(fnmatch(name, f"*/{pattern}") for pattern in patterns):
                Path(target, Path(name).name).write_bytes(archive.read(name))
END
    strip --strip-unneeded "$2"/*.so*
    rm -r "$unpacked"
}
compgen -G "$folder/lib/libnvcomp.so.*" >/dev/null ||
    libraries nvidia-libnvcomp-cu13 "$folder/lib" 'libnvcomp.so.?'
[[ -e $folder/hdf5plugin/libh5zstd.so ]] ||
    libraries hdf5plugin "$folder/hdf5plugin" libh5lz4.so libh5zstd.so

# A peer of the benchmarks.
cargo build --quiet --release --locked --package penstock-codec --example threaded_inflate
strip --strip-unneeded -o "$folder/lib/libthreaded_inflate.so" \
    "${CARGO_TARGET_DIR:-target}/release/examples/libthreaded_inflate.so"

# Measures the cost of querying the memory kind of an address: dist-gpu/tools/pointer_cost.
mkdir -p "$folder/tools"
cargo build --quiet --release --locked --package penstock-engine --example pointer_cost
strip -o "$folder/tools/pointer_cost" "${CARGO_TARGET_DIR:-target}/release/examples/pointer_cost"

# A stock HDF5, for the benchmarks of the driver and its C programs.
stock=$(scripts/build-hdf5 1.14.4 --optimized)
strip --strip-unneeded -o "$folder/lib/libhdf5.so.310" "$(readlink -f "$stock/lib/libhdf5.so")"

# An HDF5 for ranks that share a file, its MPI library and launcher, and mpi4py.
parallel=$folder/parallel
built=$(scripts/build-hdf5 1.14.4 --mpich-optimized)
mpi=$(scripts/mpi mpich --print-prefix)
mkdir -p "$parallel"/{bin,lib/mpich}
strip --strip-unneeded -o "$parallel/lib/libhdf5.so" "$(readlink -f "$built/lib/libhdf5.so")"
cp "$mpi/lib/libmpi.so.12" "$parallel/lib"
cp "$mpi"/lib/mpich/*.so.* "$parallel/lib/mpich"
cp "$mpi"/bin/{mpiexec,hydra_pmi_proxy} "$parallel/bin"
compgen -G "$parallel/mpi4py-*.whl" >/dev/null || download "$parallel" mpi4py

penstock_wheel

if [[ ${1-} = --tests ]]; then
    rm -f "$folder"/bin/*
    # Cargo says where it has put each test; the name without the hash is easier to read.
    {
        cargo test --release --locked --no-run --package penstock-engine --message-format=json
        cargo test --release --locked --no-run --package penstock-codec --test gpu \
            --message-format=json
    } |
        "$PYTHON" -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["profile"]["test"]:
        print(message["target"]["name"], message["executable"])
' | while read -r name executable; do
        strip -o "$folder/bin/$name" "$executable"
    done

    programs() { # FOLDER SOURCE...
        local target=$folder/$1 source
        shift
        mkdir -p "$target"
        rm -f "$target"/*
        for source in "$@"; do
            cc -std=c11 -D_GNU_SOURCE -O1 -w -Icrates/capi/include -isystem "$stock/include" \
                "$source" -o "$target/$(basename "$source" .c)" -rdynamic -pthread \
                "-Wl,-rpath,\$ORIGIN/../lib" "$stock/lib/libhdf5.so" -ldl \
                -Wl,--as-needed "-L${CARGO_TARGET_DIR:-target}/release" -lpenstock -s
        done
    }
    # The programs that use device memory, by the driver and by the connector.
    programs driver tests/hdf5/{transfers,device}/*.c
    programs connector tests/hdf5/async/*.c
fi

# A file of its own, because one archive of everything would exceed the limit of the transfer.
archive=$folder/packed.tar.gz
rm -f "$archive"
packed=$(mktemp)
tar czf "$packed" --exclude="$folder/peers*" --exclude="$folder/parallel*" \
    --exclude="$folder/legate*" "$folder"
chmod 644 "$packed"
mv "$packed" "$archive"
tar czf "$folder/peers.tar.gz" "$peers"
tar czf "$folder/parallel.tar.gz" "$parallel"
ls -l "$folder" "$folder"/*/
size=$(du -sm --apparent-size "$archive" | cut -f1)
echo "$archive: $size MiB"
if ((size > limit_mib)); then
    echo "$archive is larger than $limit_mib MiB, which is what travels to the machine" >&2
    exit 1
fi
