// Runs the deflate kernels under AddressSanitizer and UndefinedBehaviorSanitizer, and decodes what they
// encoded by the inflate kernel. Reads records from stdin: the length of a chunk (four bytes) and the
// chunk. All chunks are encoded in one launch.

#include "deflate.cuh"
#include "deflate_join.cuh"
#include "inflate.cuh"

#include "harness.h"

namespace {

constexpr u32 MARGIN = 16;

template <class T> u64 address(const std::vector<T> &array) {
    return reinterpret_cast<u64>(array.data());
}

template <class T> Memory readable(const std::vector<T> &array) {
    return {array.data(), array.size() * sizeof(T), false};
}

template <class T> Memory writable(std::vector<T> &array) {
    return {array.data(), array.size() * sizeof(T), true};
}

std::vector<u8> inflated(const u8 *stream, u32 length, u32 room) {
    std::vector<u8> input(stream, stream + length), output(room);
    InflateStream entry = {address(input), address(output), length, room};
    InflateVerdict verdict = {~0u, 0};
    InflateLaunch parameter = {reinterpret_cast<u64>(&entry), reinterpret_cast<u64>(&verdict), 1, 0};
    std::vector<Memory> memory = {
        readable(input), writable(output), {&entry, sizeof(entry), false}, {&verdict, sizeof(verdict), true}};
    run(memory, INFLATE_WARPS, [&] { penstock_inflate(parameter); });
    if (verdict.status != INFLATE_DONE) {
        fail("a stream cannot be decoded");
    }
    return output;
}

} // namespace

int main() {
    std::vector<std::vector<u8>> chunks;
    std::vector<DeflateChunk> table;
    std::vector<Memory> inputs;
    u32 segments = 0;
    u64 bound = 0;
    u32 length;
    while (fread(&length, sizeof(length), 1, stdin) == 1) {
        std::vector<u8> chunk(length);
        if (!read(chunk)) {
            fail("the input is truncated");
        }
        chunk.resize(length + MARGIN);
        chunks.push_back(chunk);
        u32 own = (length + SEGMENT - 1) / SEGMENT;
        table.push_back({segments, address(chunks.back()), length});
        inputs.push_back(readable(chunks.back()));
        segments += own;
        bound += length + 5 * own + 6;
    }
    u32 count = static_cast<u32>(table.size());
    std::vector<u32> sizes(segments);
    std::vector<u64> rooms(u64{segments} * SEGMENT_ROOM / 8), checksums(count), ends(count);
    std::vector<u64> items(DEFLATE_WARPS * SEGMENT / 4);
    DeflateLaunch encoding = {address(table), address(sizes), address(rooms), address(items), count, segments};
    std::vector<Memory> memory = inputs;
    memory.insert(memory.end(), {readable(table), writable(sizes), writable(rooms), writable(items)});
    run(memory, DEFLATE_WARPS, [&] { penstock_deflate(encoding); });

    std::vector<u8> output(bound);
    DeflateJoin joining = {address(table), address(sizes), address(rooms), address(checksums),
                           address(output), address(ends), count, segments};
    memory = {readable(table), readable(sizes), readable(rooms), readable(checksums), writable(output), writable(ends)};
    run(memory, DEFLATE_WARPS, [&] { penstock_deflate_join(joining); });

    u64 begin = 0;
    for (u32 i = 0; i < count; i++) {
        u32 room = static_cast<u32>(table[i].length);
        std::vector<u8> decoded = inflated(&output[begin + 2], static_cast<u32>(ends[i] - begin - 6), room);
        chunks[i].resize(room);
        if (decoded != chunks[i]) {
            fail("a chunk was not encoded");
        }
        begin = ends[i];
    }
    return 0;
}
