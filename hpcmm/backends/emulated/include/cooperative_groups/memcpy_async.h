// Asynchronous copies by a block for the CPU: each thread copies its part.
#pragma once
#include <cooperative_groups.h>
#include <cuda_pipeline.h>

namespace cooperative_groups {
template <class G_> NOT_INSTRUMENTED __forceinline__ void cuda_copy(const G_ &group, void *target, const void *source, size_t bytes)
{
    for (size_t i = 4 * group.thread_rank(); i < bytes; i += 4 * group.size())
        __pipeline_memcpy_async((char *)target + i, (const char *)source + i, 4);
}
template <class G_, class T_> __forceinline__ void memcpy_async(const G_ &group, T_ *target, const T_ *source, size_t bytes)
{
    cuda_copy(group, target, source, bytes);
    __pipeline_commit();
}
template <class G_> void wait(const G_ &group)
{
    __pipeline_wait_prior(0);
    group.sync();
}
template <unsigned PRIOR_, class G_> void wait_prior(const G_ &group)
{
    __pipeline_wait_prior(PRIOR_);
    group.sync();
}
}  // namespace cooperative_groups
