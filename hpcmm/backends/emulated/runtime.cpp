// The machine behind cuda_on_host.h: it schedules the threads of the blocks of a cluster, carries out asynchronous
// copies and products, and checks every access. The kernels' libraries are linked with it.
#define CUDA_ON_HOST_RUNTIME
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "cuda_on_host.h"

#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

using namespace cuda_on_host;

namespace {

constexpr int MOST_THREADS = 2048, MOST_CLUSTER = 16, MOST_BLOCKS = 1 << 20, MOST_COPIES = 512;  // threads: of a cluster
constexpr int MOST_MBARRIERS = 256, MOST_ENGINES = 512, MOST_UNDER_WAY = 1024, MOST_NAMED = 16, MOST_REPORTED = 3;
constexpr int REGISTERS = 65536;  // of a multiprocessor
constexpr uintptr_t SECTOR = 32;  // bytes
constexpr size_t STACK = 64 * 1024, MARGIN = 1 << 20;
// A launch that takes more steps does not end. A step is an access or a basic block; MOST_STEPS are for small arrays. A
// product of three matrices has at most as many multiplications as the root of the product of their sizes.
constexpr double MOST_STEPS = 1 << 27, STEPS_OF_WAIT = 16;
constexpr int MOST_ARRAYS = 512;  // whose addresses are the parameters of a kernel
constexpr int MOST_POLLS = 1 << 12;
constexpr long TICK = 250000000;  // nanoseconds of processor time; nothing between two steps takes as long
constexpr int RANK_SHIFT = 24;  // of an address in the cluster's shared memory: rank of the block, place in its memory

// POLLING: after a relaxed access. Such a thread runs on in its next turn, but its loads alone are no progress.
enum State { READY, POLLING, AT_BLOCK_BARRIER, AT_WARP_BARRIER, AT_NAMED_BARRIER, AT_CLUSTER_BARRIER, AT_MBARRIER, RETURNED };

// What orders accesses: for each thread and engine the time up to which its accesses are ordered before an event.
// Engines are what works beside the threads: the products of a warpgroup, the copies that arrive at an mbarrier, and the
// stores by TMA of a thread. Their numbers follow those of the threads.
struct Clock {
    unsigned at[MOST_THREADS + MOST_ENGINES];
};
struct Mbarrier {
    int block;
    size_t offset;            // in shared memory
    int arrivals, missing;    // of a phase
    long bytes;               // that this phase expects and that have not come
    unsigned phase;           // phases that have ended
    bool fenced;              // visible to other blocks and to TMA
    int initialized_by, engine;
    unsigned initialized;     // time
    Clock arrived, ended;     // of arrivals so far, and of those of the phases that have ended
};
struct Copy {  // a pending cp.async
    char *target;
    const char *source;
    int bytes, valid, group;
    uintptr_t place;
};
struct Box {  // a copy by TMA
    TensorMap map;
    int column, row, block;
    size_t offset;
    Mbarrier *mbarrier;  // at which a load arrives
    unsigned phase;      // of the mbarrier when the load was started
    int thread, group;   // of a store
    unsigned started;    // time
    bool done;
    uintptr_t place;
};
struct Product {
    CudaWgmma wgmma;
    int thread, group;
    unsigned started;
    bool done;
};
struct Thread {
    State state;
    int line;           // of the block barrier it waits at
    unsigned mask;      // of the warp barrier it waits at
    uint64_t value;     // in a warp exchange
    uint64_t got[WARP];
    unsigned present;   // lanes that took part in that exchange
    int predicate, counted, counted_of;  // of a block barrier that counts
    int barrier, expected;  // number and threads of the named barrier it waits at
    Mbarrier *mbarrier;     // it waits at, and for which parity
    int parity;
    uintptr_t place;    // where it waits
    unsigned cluster_phase;  // of the cluster's barrier that it has arrived at
    bool at_cluster;         // it has arrived and not waited
    unsigned fenced;    // time of its last fence.proxy.async
    bool wgmma_fenced;  // since its last wait for products
    int registers;      // of setmaxnreg, 0 without
    int barriers;       // of the block, so far
    int products, product_group, product_engine;  // of a warp, in its lane 0
    int store_group, store_engine;
    Clock seen;         // accesses that are ordered before its own
    Copy copy[MOST_COPIES];
    int copies, group;  // group: number of the open commit group
    bool has_stack;
    ucontext_t start;
    jmp_buf here;
};
struct Byte {  // a byte of shared memory: its last write and its last reads by two threads, with times and places
    unsigned written, read, other_read;
    unsigned written_at, read_at, other_read_at;
    short writer, reader, other_reader;
    bool atomic;
};
struct Event {  // of a thread, for the counts: an access, or the beginning of a basic block, of size 0
    uintptr_t place, at;
    int thread, barriers;  // barriers: of the block, so far
    int size;
    Kind kind;
    bool shared;
};
struct Count {  // of all accesses at a place: by warps and lanes, the sectors or wavefronts, the fewest possible ones
    uint64_t warps, lanes, parts, least;
};
template <class T, int MOST> struct List {  // in the order in which its elements came
    T element[MOST];
    int count;
    T *begin() { return element; }
    T *end() { return element + count; }
    void remove(T *each)
    {
        memmove(each, each + 1, (end() - each - 1) * sizeof(T));
        --count;
    }
};

Thread thread[MOST_THREADS];
int threads, stride, block_count;  // threads of a block, and numbers of threads from block to block of a cluster
int current = -1;                  // -1 while no thread of a kernel runs
jmp_buf scheduler;
char *stacks;
uint3 index_of[4];  // threadIdx, blockIdx, blockDim, gridDim
uint3 block_index[MOST_CLUSTER];
bool together;  // the blocks of the grid may wait for each other, and run in turns in place of those of a cluster
const int *next_block, *last_block;  // then: blocks that have not started
bool stored;  // by a relaxed access
struct First { int reader, writer; } first_element[MOST_ARRAYS];  // of each array: the last blocks that accessed it; 0 for none
bool synchronized;  // something that may order blocks: an atomic or relaxed access in this launch

const Launch *launched;
void (*call_kernel)(void **);
void **kernel_arguments;
char *shared_begin, *shared_end, *dynamic_begin;
char *parked[MOST_CLUSTER];  // shared memory of the blocks of a cluster, but for the one that runs
int loaded;                  // the block that runs
uintptr_t globals_begin, globals_end;  // variables and constants of the kernel's file
uintptr_t library_begin, place;  // place: of the current access in the kernel's code, 0 if unknown

Byte *bytes;
unsigned now = 1, cluster_start, block_barrier[MOST_CLUSTER];  // times count barriers
bool wide;  // accesses are also ordered by other means than barriers of the block and of warps
List<Mbarrier, MOST_MBARRIERS> mbarriers;
List<Box, MOST_UNDER_WAY> loads, stores;
List<Product, MOST_UNDER_WAY> products;
int engines;
unsigned cluster_phase;
Clock cluster_arrived, cluster_ended;
double steps, most_steps;
uint64_t random_state;
char message[2048], note[1024];
bool counting;                 // the launch; false while a library is loaded
std::vector<Event> events;     // of the cluster that runs
std::map<std::tuple<uintptr_t, bool, Kind>, Count> counts;  // by place, whether in shared memory, kind
uint64_t barriers, missed, mmas, code_blocks;  // of blocks, of threads, of warps, of all threads: basic blocks of code

// The high bits of 64, because low bits have short periods: with 2^10 numbers a round, such as those of a block of 1024
// threads, some bits would be the same in every round, and a warp that they stop would never run.
unsigned random_below(unsigned n)
{
    random_state = random_state * 6364136223846793005 + 1442695040888963407;
    return (unsigned)(random_state >> 33) % n;
}
bool at_once() { return launched->order == ASCENDING || launched->order == RANDOM && random_below(2); }

void put_in_order(int *list, int n)
{
    for (int i = 0; i < n; ++i)
        list[i] = launched->order == DESCENDING ? n - 1 - i : i;
    for (int i = n; launched->order == RANDOM && i > 1; --i) {
        const int j = random_below(i), last = list[i - 1];
        list[i - 1] = list[j], list[j] = last;
    }
}

int block_of(int i) { return i / stride; }
uint3 index_in_block(int i)
{
    const uint3 size = index_of[2];
    const unsigned t = i % stride;
    return {t % size.x, t / size.x % size.y, t / size.x / size.y};
}

size_t describe(char *to, size_t size, int i)
{
    const uint3 t = index_in_block(i), b = block_index[block_of(i)];
    return snprintf(to, size, "thread (%u, %u, %u) of block (%u, %u, %u)", t.x, t.y, t.z, b.x, b.y, b.z);
}

// End the launch with a message; called from a kernel's thread it does not return.
void fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    size_t length = vsnprintf(message, sizeof message, format, values);
    va_end(values);
    if (current >= 0) {
        if (place)
            length += snprintf(message + length, sizeof message - length, " @0x%zx", place - library_begin);
        length += snprintf(message + length, sizeof message - length, " by ");
        describe(message + length, sizeof message - length, current);
        _longjmp(scheduler, 1);
    }
}

