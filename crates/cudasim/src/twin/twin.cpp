// The kernels as C++, by name, and the loop that stands for a launch.

#include "kernels.cu"

namespace {

struct Twin {
    const char *name;
    u32 parameter_bytes;
    void (*run)(const void *parameter);
};

template <class Parameter, void (*Kernel)(Parameter)> void run(const void *bytes) {
    Parameter parameter;
    memcpy(&parameter, bytes, sizeof(Parameter));
    Kernel(parameter);
}

template <class Parameter, void (*Kernel)(Parameter)> constexpr Twin twin(const char *name) {
    return {name, sizeof(Parameter), run<Parameter, Kernel>};
}

const Twin TWINS[] = {
    twin<PlaceLaunch, penstock_place>("penstock_place"),
    twin<ChecksumLaunch, penstock_checksum_sums>("penstock_checksum_sums"),
    twin<ChecksumLaunch, penstock_checksum_verdicts>("penstock_checksum_verdicts"),
    twin<InflateLaunch, penstock_inflate>("penstock_inflate"),
};

} // namespace

// The twin of a kernel; null for a name that has none.
extern "C" const Twin *cudasim_twin(const char *name, size_t length) {
    for (const Twin &twin : TWINS) {
        if (strlen(twin.name) == length && memcmp(twin.name, name, length) == 0) {
            return &twin;
        }
    }
    return nullptr;
}

extern "C" u32 cudasim_twin_parameter_bytes(const Twin *twin) {
    return twin->parameter_bytes;
}

// Runs all threads, one after the other. Returns 0 or the driver's code for what went wrong.
extern "C" i32 cudasim_twin_run(
    const Twin *twin, const void *parameter, const Place3 *grid, const Place3 *block, void *client,
    u8 (*find)(void *, u64, Window *)
) {
    Launch launch = {client, find, {}, 0};
    launch_under_way = &launch;
    gridDim = *grid;
    blockDim = *block;
    i32 code = 0;
    try {
        for (blockIdx.z = 0; blockIdx.z < grid->z; blockIdx.z++)
            for (blockIdx.y = 0; blockIdx.y < grid->y; blockIdx.y++)
                for (blockIdx.x = 0; blockIdx.x < grid->x; blockIdx.x++)
                    for (threadIdx.z = 0; threadIdx.z < block->z; threadIdx.z++)
                        for (threadIdx.y = 0; threadIdx.y < block->y; threadIdx.y++)
                            for (threadIdx.x = 0; threadIdx.x < block->x; threadIdx.x++)
                                twin->run(parameter);
    } catch (const Fault &fault) {
        code = fault.code;
    }
    launch_under_way = nullptr;
    return code;
}
