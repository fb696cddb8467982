// Tensor cores by WMMA; the types are macros
#include <mma.h>
using namespace nvcuda;
__global__ void product(TYPE *A, TYPE *B, OUT *C, int M, int N, int K)
{
    int i = blockIdx.y * 16, j = blockIdx.x * 16;
    if (i >= M || j >= N) return;
    wmma::fragment<wmma::accumulator, 16, 16, DEPTH, OUT> c;
    wmma::fragment<wmma::matrix_a, 16, 16, DEPTH, KIND, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, DEPTH, KIND, wmma::row_major> b;
    wmma::fill_fragment(c, 0.0f);
    for (int k = 0; k < K; k += DEPTH) {
        wmma::load_matrix_sync(a, A + i * K + k, K);
        wmma::load_matrix_sync(b, B + k * N + j, N);
        wmma::mma_sync(c, a, b, c);
    }
    wmma::store_matrix_sync(C + i * N + j, c, N, wmma::mem_row_major);
}
int main() { dim3 block(32); product<<<dim3(4, 4), block>>>(a, b, c, 64, 64, 64); }
