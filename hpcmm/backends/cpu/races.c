// Tell ThreadSanitizer how OpenMP orders the threads of a region: GCC's runtime library is not instrumented. Linked with a
// kernel and with -Wl,--wrap for each function below.
#include <stdbool.h>

void __tsan_acquire(void *);
void __tsan_release(void *);

#define PLAIN __attribute__((no_sanitize("thread"), noinline))

struct region {
    void (*body)(void *);
    void *data;
    char begin, end;
};
static char barriers[2], locked;          // alternate barriers: a fast thread is one ahead of a slow one at most
static __thread unsigned barriers_passed;  // of this region

PLAIN static void body(void *given)
{
    struct region *const region = given;
    barriers_passed = 0;
    __tsan_acquire(&region->begin);
    region->body(region->data);
    __tsan_release(&region->end);
}

#define PARALLEL(name, parameters, ...)                                                       \
    void __real_##name(void (*)(void *), void *, unsigned, parameters unsigned);              \
    PLAIN void __wrap_##name(void (*f)(void *), void *data, unsigned threads, parameters unsigned flags) \
    {                                                                                         \
        struct region region = {f, data, 0, 0};                                               \
        __tsan_release(&region.begin);                                                        \
        __real_##name(body, &region, threads, __VA_ARGS__ flags);                             \
        __tsan_acquire(&region.end);                                                          \
    }
#define NOTHING
#define COMMA ,
#define RANGE long first COMMA long last COMMA long step COMMA
PARALLEL(GOMP_parallel, NOTHING, )
PARALLEL(GOMP_parallel_loop_static, RANGE long chunk COMMA, first, last, step, chunk, )
PARALLEL(GOMP_parallel_loop_dynamic, RANGE long chunk COMMA, first, last, step, chunk, )
PARALLEL(GOMP_parallel_loop_guided, RANGE long chunk COMMA, first, last, step, chunk, )
PARALLEL(GOMP_parallel_loop_nonmonotonic_dynamic, RANGE long chunk COMMA, first, last, step, chunk, )
PARALLEL(GOMP_parallel_loop_nonmonotonic_guided, RANGE long chunk COMMA, first, last, step, chunk, )
PARALLEL(GOMP_parallel_loop_runtime, RANGE, first, last, step, )
PARALLEL(GOMP_parallel_loop_maybe_nonmonotonic_runtime, RANGE, first, last, step, )

#define BARRIER(name)                               \
    void __real_##name(void);                       \
    PLAIN void __wrap_##name(void)                  \
    {                                               \
        char *const at = &barriers[barriers_passed++ % 2]; \
        __tsan_release(at);                         \
        __real_##name();                            \
        __tsan_acquire(at);                         \
    }
BARRIER(GOMP_barrier)
BARRIER(GOMP_loop_end)

#define LOCK(begin, end, parameter, argument)       \
    void __real_##begin(parameter);                 \
    void __real_##end(parameter);                   \
    PLAIN void __wrap_##begin(parameter)            \
    {                                               \
        __real_##begin(argument);                   \
        __tsan_acquire(&locked);                    \
    }                                               \
    PLAIN void __wrap_##end(parameter)              \
    {                                               \
        __tsan_release(&locked);                    \
        __real_##end(argument);                     \
    }
LOCK(GOMP_critical_start, GOMP_critical_end, void, )
LOCK(GOMP_critical_name_start, GOMP_critical_name_end, void **name, name)
LOCK(GOMP_atomic_start, GOMP_atomic_end, void, )
LOCK(omp_set_lock, omp_unset_lock, void *lock, lock)
