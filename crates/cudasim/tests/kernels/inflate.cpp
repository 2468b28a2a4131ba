// Runs the inflate kernel under AddressSanitizer and UndefinedBehaviorSanitizer on randomly damaged
// streams. Reads records from stdin: the length of a stream and that of its decoded data (four bytes
// each), the stream, and the data. The argument is the number of times that each stream is damaged.

#include "inflate.cuh"

#include "harness.h"

namespace {

u32 random_below(u32 limit) {
    static u64 state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? static_cast<u32>(state >> 32) % limit : 0;
}

// Decodes `stream` into `output`; an access to any other memory ends the program.
InflateVerdict inflate(const std::vector<u8> &stream, std::vector<u8> &output) {
    InflateStream entry = {
        reinterpret_cast<u64>(stream.data()), reinterpret_cast<u64>(output.data()),
        static_cast<u32>(stream.size()), static_cast<u32>(output.size())};
    InflateVerdict verdict = {~0u, 0};
    InflateLaunch parameter = {reinterpret_cast<u64>(&entry), reinterpret_cast<u64>(&verdict), 1, 0};
    std::vector<Memory> memory = {
        {stream.data(), stream.size(), false},
        {output.data(), output.size(), true},
        {&entry, sizeof(entry), false},
        {&verdict, sizeof(verdict), true}};
    run(memory, INFLATE_WARPS, [&] { penstock_inflate(parameter); });
    if (verdict.status > INFLATE_TOO_SHORT || verdict.written > output.size()) {
        fail("the verdict is impossible");
    }
    return verdict;
}

} // namespace

int main(int, char **arguments) {
    const int rounds = atoi(arguments[1]);
    u32 lengths[2];
    while (fread(lengths, sizeof(lengths), 1, stdin) == 1) {
        std::vector<u8> stream(lengths[0]), expected(lengths[1]);
        if (!read(stream) || !read(expected)) {
            fail("the input is truncated");
        }
        std::vector<u8> output(expected.size());
        if (inflate(stream, output).status != INFLATE_DONE || output != expected) {
            fail("a valid stream was not decoded");
        }
        for (int round = 0; round < rounds; round++) {
            std::vector<u8> damaged = stream;
            for (u32 changes = 1 + random_below(6); changes > 0; changes--) {
                // The codes are at the beginning, so most of the damage is there.
                u32 size = static_cast<u32>(damaged.size());
                u32 at = random_below(random_below(2) && size > 100 ? 100 : size);
                damaged[at] ^= static_cast<u8>(1 << random_below(8));
                if (random_below(8) == 0) {
                    damaged[at] = static_cast<u8>(random_below(256));
                }
            }
            if (random_below(8) == 0) {
                damaged.resize(random_below(static_cast<u32>(damaged.size())) + 1);
            }
            damaged.shrink_to_fit();
            std::vector<u8> room(random_below(4) ? expected.size() : random_below(2 * static_cast<u32>(expected.size())));
            inflate(damaged, room);
        }
    }
    return 0;
}
