// The ranks of an MPI program share one file: each writes its part from the memory of its GPU, and
// reads the part of the next rank, while it adds up its own. Without GPUs, the same calls use host
// memory.
//
//     mpirun -n 2 mpi_ranks NEW_FILE [MEBIBYTES]
#include <mpi.h>
#include <penstock.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace {

// An error on one rank ends all, which would wait for it otherwise.
void check(int status) {
    if (status == PENSTOCK_OK) return;
    penstock_error error{};
    error.struct_size = sizeof error;
    penstock_last_error(&error);
    std::cerr << "mpi_ranks: " << error.message << "\n";
    MPI_Abort(MPI_COMM_WORLD, 1);
}

struct Close {
    void operator()(penstock_file *file) const { penstock_close(file); }
};
struct Free {
    void operator()(penstock_request *request) const { penstock_request_free(request); }
};
using File = std::unique_ptr<penstock_file, Close>;
using Request = std::unique_ptr<penstock_request, Free>;

File open(const std::string &path, int flags) {
    penstock_file *file = nullptr;
    check(penstock_open(path.c_str(), flags, nullptr, &file));
    return File(file);
}

bool make(const std::string &path) {
    std::FILE *made = std::fopen(path.c_str(), "wx");
    if (made == nullptr) {
        std::cerr << "mpi_ranks: " << path << ": " << std::strerror(errno) << "\n";
        return false;
    }
    return std::fclose(made) == 0;
}

// Numbers in memory of one GPU, or of the host.
class Array {
public:
    Array(std::size_t count, int device) : device_(device), bytes_(count * sizeof(double)) {
        if (device_ >= 0) {
            check(penstock_device_alloc(device_, bytes_, &memory_));
        } else {
            host_.resize(count);
            memory_ = host_.data();
        }
    }
    ~Array() {
        if (device_ >= 0) penstock_device_free(memory_);
    }
    Array(const Array &) = delete;
    Array &operator=(const Array &) = delete;

    void *data() { return memory_; }
    std::uint64_t bytes() const { return bytes_; }
    void fill(const std::vector<double> &values) {
        check(penstock_copy(memory_, values.data(), bytes_));
    }
    double sum() const {
        std::vector<double> values(bytes_ / sizeof(double));
        check(penstock_copy(values.data(), memory_, bytes_));
        return std::accumulate(values.begin(), values.end(), 0.0);
    }

private:
    int device_;
    std::uint64_t bytes_;
    void *memory_ = nullptr;
    std::vector<double> host_;
};

// The GPU of this rank: ranks of one host take turns. -1 without GPUs.
int device_of_rank() {
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    int rank = 0, devices = 0;
    MPI_Comm_rank(host, &rank);
    MPI_Comm_free(&host);
    check(penstock_device_count(&devices));
    return devices > 0 ? rank % devices : -1;
}

int run(const std::string &path, std::size_t count) {
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int device = device_of_rank();

    Array mine(count, device), next(count, device);
    mine.fill(std::vector<double>(count, rank + 1.0));

    // Rank 0 makes the file; then each rank writes its range, and no byte beside it.
    int made = rank == 0 && make(path);
    MPI_Bcast(&made, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (!made) return 1;
    const File file = open(path, PENSTOCK_READ | PENSTOCK_WRITE);
    check(penstock_write(file.get(), mine.data(), mine.bytes(), rank * mine.bytes(), nullptr, nullptr));
    MPI_Barrier(MPI_COMM_WORLD);

    const std::uint64_t offset = static_cast<std::uint64_t>((rank + 1) % ranks) * next.bytes();
    const penstock_range range{offset, next.bytes(), next.data()};
    penstock_request *started = nullptr;
    check(penstock_submit(file.get(), PENSTOCK_OP_READ, &range, 1, nullptr, nullptr, 0, &started));
    const Request request(started);
    double sums[2] = {mine.sum(), 0};  // while the read is under way
    check(penstock_request_wait(request.get(), -1));
    sums[1] = next.sum();

    double total[2] = {0, 0};
    MPI_Reduce(sums, total, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        std::cout << ranks << " ranks wrote " << ranks * mine.bytes() << " bytes from "
                  << (device < 0 ? "host" : "GPU") << " memory; the sums are "
                  << (total[0] == total[1] ? "equal" : "different") << "\n";
    }
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 2 && argc != 3) {
        std::cerr << "usage: mpi_ranks NEW_FILE [MEBIBYTES]\n";
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const std::size_t mebibytes = argc == 3 ? std::stoull(argv[2]) : 16;
    const int status = run(argv[1], (mebibytes << 20) / sizeof(double));
    MPI_Finalize();
    return status;
}
