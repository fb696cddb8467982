// bfloat16 for the CPU, as float16.
#pragma once
#include "cuda_fp16.h"

namespace cuda_on_host::api {
CUDA_16_BITS(__nv_bfloat16, __nv_bfloat162, ptx::cuda_to_bf16, ptx::cuda_bf16, bfloat16, bfloat16, bfloat162, bfloat162, halves2bfloat162)
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
}  // namespace cuda_on_host::api
