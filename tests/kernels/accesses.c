#include <stdint.h>
static const char *begin[3], *end[3];
static uintptr_t last[3];
long lines, elements;
void watch(int i, const char *from, long bytes) { begin[i] = from; end[i] = from + bytes; last[i] = 0; }
static void touch(uintptr_t at) {
    for (int i = 0; i < 3; ++i)
        if (at >= (uintptr_t)begin[i] && at < (uintptr_t)end[i]) {
            lines += at / 64 != last[i];
            ++elements;
            last[i] = at / 64;
        }
}
#define HOOK(n) void __tsan_read##n(void *p) { touch((uintptr_t)p); } \
                void __tsan_write##n(void *p) { touch((uintptr_t)p); }
HOOK(1) HOOK(2) HOOK(4) HOOK(8) HOOK(16)
void __tsan_init(void) {}
void __tsan_func_entry(void *p) { (void)p; }
void __tsan_func_exit(void) {}