// Write the numbers of lanes as "0 to 7, 12".
const char *lanes_of(unsigned mask)
{
    static char text[128];
    size_t length = 0;
    text[0] = 0;
    for (int lane = 0; lane < WARP; ++lane) {
        const int first = lane;
        while (lane + 1 < WARP && mask >> first & 1 && mask >> (lane + 1) & 1)
            ++lane;
        if (mask >> first & 1)
            length += snprintf(text + length, sizeof text - length, first < lane ? "%s%d to %d" : "%s%d", length ? ", " : "", first, lane);
    }
    return text;
}

// Note once why the result of a launch may be wrong, or differs between devices.
void take_note(uintptr_t where, const char *format, ...)
{
    if (note[0])
        return;
    va_list values;
    va_start(values, format);
    size_t length = vsnprintf(note, sizeof note, format, values);
    va_end(values);
    if (where)
        length += snprintf(note + length, sizeof note - length, " @0x%zx", where - library_begin);
    length += snprintf(note + length, sizeof note - length, " by ");
    describe(note + length, sizeof note - length, current);
}

void count(double more)
{
    steps += more;
    if (steps > most_steps)
        fail("no end after %.0f steps, the limit for these arrays,", most_steps);
}

// ---- order ----

void join(Clock &to, const Clock &from)
{
    for (int i = 0; i < block_count * stride + engines; ++i)
        to.at[i] = to.at[i] < from.at[i] ? from.at[i] : to.at[i];
}

// Order all that is ordered before thread i, and its own accesses, before an event.
void release(Clock &event, int i)
{
    wide = true;
    join(event, thread[i].seen);
    const int block = block_of(i);
    for (int t = block * stride; t < (block + 1) * stride; ++t)
        event.at[t] = event.at[t] < block_barrier[block] ? block_barrier[block] : event.at[t];
    event.at[i] = ++now;
}

// Whether an access by thread or engine `by` at time `when` is ordered before the current thread.
bool ordered(unsigned when, int by)
{
    return by == current || when < cluster_start || when < thread[current].seen.at[by] ||
           by < block_count * stride && block_of(by) == block_of(current) && when < block_barrier[block_of(by)];
}

int new_engine()
{
    if (engines == MOST_ENGINES)
        fail("more than %d mbarriers, warps with wgmma and threads with TMA", MOST_ENGINES);
    const int engine = block_count * stride + engines++;
    for (int i = 0; i < block_count * stride; ++i)
        thread[i].seen.at[engine] = 0;
    for (Mbarrier &each : mbarriers)
        each.arrived.at[engine] = each.ended.at[engine] = 0;
    cluster_arrived.at[engine] = cluster_ended.at[engine] = 0;
    return engine;
}

// ---- threads ----

void wait(State state)
{
    if (state != RETURNED && state != POLLING)
        count(STEPS_OF_WAIT);
    thread[current].barriers += state == AT_BLOCK_BARRIER;
    thread[current].state = state;
    thread[current].place = place;
    if (!_setjmp(thread[current].here))
        _longjmp(scheduler, 1);
}

void check_end();
void fiber()
{
    for (;; wait(RETURNED)) {
        call_kernel(kernel_arguments);
        check_end();
    }
}

// Run thread i until it waits. makecontext starts a fiber; _setjmp and _longjmp switch fibers without system calls.
__attribute__((noinline)) void resume(int i)
{
    Thread &t = thread[current = i];
    index_of[0] = index_in_block(i);
    if (_setjmp(scheduler) == 0) {
        if (t.has_stack)
            _longjmp(t.here, 1);
        t.has_stack = true;
        getcontext(&t.start);
        t.start.uc_stack.ss_sp = stacks + i * STACK;
        t.start.uc_stack.ss_size = STACK;
        makecontext(&t.start, fiber, 0);
        setcontext(&t.start);
    }
    current = -1;
}

// Bring the shared memory of a block to where the kernel's code expects it.
void load(int block)
{
    if (block != loaded) {
        memcpy(parked[loaded], shared_begin, shared_end - shared_begin);
        memcpy(shared_begin, parked[block], shared_end - shared_begin);
        loaded = block;
    }
    index_of[1] = block_index[block];
}

// The present place of a byte of a block's shared memory.
char *shared_at(int block, size_t offset) { return (block == loaded ? shared_begin : parked[block]) + offset; }

// Release all threads of a block if all running threads wait at the same line.
bool release_block(int block)
{
    int first = -1;
    Thread *const of = thread + block * stride;
    for (int i = 0; i < threads; ++i) {
        const Thread &t = of[i];
        if (t.state == RETURNED)
            continue;
        if (t.state != AT_BLOCK_BARRIER)
            return false;
        first = first < 0 ? i : first;
        if (t.line != of[first].line)
            fail("divergent __syncthreads(): thread %d waits in line %d, thread %d in line %d", first, of[first].line, i,
                 t.line);
    }
    if (first < 0)
        return false;
    int count = 0, waiting = 0;
    for (int i = 0; i < threads; ++i)
        if (of[i].state == AT_BLOCK_BARRIER)
            count += of[i].predicate, ++waiting;
    for (int i = 0; i < threads; ++i)
        of[i].counted = count, of[i].counted_of = waiting;
    if (waiting < threads && !note[0])
        snprintf(note, sizeof note,
                 "%d of %d threads have returned before the __syncthreads() in line %d; before compute capability 7.0 this hangs",
                 threads - waiting, threads, of[first].line);
    block_barrier[block] = ++now;
    barriers += counting;
    missed += counting * (threads - waiting);
    if (wide) {
        for (int i = 0; i < threads; ++i)
            if (of[i].state == AT_BLOCK_BARRIER)
                join(of[first].seen, of[i].seen);
        for (int i = first + 1; i < threads; ++i)
            if (of[i].state == AT_BLOCK_BARRIER)
                join(of[i].seen, of[first].seen);
    }
    for (int i = 0; i < threads; ++i)
        if (of[i].state == AT_BLOCK_BARRIER)
            of[i].state = READY;
    return true;
}

