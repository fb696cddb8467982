// 12. Tensor cores.
//
// Task: a warp computes 16 x 8 elements of C in float64, in steps of 8 terms, with mma_m16n8k8_f64(c, a, b).
// Hints: the lanes of the warp hold the operands together. With g = lane / 4 and t = lane % 4 a lane holds
//   a[0 .. 3]: rows g, g + 8, g, g + 8 in columns t, t, t + 4, t + 4
//   b[0 .. 1]: rows t, t + 4 in column g
//   c[0 .. 3]: rows g, g, g + 8, g + 8 in columns 2 t, 2 t + 1, 2 t, 2 t + 1
// All lanes must call it, those outside C too; elements outside A and B are zeros. The next steps are shared memory and
// several products per warp, as in the rung tensor_core.
//
// hpcmm:
//   operation: matmul
//   dtypes: [float64]
//   block: 32
//   rows: 16
//   columns: 8
//   architecture: sm_80

#include "ptx.cuh"

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    double c[4] = {};
    for (int start = 0; start < k; start += 8) {
        double a[4] = {}, b[2] = {};
        for (int i = 0; i < 4; ++i) {
            const int row = first_row + g + i % 2 * 8, p = start + t + i / 2 * 4;
            a[i] = row < m && p < k ? A[(size_t)row * lda + p] : 0;
        }
        for (int i = 0; i < 2; ++i) {
            const int p = start + t + i * 4, column = first_column + g;
            b[i] = p < k && column < n ? B[(size_t)p * ldb + column] : 0;
        }
        mma_m16n8k8_f64(c, a, b);
    }
    for (int i = 0; i < 4; ++i) {
        const int row = first_row + g + i / 2 * 8, column = first_column + 2 * t + i % 2;
        if (row < m && column < n) {
            REAL &to = C[(size_t)row * ldc + column];
            to = beta == 0 ? alpha * c[i] : alpha * c[i] + beta * to;
        }
    }
}
