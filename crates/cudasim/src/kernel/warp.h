// A warp of 32 lanes, as on a GPU. Each lane has its own stack on the thread that runs the launch,
// and runs until all lanes must meet: to exchange values, or at a barrier. So lanes exchange values
// and share memory as on a GPU; only their order within a step differs.
#pragma once

#include <cstdlib>
#include <memory>

constexpr u32 WIDTH = 32;

class Warp {
  public:
    // Calls `run` for 32 threads, of which the first has the index `first` in its block.
    template <class Run> void run_lanes(u32 first, const Run &run) {
        begin = first;
        work = &run;
        call = [](const void *run) { (*static_cast<const Run *>(run))(); };
        fault = 0;
        left = WIDTH;
        arrived = 0;
        for (Lane &lane : lanes) {
            lane.prepare();
        }
        enter(0);
        switch_to(&launching, lanes[0].place);
        if (fault != 0) {
            // The objects on the stacks of the other lanes need no destructor.
            throw Fault{fault};
        }
    }

    u32 lane() const {
        return current;
    }

    // Waits until all lanes have passed a value, and returns all values. They stay valid until the
    // next but one meeting.
    const u32 *meet(u32 value) {
        const u32 meeting = meetings;
        u32 *const here = values[meeting % 2];
        here[current] = value;
        if (++arrived == WIDTH) {
            arrived = 0;
            meetings++;
        }
        while (meetings == meeting) {
            // On a GPU, too, waiting for lanes that have returned would never end.
            if (left < WIDTH) {
                abort();
            }
            go_on();
        }
        return here;
    }

  private:
    static constexpr size_t STACK = 256 << 10;

    struct Lane {
        std::unique_ptr<u8[]> stack;
        // The stack pointer while another lane runs.
        void *place = nullptr;

        void prepare() {
            if (!stack) {
                stack.reset(new u8[STACK]);
            }
            u64 end = reinterpret_cast<u64>(stack.get() + STACK) & ~u64{63};
            // The stack looks as after a call: the registers that `switch_to` restores, the
            // function, and no caller.
            void **top = reinterpret_cast<void **>(end) - 8;
            for (u32 i = 0; i < 8; i++) {
                top[i] = nullptr;
            }
            top[6] = reinterpret_cast<void *>(&Warp::live);
            place = top;
        }
    };

    Lane lanes[WIDTH];
    u32 values[2][WIDTH];
    u32 meetings = 0;
    u32 arrived = 0;
    u32 current = 0;
    u32 begin = 0;
    u32 left = 0;
    i32 fault = 0;
    void *launching = nullptr;
    const void *work = nullptr;
    void (*call)(const void *) = nullptr;

    // Saves the registers that a function keeps for its caller, and continues where `to` was saved.
    [[gnu::naked]] static void switch_to(void **, void *) {
        asm("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
            "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
            "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret");
    }

    void enter(u32 lane) {
        current = lane;
        threadIdx.x = begin + lane;
    }

    void go_on() {
        void **from = &lanes[current].place;
        enter((current + 1) % WIDTH);
        switch_to(from, lanes[current].place);
    }

    static void live();
};

inline thread_local Warp warp;

// The life of a lane. It never returns.
inline void Warp::live() {
    try {
        warp.call(warp.work);
    } catch (const Fault &found) {
        warp.fault = found.code;
    }
    void *ended = nullptr;
    if (warp.fault != 0 || --warp.left == 0) {
        switch_to(&ended, warp.launching);
    }
    for (;;) {
        warp.go_on();
    }
}

inline u32 lane() {
    return warp.lane();
}

inline void warp_barrier() {
    warp.meet(0);
}

inline u32 shuffle(u32 value, u32 from) {
    return warp.meet(value)[from % WIDTH];
}

inline u32 lanes_with(u32 value) {
    const u32 *values = warp.meet(value);
    u32 lanes = 0;
    for (u32 i = 0; i < WIDTH; i++) {
        lanes |= u32{values[i] == value} << i;
    }
    return lanes;
}

inline u32 lanes_where(bool condition) {
    const u32 *values = warp.meet(condition);
    u32 lanes = 0;
    for (u32 i = 0; i < WIDTH; i++) {
        lanes |= values[i] << i;
    }
    return lanes;
}

inline u32 lanes_up_to_mine() {
    return ~0u >> (31 - lane());
}

// Calls `run` for each thread of a block, whose rows are whole warps.
template <class Run> void run_threads(const Dim3 &block, const Run &run) {
    for (threadIdx.z = 0; threadIdx.z < block.z; threadIdx.z++)
        for (threadIdx.y = 0; threadIdx.y < block.y; threadIdx.y++)
            for (u32 first = 0; first < block.x; first += WIDTH)
                warp.run_lanes(first, run);
}
