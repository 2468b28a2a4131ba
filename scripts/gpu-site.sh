# Sourced by the gpu-*.sh scripts on a GPU machine: installs what gpu-pack.sh has packed into a
# folder of its own, once, and makes Python look there first.
site=${PENSTOCK_SITE:-/tmp/penstock-site}

# An older folder of this name would hide what was packed since.
if [[ ! -e $site/.complete || -n $(find dist-gpu -newer "$site/.complete" -name '*.whl') ]]; then
    rm -rf "$site"
    python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir \
        --disable-pip-version-check --root-user-action=ignore --target "$site" dist-gpu/*.whl
    touch "$site/.complete"
fi
export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}
export PYTHONUNBUFFERED=1

# What is packed without its wheel.
export HDF5_PLUGIN_PATH=${HDF5_PLUGIN_PATH:-$PWD/dist-gpu/hdf5plugin}
if [[ -z ${PENSTOCK_NVCOMP_LIBRARY-} ]]; then
    for library in "$PWD"/dist-gpu/lib/libnvcomp.so.*; do
        [[ -e $library ]] && export PENSTOCK_NVCOMP_LIBRARY=$library
    done
fi
