// Runs a kernel: the blocks of its grid one after the other, the threads of a block as
// fibers that change where they wait for each other.
//
// A thread starts on the fiber at hand, and when it ends the next one starts there: threads
// that wait for nothing cost no change of stacks. When a thread must wait its fiber is set
// aside, and another goes on: the first of those whose wait is over, else the next thread
// that has not started, on a fresh fiber. So a warp goes on as far as it can before the next
// one starts, and the order is always the same, or the opposite where that is asked for: a
// kernel that needs either is wrong. If there is no other thread the block is stuck: an error
// of the kernel's, which is told.
#include <stdarg.h>
#include <stdio.h>

#include <mutex>
#include <vector>

// In one piece: a change of stacks is inlined into what asks for it.
// Before simt.h, whose macros are CUDA's: the system has other uses for some.
#include "fiber.cpp"
#include "simt.h"

__thread SimtIndex threadIdx, blockIdx, blockDim, gridDim;

namespace simt {

__thread double unit_error = 1.0;

namespace {

const unsigned WARP = 32, MOST_THREADS = 1024;

// What a thread is at.
enum class At : unsigned char { Work, End, Barrier, Sync, Vote, Shuffle, Match };
const char* const PLACE[] = {"at work",          "at its end",        "at __syncthreads",
                             "at __syncwarp",    "at a vote",         "at a shuffle",
                             "at __match_any_sync"};

struct Thread {
    At at;
    Fiber* fiber; // where it goes on
    // What it brings to the other lanes of its warp, and takes from them.
    unsigned mask, source;
    unsigned long long value, result;
};

struct Block {
    const Entry* kernel;
    const unsigned char* arguments;
    bool backwards;
    unsigned threads, started, ended, at_barrier;
    Thread thread[MOST_THREADS];
    unsigned waiting[MOST_THREADS / WARP]; // the lanes of each warp that wait for others

    // The threads whose wait is over, in a ring.
    unsigned ready[MOST_THREADS], first_ready, number_ready;

    Fiber host, *running;
    std::vector<Fiber*> fibers, idle;

    char* message;
    size_t capacity;
    bool failed;

