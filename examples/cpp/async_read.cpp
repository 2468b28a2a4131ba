// Reads the parts of a file with several concurrent requests, works on each part as it arrives, and
// lets C++ own the handles.
//
//     async_read FILE [PARTS]
#include <penstock.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(int status) {
    if (status == PENSTOCK_OK) return;
    penstock_error error{};
    error.struct_size = sizeof error;
    penstock_last_error(&error);
    throw std::runtime_error(error.message);
}

struct Close {
    void operator()(penstock_file *file) const { penstock_close(file); }
};
struct Free {
    void operator()(penstock_request *request) const { penstock_request_free(request); }
};
using File = std::unique_ptr<penstock_file, Close>;
// Freeing a request waits for it, so a buffer that is declared before its request lives long enough.
using Request = std::unique_ptr<penstock_request, Free>;

File open(const char *path) {
    penstock_file *file = nullptr;
    check(penstock_open(path, PENSTOCK_READ, nullptr, &file));
    return File(file);
}

Request read(const File &file, std::vector<unsigned char> &into, std::uint64_t offset) {
    const penstock_range range{offset, into.size(), into.data()};
    penstock_request *request = nullptr;
    check(penstock_submit(file.get(), PENSTOCK_OP_READ, &range, 1, nullptr, nullptr, 0, &request));
    return Request(request);
}

void run(const char *path, std::uint64_t parts) {
    const File file = open(path);
    std::uint64_t size = 0;
    check(penstock_file_size(file.get(), &size));

    std::vector<std::vector<unsigned char>> buffers(parts);
    std::vector<Request> requests;
    for (std::uint64_t part = 0; part < parts; ++part) {
        const std::uint64_t begin = size * part / parts;
        buffers[part].resize(size * (part + 1) / parts - begin);
        requests.push_back(read(file, buffers[part], begin));
    }

    std::uint64_t sum = 0;
    for (std::uint64_t part = 0; part < parts; ++part) {
        check(penstock_request_wait(requests[part].get(), -1));
        sum = std::accumulate(buffers[part].begin(), buffers[part].end(), sum);
    }
    std::cout << size << " bytes in " << parts << " requests, sum " << sum << "\n";
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) {
        std::cerr << "usage: async_read FILE [PARTS]\n";
        return 2;
    }
    try {
        run(argv[1], argc == 3 ? std::stoull(argv[2]) : 8);
    } catch (const std::exception &error) {
        std::cerr << "async_read: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
