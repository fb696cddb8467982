// Arrays of pointers to rows
double ** multiply(double **A, double **B, int rowsA, int colsA, int colsB)
{
    double **C = new double *[rowsA];
    for (int i = 0; i < rowsA; ++i) C[i] = new double[colsB];
    for (int i = 0; i < rowsA; i++)
        for (int j = 0; j < colsB; j++) {
            C[i][j] = 0;
            for (int k = 0; k < colsA; k++) C[i][j] += A[i][k] * B[k][j];
        }
    return C;
}