// Release thread i and the lanes in its mask if all of them that have not returned wait with the same mask.
bool release_warp(int i)
{
    const unsigned mask = thread[i].mask;
    const int first = i / WARP * WARP, in_block = threads - first % stride, lanes = in_block < WARP ? in_block : WARP;
    Thread *const warp = thread + first;
    uint64_t values[WARP];
    // the value of a lane that takes no part: NaN and -1, or large numbers, which a minimum or a maximum does not hide
    const uint64_t absent = launched->order == ASCENDING ? ~(uint64_t)0 : launched->order == DESCENDING ? 0x7f7f7f7f7f7f7f7f : 0xff7f7f7fff7f7f7f;
    for (uint64_t &value : values)
        value = absent;
    unsigned present = 0;
    for (int lane = 0; lane < lanes; ++lane)
        if (mask >> lane & 1 && warp[lane].state != RETURNED) {
            if (warp[lane].state != AT_WARP_BARRIER || warp[lane].mask != mask)
                return false;
            values[lane] = warp[lane].value;
            present |= 1u << lane;
        }
    ++now;
    const int from = wide ? 0 : first, to = wide ? block_count * stride + engines : first + WARP;
    static Clock seen;
    memset(seen.at + from, 0, (to - from) * sizeof *seen.at);
    for (int lane = 0; lane < lanes; ++lane)
        if (mask >> lane & 1)
            for (int other = from; other < to; ++other)
                seen.at[other] = seen.at[other] < warp[lane].seen.at[other] ? warp[lane].seen.at[other] : seen.at[other];
    for (int lane = 0; lane < lanes; ++lane)
        if (mask >> lane & 1)
            seen.at[first + lane] = now;
    for (int lane = 0; lane < lanes; ++lane)
        if (mask >> lane & 1 && warp[lane].state != RETURNED) {
            memcpy(warp[lane].got, values, sizeof values);
            warp[lane].present = present;
            memcpy(warp[lane].seen.at + from, seen.at + from, (to - from) * sizeof *seen.at);
            warp[lane].state = READY;
        }
    return true;
}

// Release the threads that wait at a named barrier of a block if it has as many as they expect.
bool release_named(int block, int id)
{
    Thread *const of = thread + block * stride;
    int first = -1, waiting = 0;
    for (int i = 0; i < threads; ++i)
        if (of[i].state == AT_NAMED_BARRIER && of[i].barrier == id) {
            first = first < 0 ? i : first, ++waiting;
            if (of[i].expected != of[first].expected)
                fail("named barrier %d of %d and of %d threads", id, of[first].expected, of[i].expected);
        }
    if (first < 0 || waiting < of[first].expected)
        return false;
    static Clock event;
    memset(&event, 0, sizeof event);
    for (int i = 0; i < threads; ++i)
        if (of[i].state == AT_NAMED_BARRIER && of[i].barrier == id)
            release(event, block * stride + i);
    for (int i = 0; i < threads; ++i)
        if (of[i].state == AT_NAMED_BARRIER && of[i].barrier == id) {
            join(of[i].seen, event);
            of[i].state = READY;
        }
    return true;
}

// End a phase of the cluster's barrier if all threads that have not returned have arrived.
bool release_cluster()
{
    bool waiting = false;
    for (int i = 0; i < block_count * stride; ++i) {
        if (thread[i].state == RETURNED)
            continue;
        if (!thread[i].at_cluster || thread[i].cluster_phase != cluster_phase)
            return false;
        waiting = true;
    }
    if (!waiting)
        return false;
    ++cluster_phase;
    cluster_ended = cluster_arrived;
    return true;
}

bool ended(const Mbarrier &barrier, int parity) { return int(barrier.phase & 1) != parity; }

void arrive(Box &);
void store(Box &);

// Carry out one of the copies to shared memory that are under way.
bool bring_load()
{
    if (!loads.count)
        return false;
    arrive(loads.element[launched->order == RANDOM ? random_below(loads.count) : loads.count - 1]);
    return true;
}

// Report threads that wait for ever, each place once.
void report_hang()
{
    size_t length = 0;
    uintptr_t reported[MOST_REPORTED];
    int count = 0;
    for (int i = 0; i < block_count * stride; ++i) {
        const Thread &t = thread[i];
        bool known = t.state == RETURNED || count == MOST_REPORTED;
        for (int j = 0; j < count; ++j)
            known = known || reported[j] == t.place;
        if (known)
            continue;
        reported[count++] = t.place;
        const auto add = [&](const char *format, auto... values) {
            const int written = snprintf(message + length, sizeof message - length, format, values...);
            length = length + written < sizeof message ? length + written : sizeof message - 1;
        };
        add(count > 1 ? "; " : "");
        length += describe(message + length, sizeof message - length, i);
        const Mbarrier *const m = t.mbarrier;
        if (t.state == POLLING)
            add(" waits for ever for a store by another block");
        else if (t.state == AT_MBARRIER)
            add(" waits for ever at the mbarrier at byte %td of shared memory", (intptr_t)(shared_begin + m->offset - cuda_dynamic_shared()));
        else if (t.state == AT_NAMED_BARRIER)
            add(" waits for ever at named barrier %d of %d threads", t.barrier, t.expected);
        else
            add(" waits for ever at a barrier of its %s", t.state == AT_BLOCK_BARRIER  ? "block"
                                                          : t.state == AT_WARP_BARRIER ? "warp"
                                                                                       : "cluster");
        if (t.place)
            add(" @0x%zx", t.place - library_begin);
        if (t.state == AT_WARP_BARRIER) {
            unsigned waiting = 0;
            for (int lane = 0, warp = i / WARP * WARP; lane < WARP; ++lane)
                waiting |= unsigned(thread[warp + lane].state == AT_WARP_BARRIER && thread[warp + lane].mask == t.mask) << lane;
            add(" of lanes %s", lanes_of(t.mask));
            add(", where only lanes %s wait", lanes_of(waiting));
        }
        if (t.state == AT_MBARRIER)
            add(" for the end of a phase of parity %d: %u phases have ended, and this one lacks %d of %d arrivals and %ld bytes",
                t.parity, m->phase, m->missing, m->arrivals, m->bytes);
    }
}

void check_cluster_end()
{
    for (const Mbarrier &each : mbarriers)
        if (each.bytes && !message[0])
            fail("the mbarrier at byte %td of shared memory of block %d ends with %ld bytes missing: they differ from those "
                 "of expect_tx",
                 (intptr_t)(shared_begin + each.offset - cuda_dynamic_shared()), each.block, each.bytes);
    for (int warp = 0; warp < block_count * stride && !message[0]; warp += WARP) {
        const int i = warp - warp % stride % (4 * WARP);  // the first thread of the warpgroup
        if (thread[warp].products != thread[i].products)
            fail("%d and %d products of a warpgroup by warps %d and %d: all four have to start each", thread[i].products,
                 thread[warp].products, i / WARP, warp / WARP);
    }
}

// Run the threads of a block that can run, `first` the first of them, each to its next wait. In random order some warps
// pause. Return whether one can run that does not only poll.
bool run_threads(int first)
{
    static int order[MOST_THREADS];
    put_in_order(order, threads);
    const unsigned running = launched->order == RANDOM ? random_below(1 << 24) : ~0u;  // by the number of a warp modulo 24
    bool ready = false;
    for (int i = 0; i < threads; ++i)
        if (const State &state = thread[first + order[i]].state; state <= POLLING && !message[0]) {
            const bool polls = state == POLLING;
            if (running >> order[i] / WARP % 24 & 1)
                resume(first + order[i]);
            ready = ready || !polls || state != POLLING;
        }
    return ready;
}

// Start the block of block_index in its place of a cluster, with uninitialized shared memory.
void start_block(int b)
{
    block_barrier[b] = ++now;
    memset(shared_at(b, 0), 0xff, shared_end - shared_begin);
    for (int i = 0; i < stride; ++i) {
        Thread &t = thread[b * stride + i];
        t.state = i < threads ? READY : RETURNED;
        t.copies = t.group = t.registers = t.products = t.product_group = t.store_group = 0;
        t.product_engine = t.store_engine = -1;
        t.at_cluster = t.wgmma_fenced = false;
        t.barriers = 0;
    }
}

uint3 index_of_block(unsigned i)
{
    const uint3 grid = index_of[3];
    return {i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y};
}

// If the block in a place of a cluster has ended, start one that has not; return whether there is one.
bool replace_block(int b)
{
    for (int i = b * stride; i < (b + 1) * stride; ++i)
        if (thread[i].state != RETURNED)
            return false;
    if (next_block == last_block)
        return false;
    memset(bytes + b * (shared_end - shared_begin), 0, (shared_end - shared_begin) * sizeof *bytes);
    block_index[b] = index_of_block(*next_block++);
    start_block(b);
    return true;
}

bool any_polls()
{
    for (int i = 0; i < block_count * stride; ++i)
        if (thread[i].state == POLLING)
            return true;
    return false;
}

