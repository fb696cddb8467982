// Headers that the host has not, or stands in for
#include <cublas_v2.h>
#include <cub/cub.cuh>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <mma.h>
#include <torch/extension.h>
using namespace nvcuda;
__global__ void warm_up() { extern __shared__ int s[]; }
