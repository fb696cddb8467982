// Matrices are structures, and a declaration comes first
typedef struct { int width; int height; float *elements; } Matrix;
__global__ void product(Matrix, Matrix, Matrix);
__global__ void product(Matrix A, Matrix B, Matrix C)
{
    float value = 0;
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    for (int e = 0; e < A.width; ++e)
        value += A.elements[row * A.width + e] * B.elements[e * B.width + col];
    C.elements[row * C.width + col] = value;
}