// ---- counts ----

// Return the different units of `bytes` bytes that accesses touch, as their numbers in order.
std::vector<uintptr_t> units(const Event *first, const Event *last, uintptr_t bytes)
{
    std::vector<uintptr_t> found;
    for (const Event *a = first; a < last; ++a)
        for (uintptr_t unit = a->at / bytes; unit <= (a->at + a->size - 1) / bytes; ++unit)
            found.push_back(unit);
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
}

// Count an access of lanes of a warp, in their order. Shared memory serves a word of each bank in a wavefront, to as many
// lanes as access 128 bytes.
void count_access(const Event *first, const Event *last)
{
    Count &count = counts[{first->place, first->shared, first->kind}];
    ++count.warps;
    count.lanes += last - first;
    if (!first->shared) {
        count.parts += units(first, last, SECTOR).size();
        count.least += (units(first, last, 1).size() + SECTOR - 1) / SECTOR;
        return;
    }
    const int lanes = first->size > 4 ? WARP * 4 / first->size : WARP;
    for (const Event *end; first < last; first = end) {
        for (end = first; end < last && end->thread / lanes == first->thread / lanes;)
            ++end;
        int words[WARP] = {};
        for (uintptr_t word : units(first, end, 4))
            ++words[word % WARP];
        count.parts += *std::max_element(words, words + WARP);
        ++count.least;
    }
}

// A device executes an instruction for all lanes of a warp that are there; here, lanes come one after the other. Put them
// together again: of the lanes' next events the one that is first in the code comes first, for all lanes that have it. So
// lanes that skip a branch wait for those that take it, and lanes that leave a loop for those that stay.
void count_warp(const Event *first, const Event *last)
{
    const Event *next[WARP], *end[WARP];
    int lanes = 0;
    for (; first < last; ++lanes)
        for (next[lanes] = first; first < last && first->thread == next[lanes]->thread;)
            end[lanes] = ++first;
    for (;;) {
        uintptr_t place = ~(uintptr_t)0;
        for (int i = 0; i < lanes; ++i)
            if (next[i] < end[i] && next[i]->place < place)
                place = next[i]->place;
        if (place == ~(uintptr_t)0)
            return;
        std::vector<Event> together[2];  // in global and in shared memory
        for (int i = 0; i < lanes; ++i)
            if (next[i] < end[i] && next[i]->place == place) {
                if (next[i]->size)
                    together[next[i]->shared].push_back(*next[i]);
                ++next[i];
            }
        for (const auto &each : together)
            if (!each.empty())
                count_access(each.data(), each.data() + each.size());
    }
}

void count_events()
{
    const auto warp_of = [](const Event &e) { return std::make_tuple(e.thread / WARP, e.barriers); };
    std::stable_sort(events.begin(), events.end(), [&](const Event &a, const Event &b) {
        return std::make_tuple(warp_of(a), a.thread) < std::make_tuple(warp_of(b), b.thread);
    });
    for (const Event *first = events.data(), *const end = first + events.size(), *last; first < end; first = last) {
        for (last = first; last < end && warp_of(*last) == warp_of(*first);)
            ++last;
        count_warp(first, last);
    }
    events.clear();
}

void remember(uintptr_t begin, size_t size, Kind kind, bool shared)
{
    if (counting && current >= 0)
        events.push_back({place, begin, current, thread[current].barriers, (int)size, kind, shared});
}

// Run the blocks of a cluster to their ends. Return true if no error was found.
bool run_cluster()
{
    static int blocks[MOST_CLUSTER];
    bool advanced;
    int polls = 0;
    cluster_start = ++now;
    wide = block_count > 1 && !together;
    stored = false;
    engines = mbarriers.count = loads.count = stores.count = products.count = 0;
    cluster_phase = 0;
    memset(&cluster_arrived, 0, sizeof cluster_arrived);
    for (int b = 0; b < block_count; ++b)
        start_block(b);
    for (bool progress = true; progress && !message[0];) {
        progress = false;
        put_in_order(blocks, block_count);
        for (int b = 0; b < block_count && !message[0]; ++b) {
            const int block = blocks[b], first = block * stride;
            load(block);
            // Another block's turn costs copies of shared memory: it comes when this one waits, or by chance.
            do {
                advanced = run_threads(first);
                for (int i = first; i < first + threads; ++i)
                    if (thread[i].state == AT_WARP_BARRIER && release_warp(i))
                        advanced = true;
                for (int id = 0; wide && id < MOST_NAMED; ++id)
                    advanced = release_named(block, id) || advanced;
                advanced = release_block(block) || advanced;
                progress = progress || advanced;
            } while (advanced && !message[0] && !(launched->order == RANDOM && random_below(16) == 0));
            progress = !message[0] && replace_block(block) || progress || stored;
            stored = false;
        }
        if (wide)
            progress = release_cluster() || progress;
        for (int i = 0; wide && i < block_count * stride; ++i) {
            Thread &t = thread[i];
            if (t.state == AT_MBARRIER && ended(*t.mbarrier, t.parity) ||
                t.state == AT_CLUSTER_BARRIER && t.cluster_phase != cluster_phase)
                t.state = READY, progress = true;
        }
        if (!progress && !message[0])
            progress = bring_load();
        polls = progress ? 0 : polls + 1;
        progress = progress || polls < MOST_POLLS && any_polls();
    }
    bool all = true;
    for (int i = 0; i < block_count * stride; ++i)
        all = all && thread[i].state == RETURNED;
    if (!message[0] && !all)
        report_hang();
    if (!message[0])
        check_cluster_end();
    count_events();
    return !message[0];
}

// Called for each library: find the one whose thread-local variables hold the marker.
int find_library(dl_phdr_info *library, size_t, void *marker)
{
    shared_begin = shared_end = nullptr, globals_begin = ~(uintptr_t)0, library_begin = library->dlpi_addr;
    for (int i = 0; i < library->dlpi_phnum; ++i) {
        const ElfW(Phdr) &part = library->dlpi_phdr[i];
        const uintptr_t begin = library->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD)  // in ascending order
            globals_begin = begin < globals_begin ? begin : globals_begin, globals_end = begin + part.p_memsz;
        if (part.p_type == PT_TLS && library->dlpi_tls_data)
            shared_begin = (char *)library->dlpi_tls_data, shared_end = shared_begin + part.p_memsz;
    }
    return shared_begin && shared_begin <= marker && marker < shared_end;
}

// ---- accesses ----

// Check an access to shared memory of a block by the current thread, or by an engine that it starts.
void check_shared(int block, size_t offset, size_t size, Kind kind, int by = current)
{
    if (!launched->checked)
        return;
    const unsigned here = place - library_begin;
    const bool engine = by != current;
    Byte *const first = bytes + block * (shared_end - shared_begin) + offset;
    const Byte before = *first;
    for (Byte *b = first; b < first + size; ++b) {
        if (b > first && memcmp(b, &before, sizeof before) == 0) {  // most bytes of an access have the same history
            *b = *first;
            continue;
        }
        if (kind != WRITE && b->written < cluster_start)
            fail("read of shared memory that nothing has written,");
        int other = kind == ATOMIC && b->atomic || ordered(b->written, b->writer) ? -1 : b->writer;
        unsigned other_at = b->written_at;
        if (kind == READ) {
            if (engine && other < 0 && b->writer < block_count * stride && thread[b->writer].fenced <= b->written)
                fail("thread %d wrote shared memory @0x%x without fence_proxy_async before the read", b->writer % stride, other_at);
            if (b->reader != by)
                b->other_read = b->read, b->other_reader = b->reader, b->other_read_at = b->read_at;
            b->read = now, b->reader = by, b->read_at = here;
        } else {
            if (!ordered(b->read, b->reader))
                other = b->reader, other_at = b->read_at;
            if (!ordered(b->other_read, b->other_reader))
                other = b->other_reader, other_at = b->other_read_at;
            b->written = now, b->writer = by, b->atomic = kind == ATOMIC, b->written_at = here;
        }
        if (other >= 0)
            fail("race in shared memory: no barrier between an access @0x%x by %s %d and a %s", other_at,
                 other < block_count * stride ? "thread" : "engine", other < block_count * stride ? other % stride : other - block_count * stride,
                 kind == READ ? "read" : "write");
    }
}

