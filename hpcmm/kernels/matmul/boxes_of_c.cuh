// A consumer's part of C, 64 x COLUMNS elements, goes through C_BOXES boxes of 64 x 64 in shared memory: TMA reads the
// old C and writes the new one, while the consumer fills the other half of the boxes.
#ifndef BOXES_OF_C_CUH
#define BOXES_OF_C_CUH

#include "matmul/boxes.cuh"

constexpr int C_BOX = 64 * ROW_BYTES, Q = COLUMNS / BOX_COLUMNS;  // bytes of a box; boxes of a tile
constexpr int ROUND = C_BOXES < 4 ? 1 : C_BOXES / 2;  // boxes that are filled between two barriers
static_assert(Q % C_BOXES == 0 && C_BOXES % ROUND == 0, "each box is used equally often");

struct BoxesOfC {
    unsigned char *boxes;
    unsigned long long *full;  // an mbarrier for each box: it holds the old C
    int barrier;               // named barrier of the consumer
    int thread;                // of the consumer's 128
    int parity = 0;

    __device__ unsigned char *box(int q) const
    {
        return boxes + q % C_BOXES * C_BOX;
    }

    // Start to read box q of a tile. Called by one thread.
    __device__ void read(const TensorMap &map, int row, int column, int q)
    {
        mbarrier_arrive_expect_tx(&full[q % C_BOXES], C_BOX);
        cp_async_bulk_tensor_shared_global(box(q), map, column + q * BOX_COLUMNS, row, &full[q % C_BOXES]);
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

    // C = alpha sums + beta C; beta = 0: C is not read. `start` was called if TMA can take C and beta is not 0.
    __device__ void update(const float (&sums)[COLUMNS / 8][4], float alpha, float beta, const TensorMap &map,
                           const Matrix &c, bool by_tma, int row, int column)
    {
        if (beta != 0)
            update_boxes<true>(sums, alpha, beta, map, c, by_tma, row, column);
        else
            update_boxes<false>(sums, alpha, beta, map, c, by_tma, row, column);
    }

    template <bool READ>
    __device__ void update_boxes(const float (&sums)[COLUMNS / 8][4], float alpha, float beta, const TensorMap &map,
                                 const Matrix &c, bool by_tma, int row, int column)
    {
        const int lane = thread % 32, first = thread / 32 * 16 + lane % 16;
#pragma unroll
        for (int round = 0; round < Q; round += ROUND) {
            if (!READ || !by_tma) {
                if (by_tma && thread == 0)
                    cp_async_bulk_wait_group_read<C_BOXES / ROUND - 1>();
                barrier_sync(barrier, 128);  // the boxes are free
                if (READ) {
                    for (int q = round; q < round + ROUND; ++q)
                        copy_box(box(q), 64, c, row, column + q * BOX_COLUMNS, thread, 128);
                    barrier_sync(barrier, 128);
                }
            }
#pragma unroll
            for (int q = round; q < round + ROUND; ++q) {
                if (READ && by_tma)
                    mbarrier_wait(&full[q % C_BOXES], parity);
                // A lane's part of a matrix of 8 x 8 elements is a pair of neighbours, for ldmatrix and stmatrix as for
                // sums.
                unsigned pairs[4][4] = {};
#pragma unroll
                for (int i = 0; READ && i < 4; ++i)
                    ldmatrix_x4(pairs[i], chunk_of(box(q), first, 2 * i + lane / 16));
#pragma unroll
                for (int i = 0; i < 4; ++i) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const float *const pair = &sums[q * 8 + 2 * i + j / 2][j % 2 * 2];
                        const unsigned old = pairs[i][j];
                        pairs[i][j] = READ ? to_pair(alpha * pair[0] + beta * to_float(old & 0xffff),
                                                     alpha * pair[1] + beta * to_float(old >> 16))
                                           : to_pair(alpha * pair[0], alpha * pair[1]);
                    }
                    stmatrix_x4(chunk_of(box(q), first, 2 * i + lane / 16), pairs[i]);
                }
            }
            fence_proxy_async();
            barrier_sync(barrier, 128);
            if (!by_tma)
                for (int q = round; q < round + ROUND; ++q)
                    store_box(box(q), c, row, column + q * BOX_COLUMNS);
            else if (thread == 0) {
#pragma unroll
                for (int q = round; q < round + ROUND; ++q)
                    cp_async_bulk_tensor_global_shared(map, column + q * BOX_COLUMNS, row, box(q));
                cp_async_bulk_commit_group();
                if (READ && round + C_BOXES < Q) {
                    cp_async_bulk_wait_group_read<0>();
                    for (int q = round; q < round + ROUND; ++q)
                        read(map, row, column, q + C_BOXES);
                }
            }
            if ((round + ROUND) % C_BOXES == 0)
                parity ^= 1;
        }
    }

    // Store a box by threads: TMA cannot take rows that are no multiple of 16 bytes.
    __device__ void store_box(unsigned char *box, const Matrix &c, int row, int column)
    {
#pragma unroll 1
        for (int i = thread; i < 64 * BOX_COLUMNS; i += 128) {
            const int y = i / BOX_COLUMNS, x = i % BOX_COLUMNS;
            if (row + y < c.rows && column + x < c.columns)
                ((Element *)c.elements)[(size_t)(row + y) * c.ld + column + x].bits =
                    ((const Chunk *)chunk_of(box, y, x / 8))->of[x % 8];
        }
    }
};

#endif
