// Asynchronous copies of a thread for the CPU: cp.async where sizes allow it.
#pragma once

namespace cuda_on_host::api {
NOT_INSTRUMENTED __forceinline__ void __pipeline_memcpy_async(void *target, const void *source, size_t size, size_t zeros = 0)
{
    size_t part = 16;
    while (part > 4 && (size | zeros | (uintptr_t)target | (uintptr_t)source) % part)
        part /= 2;
    if ((size | zeros | (uintptr_t)target | (uintptr_t)source) % part)
        cuda_stop("an asynchronous copy of a size or at an address that is no multiple of 4", 0);
    for (size_t i = 0; i < size; i += part)
        cuda_cp_async((char *)target + i, (const char *)source + i, part, i + zeros < size ? part : 0);
}
inline void __pipeline_commit() { cuda_cp_async_commit_group(); }
inline void __pipeline_wait_prior(size_t groups) { cuda_cp_async_wait_group(groups); }
}  // namespace cuda_on_host::api