// Whether a range is in the shared memory of the block that runs, and not in the unused part of the dynamic one.
bool in_shared(uintptr_t begin, size_t size)
{
    char *const unused = dynamic_begin + launched->dynamic_bytes;
    return begin >= (uintptr_t)shared_begin && begin + size <= (uintptr_t)shared_end &&
           (!dynamic_begin || begin + size <= (uintptr_t)unused || begin >= (uintptr_t)dynamic_begin + MOST_SHARED);
}

// Check that no two blocks change the first element of an array, which is the sum of a reduction, by plain accesses.
void check_first(First &first, Kind kind)
{
    const uint3 grid = index_of[3], at = index_of[1];
    const int block = 1 + at.x + grid.x * (at.y + grid.y * at.z);
    if (kind == WRITE && first.writer && first.writer != block && first.reader == block)
        fail("race in global memory: block %d changes an element that block %d wrote, without atomics,", block - 1, first.writer - 1);
    (kind == READ ? first.reader : first.writer) = block;
}

void access(uintptr_t begin, size_t size, Kind kind)
{
    const auto within = [=](const void *from, const void *to) {
        return begin >= (uintptr_t)from && begin + size <= (uintptr_t)to;
    };
    count(1);
    if (in_shared(begin, size)) {
        check_shared(loaded, begin - (uintptr_t)shared_begin, size, kind);
        remember(begin - (uintptr_t)shared_begin, size, kind, true);
        return;
    }
    synchronized = synchronized || kind == ATOMIC || together;
    for (int i = 0; i < launched->arrays; ++i)
        if (within((void *)launched->array[i].begin, (void *)launched->array[i].end)) {
            if (i < MOST_ARRAYS && begin == launched->array[i].begin && launched->checked && !synchronized)
                check_first(first_element[i], kind);
            remember(begin, size, kind, false);
            return;
        }
    if (current >= 0 && within(stacks + current * STACK, stacks + (current + 1) * STACK) ||
        within((void *)globals_begin, (void *)globals_end))
        return;
    const char *const what = kind == READ ? "read" : "write";
    if (within(shared_begin - MOST_SHARED, shared_end + MOST_SHARED))
        fail("%s of %zu bytes out of bounds, of shared memory,", what, size);
    int nearest = -1;
    size_t least = MARGIN;
    for (int i = 0; i < launched->arrays; ++i) {
        const Array &near = launched->array[i];
        const size_t distance = begin < near.begin ? near.begin - begin : begin < near.end ? 0 : begin - near.end;
        if (distance < least)
            nearest = i, least = distance;
    }
    if (nearest >= 0) {
        const Array &near = launched->array[nearest];
        fail("%s of %zu bytes out of bounds, at byte %td of the %td of array %d,", what, size,
             (intptr_t)(begin - near.begin), (intptr_t)(near.end - near.begin), nearest);
    }
    fail("%s of %zu bytes out of bounds", what, size);
}

// The place of a pointer in the shared memory of the block that runs.
size_t shared_offset(const void *pointer, size_t size, size_t alignment, const char *what)
{
    if (!in_shared((uintptr_t)pointer, size))
        fail("%s out of bounds of shared memory", what);
    if (((const char *)pointer - cuda_dynamic_shared()) % alignment)
        fail("%s is not at a multiple of %zu bytes of shared memory", what, alignment);
    return (const char *)pointer - shared_begin;
}

void perform(const Copy &copy)
{
    place = copy.place;
    if (copy.valid)
        access((uintptr_t)copy.source, copy.valid, READ);
    access((uintptr_t)copy.target, copy.bytes, WRITE);
    memcpy(copy.target, copy.source, copy.valid);
    memset(copy.target + copy.valid, 0, copy.bytes - copy.valid);
}

// ---- mbarriers and TMA ----

Mbarrier *mbarrier_at(int block, size_t offset)
{
    for (Mbarrier &each : mbarriers)
        if (each.block == block && each.offset == offset) {
            if (!ordered(each.initialized, each.initialized_by))
                fail("use of an mbarrier that no barrier orders after its initialization");
            check_shared(block, offset, 8, ATOMIC);
            return &each;
        }
    fail("no mbarrier was initialized at byte %td of shared memory of block %d of the cluster,",
         (intptr_t)(shared_begin + offset - cuda_dynamic_shared()), block);
    return nullptr;
}

void end_phase(Mbarrier &barrier)
{
    if (barrier.missing == 0 && barrier.bytes < 0)
        fail("%ld bytes more have come to an mbarrier than expect_tx has said", -barrier.bytes);
    if (barrier.missing == 0 && barrier.bytes == 0) {
        ++barrier.phase;
        barrier.missing = barrier.arrivals;
        barrier.ended = barrier.arrived;
    }
}

// Call each(place in shared memory, address of 16 bytes of the matrix, how many of them are in it) for a box.
template <class F> void each_chunk(const Box &box, F each)
{
    const TensorMap &map = box.map;
    const size_t base = shared_begin + box.offset - cuda_dynamic_shared();
    const intptr_t element = map.element_bytes, first_byte = box.column * element;
    for (intptr_t y = 0; y < (intptr_t)map.box_rows; ++y)
        for (intptr_t x = 0; x < (intptr_t)map.box_row_bytes; x += 16) {
            size_t to = base + y * map.box_row_bytes + x;
            to ^= (to >> 7 & (map.box_row_bytes / 16 - 1)) << 4;  // the swizzle has as many bytes as a row of the box
            const intptr_t row = box.row + y, column = first_byte + x;
            const intptr_t left = (intptr_t)map.row_bytes - column;
            const bool inside = row >= 0 && row < (intptr_t)map.rows && column >= 0;
            each(box.offset + to - base, map.begin + row * map.row_step + column, inside ? left < 16 ? left < 0 ? 0 : left : 16 : 0);
        }
}

size_t check_box(const TensorMap &map, const void *shared)
{
    if (!map.box_rows)
        fail("the tensor map is of a matrix that TMA cannot take, or of none");
    const size_t alignment = map.box_row_bytes * 8;  // of the swizzle's pattern
    return shared_offset(shared, map.box_rows * map.box_row_bytes, alignment < 128 ? 128 : alignment, "a box of TMA");
}

// Carry out a load.
void arrive(Box &load)
{
    const Box box = load;
    loads.remove(&load);
    const int before = current;
    current = -1;  // the engine's work; reports name the place that started it
    place = box.place;
    each_chunk(box, [&](size_t offset, uintptr_t source, int valid) {
        char *const to = shared_at(box.block, offset);
        memset(to, 0, 16);
        if (valid)
            memcpy(to, (const void *)source, valid);
        for (int i = 0; box.map.rounds_to_tf32 && i < 4; ++i) {  // to the nearest number
            uint32_t bits;
            memcpy(&bits, to + 4 * i, 4);
            if ((bits & 0x7f800000) != 0x7f800000)
                bits = (bits + 0x1000) & 0xffffe000;
            memcpy(to + 4 * i, &bits, 4);
        }
    });
    Mbarrier &barrier = *box.mbarrier;
    const auto report = [&](const char *what, long bytes) {
        if (!message[0])
            fail("a copy by TMA @0x%zx %s: expect_tx says %ld bytes fewer than are copied", box.place - library_begin, what, bytes);
    };
    if (barrier.phase != box.phase)
        report("comes after the phase of its mbarrier", (long)(box.map.box_rows * box.map.box_row_bytes));
    barrier.bytes -= box.map.box_rows * box.map.box_row_bytes;
    barrier.arrived.at[barrier.engine] = ++now;
    if (barrier.missing == 0 && barrier.bytes < 0)
        report("brings too much", -barrier.bytes);
    if (!message[0])
        end_phase(barrier);
    current = before;
}