    void run(unsigned number);
    void work();
    void wait();
    [[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
    [[noreturn]] void stuck();
    Thread& self() { return thread[threadIdx.x]; }
    void wake(unsigned number);
    void go_on(unsigned number, bool over);
    unsigned next_ready();
    Fiber* fresh();
    unsigned long long meet(At at, unsigned mask, unsigned long long value, unsigned source);
    void exchange(At at, unsigned warp, unsigned mask);
    static void match(Thread* lanes, unsigned mask);
};

// The block that this thread of the system is running.
__thread Block* current;

void Block::wake(unsigned number) {
    thread[number].at = At::Work;
    ready[(first_ready + number_ready++) % MOST_THREADS] = number;
}

unsigned Block::next_ready() {
    number_ready--;
    if (backwards) return ready[(first_ready + number_ready) % MOST_THREADS];
    unsigned number = ready[first_ready];
    first_ready = (first_ready + 1) % MOST_THREADS;
    return number;
}

Fiber* Block::fresh() {
    if (idle.empty()) {
        fibers.push_back(new Fiber);
        give_stack(*fibers.back(), (unsigned)fibers.size());
        idle.push_back(fibers.back());
    }
    Fiber* fiber = idle.back();
    idle.pop_back();
    prepare(*fiber, [] {
        arrived(current->host);
        current->work();
    });
    return fiber;
}

// Leaves the fiber that is running for that of a thread whose wait is over.
void Block::go_on(unsigned number, bool over) {
    Fiber* from = running;
    threadIdx.x = number;
    running = thread[number].fiber;
    change(*from, *running, over);
}

// What a fiber does. It never returns: its last change of stacks is its end.
void Block::work() {
    while (number_ready == 0 && started < threads) {
        unsigned number = backwards ? threads - 1 - started : started;
        started++;
        threadIdx.x = number;
        thread[number].at = At::Work;
        kernel->call(arguments);
        // The kernel may have waited, and others may have run in between.
        thread[number].at = At::End;
        ended++;
    }
    if (number_ready == 0 && ended < threads) stuck();
    idle.push_back(running);
    if (number_ready > 0) go_on(next_ready(), true);
    change(*running, host, true);
    __builtin_unreachable();
}

// Sets the current thread aside until it is woken.
void Block::wait() {
    Fiber* from = running;
    self().fiber = from;
    if (number_ready > 0) {
        go_on(next_ready(), false);
    } else if (started < threads) {
        running = fresh();
        change(*from, *running, false);
    } else {
        stuck();
    }
}

void Block::fail(const char* format, ...) {
    int length = snprintf(message, capacity, "kernel %s, block %u: ", kernel->name, blockIdx.x);
    if (length < 0 || (size_t)length >= capacity) length = 0;
    va_list list;
    va_start(list, format);
    vsnprintf(message + length, capacity - (size_t)length, format, list);
    va_end(list);
    failed = true;
    change(*running, host, true);
    __builtin_unreachable();
}

// Says who waits for whom.
void Block::stuck() {
    unsigned who = 0;
    while (thread[who].at == At::End) who++;
    const Thread& waits = thread[who];
    for (unsigned other = 0; other < threads; other++) {
        bool awaited = waits.at == At::Barrier ||
                       (other / WARP == who / WARP && waits.mask >> other % WARP & 1);
        bool there = thread[other].at == waits.at &&
                     (waits.at == At::Barrier || thread[other].mask == waits.mask);
        if (!awaited || there) continue;
        fail("thread %u is %s and waits for thread %u, which is %s", who, PLACE[(int)waits.at],
             other, PLACE[(int)thread[other].at]);
    }
    fail("thread %u is %s with mask %#x and waits for a thread that the block does not have", who,
         PLACE[(int)waits.at], waits.mask);
}

// Waits for the lanes of a mask, and takes what comes of what they bring.
unsigned long long Block::meet(At at, unsigned mask, unsigned long long value, unsigned source) {
    unsigned number = threadIdx.x, warp = number / WARP, bit = 1u << number % WARP;
    if (!(mask & bit)) fail("thread %u is %s with a mask, %#x, that it is not in", number,
                            PLACE[(int)at], mask);
    Thread& self = thread[number];
    self.at = at, self.mask = mask, self.value = value, self.source = source;
    waiting[warp] |= bit;
    if ((waiting[warp] & mask) == mask) {
        exchange(at, warp, mask);
        waiting[warp] &= ~mask;
        self.at = At::Work;
        for (unsigned others = mask & ~bit; others; others &= others - 1)
            wake(warp * WARP + (unsigned)__builtin_ctz(others));
    } else {
        wait();
    }
    return self.result;
}

// All lanes of the mask are there: the last to come works the results out for all, because
// any of them may be back with something new before another has looked.
void Block::exchange(At at, unsigned warp, unsigned mask) {
    Thread* lanes = thread + warp * WARP;
    unsigned votes = 0;
    for (unsigned left = mask; left; left &= left - 1) {
        unsigned lane = (unsigned)__builtin_ctz(left);
        if (lanes[lane].at != at || lanes[lane].mask != mask)
            fail("thread %u is %s with mask %#x, and thread %u %s with mask %#x", threadIdx.x,
                 PLACE[(int)at], mask, warp * WARP + lane, PLACE[(int)lanes[lane].at],
                 lanes[lane].mask);
        if (at == At::Vote && lanes[lane].value) votes |= 1u << lane;
    }
    if (at == At::Match) return match(lanes, mask);
    for (unsigned left = mask; left; left &= left - 1) {
        Thread& self = lanes[__builtin_ctz(left)];
        if (at == At::Vote) self.result = votes;
        // What a lane has that takes no part is undefined: something that shows.
        if (at == At::Shuffle)
            self.result = mask >> self.source & 1 ? lanes[self.source].value : 0xa5a5a5a5a5a5a5a5u;
    }
}

// Tells each lane which of them have its value: those with the value of the first that is
// left, until none is.
void Block::match(Thread* lanes, unsigned mask) {
    for (unsigned left = mask; left;) {
        unsigned long long value = lanes[__builtin_ctz(left)].value;
        unsigned equal = 0;
        for (unsigned others = left; others; others &= others - 1) {
            unsigned lane = (unsigned)__builtin_ctz(others);
            equal |= (unsigned)(lanes[lane].value == value) << lane;
        }
        for (unsigned told = equal; told; told &= told - 1)
            lanes[__builtin_ctz(told)].result = equal;
        left &= ~equal;
    }
}

void Block::run(unsigned number) {
    blockIdx.x = number;
    started = ended = at_barrier = first_ready = number_ready = 0;
    for (unsigned i = 0; i < threads; i++) thread[i].at = At::Work;
    for (unsigned& lanes : waiting) lanes = 0;
    running = fresh();
    change(host, *running, false);
}

// Blocks that no thread of the system is running, with their stacks. Never destroyed: other
// threads may outlive whatever this file could do at the end.
std::mutex& spare_lock = *new std::mutex;
std::vector<Block*>& spare = *new std::vector<Block*>;

} // namespace

void barrier() {
    Block& block = *current;
    unsigned number = threadIdx.x;
    block.self().at = At::Barrier;
    if (++block.at_barrier < block.threads) return block.wait();
    block.at_barrier = 0;
    block.self().at = At::Work;
    for (unsigned other = 0; other < block.threads; other++)
        if (other != number) block.wake(other);
}

void warp_sync(unsigned mask) { current->meet(At::Sync, mask, 0, 0); }
unsigned warp_vote(unsigned mask, bool value) {
    return (unsigned)current->meet(At::Vote, mask, value, 0);
}
unsigned long long warp_shuffle(unsigned mask, unsigned long long value, unsigned source) {
    return current->meet(At::Shuffle, mask, value, source);
}
unsigned warp_match(unsigned mask, unsigned long long value) {
    return (unsigned)current->meet(At::Match, mask, value, 0);
}

} // namespace simt

// Runs a kernel over a grid. Returns whether that went well, else with a message that ends
// with 0. At most 1024 threads. One kernel of a module may run at a time.
extern "C" void simt_set_unit_error(double error) { simt::unit_error = error; }

extern "C" bool simt_run(const simt::Entry* kernel, const unsigned char* arguments,
                         unsigned blocks, unsigned threads, bool backwards, char* message,
                         size_t capacity) {
    using namespace simt;
    {
        std::lock_guard<std::mutex> guard(spare_lock);
        if (spare.empty()) spare.push_back(new Block());
        current = spare.back();
        spare.pop_back();
    }
    Block& block = *current;
    block.kernel = kernel, block.arguments = arguments, block.threads = threads;
    block.backwards = backwards;
    block.message = message, block.capacity = capacity;
    block.host = Fiber();
    blockDim.x = threads, gridDim.x = blocks;
    block.failed = false;
    for (unsigned number = 0; number < blocks && !block.failed; number++)
        block.run(backwards ? blocks - 1 - number : number);
    if (block.failed) {
        for (Fiber* fiber : block.fibers) abandon(*fiber);
        block.idle = block.fibers;
    }
    bool done = !block.failed;
    std::lock_guard<std::mutex> guard(spare_lock);
    spare.push_back(&block);
    return done;
}
