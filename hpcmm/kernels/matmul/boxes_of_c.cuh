// A consumer's part of C, 64 x COLUMNS elements, goes through C_BOXES boxes of 64 x 64 in shared memory: TMA reads the
// old C and writes the new one.
#ifndef BOXES_OF_C_CUH
#define BOXES_OF_C_CUH

#include "matmul/boxes.cuh"

constexpr int C_BOX = 64 * ROW_BYTES, Q = COLUMNS / BOX_COLUMNS;  // bytes of a box; boxes of a tile
static_assert(Q % C_BOXES == 0, "each box is used equally often");

struct BoxesOfC {
    unsigned char *boxes;
    unsigned long long *full;  // an mbarrier for each box: it holds the old C
    int barrier;               // named barrier of the consumer
    int thread;                // of the consumer's 128
    int parity = 0;

    // Start to read box q of a tile. Called by one thread.
    __device__ void read(const TensorMap &map, int row, int column, int q)
    {
        mbarrier_arrive_expect_tx(&full[q % C_BOXES], C_BOX);
        cp_async_bulk_tensor_shared_global(boxes + q % C_BOXES * C_BOX, map, column + q * BOX_COLUMNS, row, &full[q % C_BOXES]);
    }

    // Start to read a tile into the boxes; prefetch the part that does not fit into the L2 cache.
    __device__ void start(const TensorMap &map, int row, int column)
    {
        if (thread == 0) {
            cp_async_bulk_wait_group_read<0>();  // TMA has read the previous tile from the boxes
            for (int q = 0; q < C_BOXES; ++q)
                read(map, row, column, q);
            for (int q = C_BOXES; q < Q; ++q)
                cp_async_bulk_prefetch_tensor(map, column + q * BOX_COLUMNS, row);
        }
    }

    // C = alpha sums + beta C. `start` was called if beta is not 0; else C is not read.
    __device__ void update(const float (&sums)[COLUMNS / 8][4], float alpha, float beta, const TensorMap &map, int row,
                           int column)
    {
        const int first = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
        for (int q = 0; q < Q; ++q) {
            unsigned char *const box = boxes + q % C_BOXES * C_BOX;
            if (beta != 0)
                mbarrier_wait(&full[q % C_BOXES], parity);
            else {
                if (thread == 0)
                    cp_async_bulk_wait_group_read<C_BOXES - 1>();
                barrier_sync(barrier, 128);  // the box is free
            }
#pragma unroll
            for (int j = 0; j < 8; ++j)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    unsigned *const c = (unsigned *)chunk_of(box, first + 8 * h, j) + thread % 4;
                    const float(&sum)[4] = sums[q * 8 + j];
                    float x = alpha * sum[2 * h], y = alpha * sum[2 * h + 1];
                    if (beta != 0) {
                        x += beta * to_float(*c & 0xffff);
                        y += beta * to_float(*c >> 16);
                    }
                    *c = to_pair(x, y);
                }
            fence_proxy_async();
            barrier_sync(barrier, 128);
            if (thread == 0) {
                cp_async_bulk_tensor_global_shared(map, column + q * BOX_COLUMNS, row, box);
                cp_async_bulk_commit_group();
                if (beta != 0 && q + C_BOXES < Q) {
                    cp_async_bulk_wait_group_read<0>();
                    read(map, row, column, q + C_BOXES);
                }
            }
            if (q % C_BOXES == C_BOXES - 1)
                parity ^= 1;
        }
    }
};

#endif