// Carry out a store.
void store(Box &box)
{
    place = box.place;
    each_chunk(box, [&](size_t offset, uintptr_t target, int valid) {
        if (valid < 16)
            return;  // nothing is written of 16 bytes that are not wholly inside
        access(target, 16, WRITE);
        memcpy((void *)target, shared_at(box.block, offset), 16);
    });
    box.done = true;
}

void check_end()
{
    place = 0;
    for (const Box &each : stores)
        if (each.thread == current) {
            place = each.place;
            fail("the end of a thread before its store by TMA has read shared memory: cp_async_bulk_wait_group is missing,");
        }
    for (const Product &each : products)
        if (each.thread == current)
            fail("the end of a thread before its products are complete: wgmma_wait_group is missing,");
}

void divided(int)  // a signal of the CPU; a GPU goes on with some number
{
    place = 0;
    fail("integer division by zero");
}

// A signal after each tick. g++ calls no hook in an empty block, so a loop such as while (true); makes no step.
void ticked(int, siginfo_t *, void *context)
{
    static double before;
#if defined(__x86_64__)
    const uintptr_t here = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
    const uintptr_t here = ((ucontext_t *)context)->uc_mcontext.pc;
#endif
    if (current >= 0 && steps == before && here >= globals_begin && here < globals_end) {
        place = here + 1;
        fail("an empty loop without an end");
    }
    before = steps;
}

// After a wait: the time before which what an engine has done is ordered, given the oldest that is under way.
template <class T> void see_engine(T &under_way, int engine)
{
    unsigned until = ++now;
    for (const auto &each : under_way)
        if (each.thread == current && each.started < until)
            until = each.started;
    if (engine >= 0)
        thread[current].seen.at[engine] = until;
}

}  // namespace

namespace cuda_on_host {
extern "C" {

void cuda_cp_async(void *target, const void *source, int bytes, int valid)
{
    Thread &t = thread[current];
    place = (uintptr_t)__builtin_return_address(0);
    if ((char *)target < shared_begin || (char *)target >= shared_end)
        fail("asynchronous copy to no shared memory");
    if ((uintptr_t)target % bytes || valid && (uintptr_t)source % bytes)
        fail("misaligned asynchronous copy");
    const Copy copy = {(char *)target, (const char *)source, bytes, valid, t.group, place};
    if (at_once())
        perform(copy);
    else if (t.copies == MOST_COPIES)
        fail("more than %d asynchronous copies under way", MOST_COPIES);
    else
        t.copy[t.copies++] = copy;
}

void cuda_cp_async_commit_group() { ++thread[current].group; }

void cuda_cp_async_wait_group(int pending)
{
    Thread &t = thread[current];
    int left = 0;
    for (int i = 0; i < t.copies; ++i)
        if (t.copy[i].group < t.group - pending)
            perform(t.copy[i]);
        else
            t.copy[left++] = t.copy[i];
    t.copies = left;
}

void cuda_access(const void *address, size_t size, Kind kind, void *from)
{
    place = (uintptr_t)from;
    access((uintptr_t)address, size, kind);
}

uint3 cuda_index(int which) { return index_of[which]; }

void cuda_block_barrier(int line)
{
    place = (uintptr_t)__builtin_return_address(0);
    thread[current].line = line;
    thread[current].predicate = 0;
    wait(AT_BLOCK_BARRIER);
}

int cuda_block_count(int line, int predicate, int *participants)
{
    place = (uintptr_t)__builtin_return_address(0);
    thread[current].line = line;
    thread[current].predicate = predicate;
    wait(AT_BLOCK_BARRIER);
    if (participants)
        *participants = thread[current].counted_of;
    return thread[current].counted;
}

void cuda_stop(const char *what, int line)
{
    place = 0;
    fail("%s failed in line %d,", what, line);
    __builtin_unreachable();
}

const char *cuda_note() { return note; }

// Return the counts since the last call as JSON. Accesses: [place, whether in shared memory, kind, warps, lanes, parts,
// fewest parts].
const char *cuda_counts()
{
    static std::string text;
    char part[256];
    snprintf(part, sizeof part, "{\"barriers\": %lu, \"missed\": %lu, \"mmas\": %lu, \"code_blocks\": %lu, \"accesses\": [",
             barriers, missed, mmas, code_blocks);
    text = part;
    for (const auto &[key, count] : counts) {
        const auto &[place, shared, kind] = key;
        snprintf(part, sizeof part, "%s[%lu, %d, %d, %lu, %lu, %lu, %lu]", text.back() == '[' ? "" : ", ",
                 place - library_begin, shared, kind, count.warps, count.lanes, count.parts, count.least);
        text += part;
    }
    text += "]}";
    counts.clear();
    barriers = missed = mmas = code_blocks = 0;
    return text.c_str();
}

void cuda_count_mma() { mmas += counting && current % WARP == 0; }

unsigned cuda_lanes() { return thread[current].present; }

uint64_t cuda_shuffle(unsigned mask, uint64_t value, int source, void *from)
{
    const uint64_t result = cuda_warp_exchange(mask, value, from)[source];
    const Thread &t = thread[current];
    if (!(t.present >> source & 1)) {
        char lanes[128];
        strcpy(lanes, lanes_of(t.present));
        take_note((uintptr_t)from, "lane %d reads from lane %d, but only lanes %s take part in the shuffle (%s)",
                  current % WARP, source, lanes,
                  mask >> source & 1 ? "the others have returned or never come" : "the mask leaves the others out");
    }
    return result;
}

const uint64_t *cuda_warp_exchange(unsigned mask, uint64_t value, void *from)
{
    place = (uintptr_t)(from ? from : __builtin_return_address(0));
    if (!(mask >> current % WARP & 1))
        fail("the mask %08x of a warp barrier lacks the calling lane,", mask);
    thread[current].mask = mask;
    thread[current].value = value;
    wait(AT_WARP_BARRIER);
    return thread[current].got;
}

const uint64_t *cuda_whole_warp(const void *operands, void *from)
{
    const uint64_t *const all = cuda_warp_exchange(~0u, (uintptr_t)operands, from);
    for (int lane = 0; lane < WARP; ++lane)
        if (!(thread[current].present >> lane & 1)) {
            place = (uintptr_t)from;
            fail("an instruction of a whole warp by part of one");
        }
    return all;
}

const char *cuda_dynamic_shared() { return dynamic_begin ? dynamic_begin : shared_begin; }

void cuda_named_barrier(int id, int count)
{
    place = (uintptr_t)__builtin_return_address(0);
    if (id < 0 || id >= MOST_NAMED || count <= 0 || count % WARP || count > threads)
        fail("named barrier %d of %d threads: there are %d barriers, of whole warps of the block,", id, count, MOST_NAMED);
    wide = true;
    thread[current].barrier = id;
    thread[current].expected = count;
    wait(AT_NAMED_BARRIER);
}

// No thread waits for a prefetch, and none orders accesses.
void cuda_prefetch(const void *address)
{
    place = (uintptr_t)__builtin_return_address(0);
    const uintptr_t at = (uintptr_t)address;
    bool inside = at >= globals_begin && at < globals_end;
    for (int i = 0; i < launched->arrays; ++i)
        inside = inside || at >= launched->array[i].begin && at < launched->array[i].end;
    if (!inside)
        fail("prefetch out of bounds");
}

void cuda_relaxed(const void *address, void *value, size_t size, Kind kind)
{
    place = (uintptr_t)__builtin_return_address(0);
    if ((uintptr_t)address % size)
        fail("misaligned relaxed access");
    access((uintptr_t)address, size, kind);
    memcpy(kind == READ ? value : (void *)address, kind == READ ? address : value, size);
    stored = stored || kind == WRITE, synchronized = true;
    if (launched->order != RANDOM || random_below(2))
        wait(POLLING);
}

void cuda_setmaxnreg(int registers)
{
    place = (uintptr_t)__builtin_return_address(0);
    if (registers % 8 || registers < 24 || registers > 256)
        fail("setmaxnreg of %d registers: allowed are multiples of 8 from 24 to 256,", registers);
    thread[current].registers = registers;
    long sum = 0;  // others have at most what they were started with
    for (int i = block_of(current) * stride; i < block_of(current) * stride + threads; ++i)
        sum += thread[i].registers;
    if (sum > REGISTERS)
        fail("setmaxnreg: the threads of a block take more than %d registers", REGISTERS);
}

void cuda_fence_proxy_async() { thread[current].fenced = ++now; }

// ---- clusters ----

unsigned cuda_mapa(const void *address, int rank)
{
    return (rank < 0 ? block_of(current) : rank) << RANK_SHIFT | ((const char *)address - cuda_dynamic_shared() & (1 << RANK_SHIFT) - 1);
}

}  // extern "C"
}  // namespace cuda_on_host

