// The kernels as C++, by name, and the loop that runs the threads of a launch. It is compiled twice, for
// warps of one lane and, with CUDASIM_WARP, of 32.

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#ifdef CUDASIM_WARP
// Both are in one library.
#define OF_LANES(name) name##_of_warps
#define penstock_place penstock_place_of_warps
#define penstock_checksum_sums penstock_checksum_sums_of_warps
#define penstock_checksum_verdicts penstock_checksum_verdicts_of_warps
#define penstock_inflate penstock_inflate_of_warps
#define penstock_deflate penstock_deflate_of_warps
#define penstock_deflate_join penstock_deflate_join_of_warps
#else
#define OF_LANES(name) name
#endif

namespace OF_LANES(cudasim_lanes) {

#include "encoder.cu"
#include "kernels.cu"

namespace {

struct Kernel {
    const char *name;
    u32 parameter_bytes;
    void (*run)(const void *parameter);
};

template <class Parameter, void (*Function)(Parameter)> void run(const void *bytes) {
    Parameter parameter;
    memcpy(&parameter, bytes, sizeof(Parameter));
    Function(parameter);
}

template <class Parameter, void (*Function)(Parameter)> constexpr Kernel kernel(const char *name) {
    return {name, sizeof(Parameter), run<Parameter, Function>};
}

const Kernel KERNELS[] = {
    kernel<PlaceLaunch, penstock_place>("penstock_place"),
    kernel<ChecksumLaunch, penstock_checksum_sums>("penstock_checksum_sums"),
    kernel<ChecksumLaunch, penstock_checksum_verdicts>("penstock_checksum_verdicts"),
    kernel<InflateLaunch, penstock_inflate>("penstock_inflate"),
    kernel<DeflateLaunch, penstock_deflate>("penstock_deflate"),
    kernel<DeflateJoin, penstock_deflate_join>("penstock_deflate_join"),
};

} // namespace

// The kernel with this name, or null.
extern "C" const Kernel *OF_LANES(cudasim_kernel)(const char *name, size_t length) {
    for (const Kernel &kernel : KERNELS) {
        if (strlen(kernel.name) == length && memcmp(kernel.name, name, length) == 0) {
            return &kernel;
        }
    }
    return nullptr;
}

extern "C" u32 OF_LANES(cudasim_kernel_parameter_bytes)(const Kernel *kernel) {
    return kernel->parameter_bytes;
}

// Runs all warps, one after the other. Returns 0 or the driver's error code.
extern "C" i32 OF_LANES(cudasim_kernel_run)(
    const Kernel *kernel, const void *parameter, const Dim3 *grid, const Dim3 *block, void *client,
    u8 (*find)(void *, u64, Window *)
) {
    Launch launch = {client, find, {}, 0};
    current_launch = &launch;
    gridDim = *grid;
    blockDim = *block;
    i32 code = 0;
    try {
        for (blockIdx.z = 0; blockIdx.z < grid->z; blockIdx.z++)
            for (blockIdx.y = 0; blockIdx.y < grid->y; blockIdx.y++)
                for (blockIdx.x = 0; blockIdx.x < grid->x; blockIdx.x++)
                    run_threads(*block, [&] { kernel->run(parameter); });
    } catch (const Fault &fault) {
        code = fault.code;
    }
    current_launch = nullptr;
    return code;
}

} // namespace OF_LANES(cudasim_lanes)
