# Sourced by the gpu-*.sh scripts on a GPU machine: installs what gpu-pack.sh has packed into a
# folder of its own, once, and makes Python look there first.
site=${PENSTOCK_SITE:-/tmp/penstock-site}

for archive in dist-gpu/{packed,peers,parallel}.tar.gz; do
    if [[ $archive -nt $archive.unpacked ]]; then
        tar xzmf "$archive"
        touch "$archive.unpacked"
    fi
done

# An older folder of this name would hide what was packed since.
if [[ ! -e $site/.complete || -n $(find dist-gpu -newer "$site/.complete" -name '*.whl') ]]; then
    rm -rf "$site"
    shopt -s nullglob
    wheels=(dist-gpu/*.whl dist-gpu/peers/*.whl dist-gpu/parallel/*.whl)
    shopt -u nullglob
    python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir \
        --disable-pip-version-check --root-user-action=ignore --target "$site" "${wheels[@]}"
    touch "$site/.complete"
fi
export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
export PYTHONUNBUFFERED=1

# Programs of peers, and what DeepSpeed compiles its operators with.
export PATH=$PWD/dist-gpu/peers/bin:$PATH
aio=$PWD/dist-gpu/peers/usr
if [[ -d $aio ]]; then
    export CPATH=$aio/include${CPATH:+:$CPATH}
    export LIBRARY_PATH=$aio/lib/x86_64-linux-gnu${LIBRARY_PATH:+:$LIBRARY_PATH}
    export LD_LIBRARY_PATH=$aio/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi

# Libraries that are packed without their wheels.
export HDF5_PLUGIN_PATH=${HDF5_PLUGIN_PATH:-$PWD/dist-gpu/hdf5plugin}
if [[ -z ${PENSTOCK_NVCOMP_LIBRARY-} ]]; then
    for library in "$PWD"/dist-gpu/lib/libnvcomp.so.*; do
        [[ -e $library ]] && export PENSTOCK_NVCOMP_LIBRARY=$library
    done
fi

# cuFile looks the file system's device up in udev's database, and refuses every file on a machine
# without one. An entry for the device in use lets it start in its compatibility mode.
udev_entry() { # FOLDER
    python3 - "$1" <<'PYTHON'
import os, pathlib, sys

number = os.stat(sys.argv[1]).st_dev
device = f"{os.major(number)}:{os.minor(number)}"
entry = pathlib.Path("/run/udev/data", f"b{device}")
mounts = [line.split() for line in open("/proc/self/mountinfo")]
types = [fields[fields.index("-") + 1] for fields in mounts if fields[2] == device]
if entry.exists():
    print(f"{entry} is there")
elif not types or os.major(number) == 0:
    print(f"{sys.argv[1]} is on no block device: no entry helps cuFile there")
else:
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text(f"E:ID_FS_TYPE={types[0]}\nE:ID_FS_USAGE=filesystem\nE:DEVTYPE=disk\nV:1\n")
    print(f"{entry} written for {types[0]}")
PYTHON
}