namespace {

// Split an address in the cluster's shared memory; return the place in that of the block.
size_t locate(unsigned address, size_t size, int &block)
{
    block = address >> RANK_SHIFT;
    if (block >= block_count)
        fail("block %d of a cluster of %d", block, block_count);
    const int in_dynamic = (int)(address << 32 - RANK_SHIFT) >> 32 - RANK_SHIFT;  // negative: a static variable before it
    const size_t offset = shared_offset(cuda_dynamic_shared() + in_dynamic, size, 1, "an address of shared memory");
    bool runs = false;
    for (int i = block * stride; i < block * stride + threads; ++i)
        runs = runs || thread[i].state != RETURNED;
    if (!runs)
        fail("access to the shared memory of block %d of the cluster, which has ended,", block);
    return offset;
}

}  // namespace

namespace cuda_on_host {
extern "C" {

void cuda_shared_cluster(unsigned address, void *value, size_t size, Kind kind)
{
    place = (uintptr_t)__builtin_return_address(0);
    int block;
    const size_t offset = locate(address, size, block);
    check_shared(block, offset, size, kind);
    char *const there = shared_at(block, offset);
    memcpy(kind == READ ? value : there, kind == READ ? there : value, size);
}

void cuda_barrier_cluster_arrive()
{
    place = (uintptr_t)__builtin_return_address(0);
    Thread &t = thread[current];
    if (t.at_cluster)
        fail("second arrival at the barrier of the cluster without a wait");
    release(cluster_arrived, current);
    t.at_cluster = true;
    t.cluster_phase = cluster_phase;
}

void cuda_barrier_cluster_wait()
{
    place = (uintptr_t)__builtin_return_address(0);
    Thread &t = thread[current];
    if (!t.at_cluster)
        fail("wait at the barrier of the cluster without an arrival");
    if (t.cluster_phase == cluster_phase)
        wait(AT_CLUSTER_BARRIER);
    t.at_cluster = false;
    join(t.seen, cluster_ended);
}

// ---- mbarriers and TMA ----

void cuda_mbarrier_init(void *address, int arrivals)
{
    place = (uintptr_t)__builtin_return_address(0);
    const size_t offset = shared_offset(address, 8, 8, "an mbarrier");
    for (const Mbarrier &each : mbarriers)
        if (each.block == loaded && each.offset == offset)
            fail("an mbarrier is initialized twice");
    if (together)
        fail("an mbarrier in a kernel whose blocks may wait for each other");
    if (arrivals < 1 || arrivals >= 1 << 20)
        fail("an mbarrier for %d arrivals", arrivals);
    if (mbarriers.count == MOST_MBARRIERS)
        fail("more than %d mbarriers", MOST_MBARRIERS);
    wide = true;
    check_shared(loaded, offset, 8, WRITE);
    const int engine = new_engine();
    Mbarrier &barrier = mbarriers.element[mbarriers.count++];
    memset(&barrier, 0, sizeof barrier);
    barrier.block = loaded, barrier.offset = offset;
    barrier.arrivals = barrier.missing = arrivals;
    barrier.initialized_by = current, barrier.initialized = now++, barrier.engine = engine;
}

void cuda_fence_mbarrier_init()
{
    for (Mbarrier &each : mbarriers)
        each.fenced = each.fenced || each.initialized_by == current;
}

void cuda_mbarrier_arrive(unsigned address, int bytes_more)
{
    place = (uintptr_t)__builtin_return_address(0);
    int block;
    const size_t offset = locate(address, 8, block);
    Mbarrier &barrier = *mbarrier_at(block, offset);
    if (block != block_of(current) && !barrier.fenced)
        fail("an mbarrier of another block is used without fence_mbarrier_init");
    if (bytes_more < 0)
        fail("an mbarrier expects %d bytes", bytes_more);
    if (barrier.missing == 0)
        fail("more than the %d arrivals of a phase of an mbarrier", barrier.arrivals);
    release(barrier.arrived, current);
    barrier.bytes += bytes_more;
    --barrier.missing;
    end_phase(barrier);
}

void cuda_mbarrier_wait(void *address, int parity)
{
    place = (uintptr_t)__builtin_return_address(0);
    if (parity != 0 && parity != 1)
        fail("parity %d of a phase: 0 or 1 is allowed", parity);
    const size_t offset = shared_offset(address, 8, 8, "an mbarrier");
    Thread &t = thread[current];
    t.mbarrier = mbarrier_at(loaded, offset);
    t.parity = parity;
    if (!ended(*t.mbarrier, parity))
        wait(AT_MBARRIER);
    join(t.seen, t.mbarrier->ended);
}

void cuda_tma_load(void *target, const TensorMap &map, int column, int row, void *barrier, unsigned ranks)
{
    place = (uintptr_t)__builtin_return_address(0);
    const size_t offset = check_box(map, target), barrier_offset = shared_offset(barrier, 8, 8, "an mbarrier");
    if (ranks >> block_count)
        fail("multicast to blocks %#x of a cluster of %d", ranks, block_count);
    for (int block = 0; block < block_count; ++block) {
        if (ranks ? !(ranks >> block & 1) : block != loaded)
            continue;
        int located;
        locate(cuda_mapa(target, block), 1, located);  // the block still runs
        Mbarrier *const arrives_at = mbarrier_at(block, barrier_offset);
        if (!arrives_at->fenced)
            fail("TMA uses an mbarrier without fence_mbarrier_init");
        check_shared(block, offset, map.box_rows * map.box_row_bytes, WRITE, arrives_at->engine);
        if (loads.count == MOST_UNDER_WAY)
            fail("more than %d copies by TMA under way", MOST_UNDER_WAY);
        Box &box = loads.element[loads.count++];
        box = {map, column, row, block, offset, arrives_at, arrives_at->phase, current, 0, ++now, false, place};
        if (at_once())
            arrive(box);
        if (message[0])
            _longjmp(scheduler, 1);
    }
}

void cuda_tma_store(const TensorMap &map, int column, int row, const void *source)
{
    place = (uintptr_t)__builtin_return_address(0);
    const size_t offset = check_box(map, source);
    Thread &t = thread[current];
    wide = true;
    if (t.store_engine < 0)
        t.store_engine = new_engine();
    if (stores.count == MOST_UNDER_WAY)
        fail("more than %d stores by TMA under way", MOST_UNDER_WAY);
    check_shared(loaded, offset, map.box_rows * map.box_row_bytes, READ, t.store_engine);
    Box &box = stores.element[stores.count++];
    box = {map, column, row, loaded, offset, nullptr, 0, current, t.store_group, now++, false, place};
    if (at_once())
        store(box);
}

void cuda_bulk_commit_group() { ++thread[current].store_group; }

void cuda_bulk_wait_group(int pending)
{
    Thread &t = thread[current];
    for (int i = 0; i < stores.count;) {
        Box &each = stores.element[i];
        if (each.thread != current || each.group >= t.store_group - pending) {
            ++i;
            continue;
        }
        if (!each.done)
            store(each);
        stores.remove(&each);
    }
    see_engine(stores, t.store_engine);
}

// ---- products of a warpgroup: a warp's part is started and waited for by its lane 0 ----

void cuda_wgmma_fence() { thread[current].wgmma_fenced = true; }

void cuda_wgmma_mma_async(const CudaWgmma &wgmma, void *from)
{
    Thread &t = thread[current];
    place = (uintptr_t)from;
    if (!t.wgmma_fenced)
        fail("wgmma without wgmma_fence since the beginning or the last wgmma_wait_group");
    wide = true;
    if (t.product_engine < 0)
        t.product_engine = new_engine();
    if (products.count == MOST_UNDER_WAY)
        fail("more than %d products under way", MOST_UNDER_WAY);
    ++t.products;
    Product &product = products.element[products.count++];
    bool at_once = ::at_once();
    for (const Product &each : products)
        at_once = at_once && (&each == &product || each.thread != current || each.done);  // sums in order
    mmas += counting;
    product = {wgmma, current, t.product_group, now, at_once};
    wgmma.multiply(wgmma, true, at_once);
    ++now;
}

void cuda_read_by_wgmma(const void *address, size_t size)
{
    const size_t offset = shared_offset(address, size, 16, "an operand of wgmma");
    check_shared(loaded, offset, size, READ, thread[current].product_engine);
}

void cuda_wgmma_commit_group() { ++thread[current].product_group; }

void cuda_wgmma_wait_group(int pending)
{
    Thread &t = thread[current];
    t.wgmma_fenced = false;
    if (current % WARP)
        return;
    for (int i = 0; i < products.count;) {
        Product &each = products.element[i];
        if (each.thread != current || each.group >= t.product_group - pending) {
            ++i;
            continue;
        }
        if (!each.done)
            each.wgmma.multiply(each.wgmma, false, true);
        products.remove(&each);
    }
    see_engine(products, t.product_engine);
}

const char *cuda_launch(void (*call)(void **), void **arguments, const Launch *launch, char *shared, char *dynamic,
                        uint3 cluster)
{
    static int order[MOST_BLOCKS];
    static size_t size;  // of `bytes`, and of `parked`
    static int blocks_of_size;
    const int map = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (!stacks)
        stacks = (char *)mmap(nullptr, MOST_THREADS * STACK, PROT_READ | PROT_WRITE, map, -1, 0);
    message[0] = note[0] = 0, current = -1, steps = 0, place = 0, synchronized = false;
    memset(first_element, 0, sizeof first_element);
    double bytes_in_all = 0;
    for (int i = 0; i < launch->arrays; ++i)
        bytes_in_all += launch->array[i].end - launch->array[i].begin;
    most_steps = MOST_STEPS + 8 * bytes_in_all * sqrt(bytes_in_all);
    counting = launch->counted;
    launched = launch, call_kernel = call, kernel_arguments = arguments;
    random_state = launch->seed;
    const uint3 grid = index_of[3] = launch->grid, block = index_of[2] = launch->block;
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    threads = block.x * block.y * block.z;
    stride = (threads + WARP - 1) / WARP * WARP;
    together = cluster.x == 0;
    for (unsigned *each : {&cluster.x, &cluster.y, &cluster.z})
        *each = *each ? *each : 1;
    block_count = cluster.x * cluster.y * cluster.z;
    const bool only_last = launch->order == LAST && block_count == 1 && !together;
    if (threads < 1 || threads > 1024 || blocks < 1 || (blocks > MOST_BLOCKS && !only_last) ||
        block_count > MOST_CLUSTER || block_count * stride > MOST_THREADS || grid.x % cluster.x || grid.y % cluster.y || grid.z % cluster.z)
        return "a launch that the device or this tool refuses";
    if (together) {
        const uint64_t most = MOST_THREADS / stride < MOST_CLUSTER ? MOST_THREADS / stride : MOST_CLUSTER;
        block_count = blocks < most ? blocks : most;
    }
    dl_iterate_phdr(find_library, shared);
    dynamic_begin = dynamic;
    if (size < size_t(shared_end - shared_begin) || blocks_of_size < block_count) {
        size = shared_end - shared_begin > size ? shared_end - shared_begin : size, blocks_of_size = block_count;
        bytes = (Byte *)mmap(nullptr, block_count * size * sizeof(Byte), PROT_READ | PROT_WRITE, map, -1, 0);
        for (int b = 0; b < block_count && block_count > 1; ++b)
            parked[b] = (char *)mmap(nullptr, size, PROT_READ | PROT_WRITE, map, -1, 0);
    }
    loaded = 0;
    struct sigaction own = {}, before, watch = {}, unwatched;
    own.sa_handler = divided;
    watch.sa_sigaction = ticked;
    own.sa_flags = SA_NODEFER, watch.sa_flags = SA_NODEFER | SA_SIGINFO;  // fail() does not return from the handler
    sigaction(SIGFPE, &own, &before);
    sigaction(SIGVTALRM, &watch, &unwatched);
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID, event.sigev_signo = SIGVTALRM, event.sigev_notify_thread_id = gettid();
    const itimerspec interval = {{0, TICK}, {0, TICK}};
    timer_t timer;
    const bool watched = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0;
    if (watched)
        timer_settime(timer, 0, &interval, nullptr);
    const uint3 clusters = {grid.x / cluster.x, grid.y / cluster.y, grid.z / cluster.z};
    const unsigned rounds = together || only_last ? 1 : blocks / block_count;
    put_in_order(order, together ? blocks : rounds);
    if (only_last)
        order[0] = blocks - 1;
    next_block = order + (together ? block_count : 0);
    last_block = order + (together ? blocks : 0);
    for (unsigned i = 0; i < rounds; ++i) {
        const unsigned c = order[i], x = c % clusters.x, y = c / clusters.x % clusters.y, z = c / clusters.x / clusters.y;
        for (unsigned b = 0; b < block_count; ++b)
            block_index[b] = together ? index_of_block(order[b])
                                      : uint3{x * cluster.x + b % cluster.x, y * cluster.y + b / cluster.x % cluster.y,
                                              z * cluster.z + b / cluster.x / cluster.y};
        if (!run_cluster()) {
            for (Thread &t : thread)
                t.has_stack = false;  // discards the state of the threads
            break;
        }
    }
    if (watched)
        timer_delete(timer);
    sigaction(SIGFPE, &before, nullptr);
    sigaction(SIGVTALRM, &unwatched, nullptr);
    return message[0] ? message : nullptr;
}

// Hooks that g++ calls on each access ...
#define HOOK(name, kind, size, ...)                        \
    void name(__VA_ARGS__)                                 \
    {                                                      \
        place = (uintptr_t)__builtin_return_address(0);    \
        access(address, size, kind);                       \
    }
#define CUDA_HOOKS(bytes)                                     \
    HOOK(__tsan_read##bytes, READ, bytes, uintptr_t address)  \
    HOOK(__tsan_write##bytes, WRITE, bytes, uintptr_t address)
CUDA_HOOKS(1)
CUDA_HOOKS(2)
CUDA_HOOKS(4)
CUDA_HOOKS(8)
CUDA_HOOKS(16)
HOOK(__tsan_read_range, READ, size, uintptr_t address, size_t size)
HOOK(__tsan_write_range, WRITE, size, uintptr_t address, size_t size)
void __tsan_init() {}
void __sanitizer_cov_trace_pc()
{
    if (counting) {
        ++code_blocks;
        place = (uintptr_t)__builtin_return_address(0);
        remember(0, 0, READ, false);
    }
    if (++steps > most_steps) {
        place = (uintptr_t)__builtin_return_address(0);
        count(0);
    }
}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}

// ... and handlers of violations of its bounds, alignment and object-size checks
struct Place {
    const char *file;
    unsigned line, column;
    const void *type;
    unsigned char log_alignment;  // for type mismatches only
};
void __ubsan_handle_out_of_bounds(const Place *place, intptr_t index)
{
    ::place = 0;
    fail("index %td out of bounds in line %u", (intptr_t)index, place->line);
}
void __ubsan_handle_type_mismatch_v1(const Place *place, uintptr_t pointer)
{
    ::place = 0;
    const bool misaligned = pointer & ((1ul << place->log_alignment) - 1);
    fail("%s pointer in line %u", misaligned ? "misaligned" : pointer ? "out of bounds" : "null", place->line);
}
}  // extern "C"
}  // namespace cuda_on_host
