// Matrix product, GPU rung: seven products of quarters instead of eight (Strassen's algorithm in Winograd's form).
//
// Compared with best, whose kernels compute the products, a product of matrices of 2 x 2 blocks takes seven products of
// blocks and 15 additions of blocks, not eight products. An addition only moves memory. Each of three kernels here reads
// the quarters of its matrix once: sums_a and sums_b write the seven left and right factors, matmul adds up the seven
// products and applies alpha and beta. That moves less memory than 15 additions one by one with two temporaries, for
// the price of more workspace: 7/4 of A, B and C.
//
// Rows of A and columns of B are scaled by powers of two to maxima of 1 to 2, so that small rows do not get the errors
// of large ones. Factors are padded with zeros to whole multiples, so the matrices may have any size.
//
// Error: with f(k) u max|a| max|b| for a product of k terms, one level of Winograd's form has 18 f(k / 2) + 89 k / 2
// (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 23.2.2): the factors of a product have up to 3 and 4
// times the largest element, and a quarter of C adds up products of (1 1) + (3 3) + (2 2) + (4 1) = 18 times. Here
// max|a| is that of a row and max|b| that of a column, because of the scaling. The bound is not componentwise: an
// element of C that is much smaller than these maxima may lose all of its digits. NaN and infinities spread.
//
// Limit: with few terms an addition costs more than an eighth of the products. It pays from about 8192.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: seven products of quarters instead of eight (Strassen's algorithm in Winograd's form)
//   dtypes: [float32, float64, bfloat16]
//   arithmetic: {float32: Strassen once, float64: Strassen once, bfloat16: Strassen once}
//   architecture: sm_90

#include "matmul/strassen.cuh"
