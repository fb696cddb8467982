#include <thread>
#include <vector>

void product(const float *A, const float *B, float *C, int m, int n, int k)
{
    std::vector<std::thread> threads;
    int rows = m / 4;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([=] {
            for (int i = t * rows; i < (t + 1) * rows; ++i)
                for (int j = 0; j < n; ++j) {
                    float sum = 0;
                    for (int p = 0; p < k; ++p)
                        sum += A[i * k + p] * B[p * n + j];
                    C[i * n + j] = sum;
                }
        });
    for (auto &each : threads)
        each.join();
}
