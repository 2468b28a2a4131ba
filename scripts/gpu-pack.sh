#!/usr/bin/env bash
# Packs dist-gpu/ for a GPU machine without a network and without cargo: Penstock's wheel, its
# peers, what else is missing there, and the Rust tests.
#
#   scripts/gpu-pack.sh            # Penstock's wheel, and the other wheels if they are not there yet
#   scripts/gpu-pack.sh --tests    # the Rust tests too
#
# PYTHON names the interpreter here; GPU_PYTHON (default 3.12) the version there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
version=${GPU_PYTHON:-3.12}
limit_mib=55
folder=dist-gpu
mkdir -p "$folder/bin"

# torch, CuPy, h5py, NumPy, pytest, hypothesis, typer and rich are expected on the machine.
# Not packed: DeepSpeed, which has no wheel and compiles its operators where it runs, and
# fastsafetensors, whose file format no benchmark reads.
wheels=(cffi pycparser kvikio-cu13 libkvikio-cu13 rapids-logger)

for name in "${wheels[@]}"; do
    compgen -G "$folder/${name//-/_}-*.whl" >/dev/null && continue
    # pip matches the platform exactly, so each that is in use has to be named.
    "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps \
        --only-binary=:all: --implementation cp --python-version "$version" \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
        --platform manylinux_2_24_x86_64 --platform manylinux_2_17_x86_64 \
        --platform manylinux2014_x86_64 --dest "$folder" "$name"
done

rm -f "$folder"/penstock-*.whl
"$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$folder" .

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
        strip --strip-debug -o "$folder/bin/$name" "$executable"
    done
fi

size=$(du -sm --apparent-size "$folder" | cut -f1)
ls -l "$folder" "$folder/bin"
echo "$folder: $size MiB"
if ((size > limit_mib)); then
    echo "$folder is larger than $limit_mib MiB, which is what travels to the machine" >&2
    exit 1
fi
