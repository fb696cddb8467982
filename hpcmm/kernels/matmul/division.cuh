// How the blocks of a persistent kernel divide the tiles of C and their terms (stream-K; Osama, Merrill, Cecka, Garland
// and Owens, PPoPP 2023).
#ifndef DIVISION_CUH
#define DIVISION_CUH

// Steps `from` to `to`, of DEPTH terms each, of a tile of C; empty if `to` is not greater than `from`.
struct Piece {
    int tile, from, to;
};

// A tile whose pieces several blocks compute: its number among the remaining ones, and the first and the last block.
struct Divided {
    int tile, first, last;
};

// How the blocks of the grid divide `tiles` tiles of C, of `steps` steps each.
struct Division {
    int tiles, steps;

    // Full waves: one tile per block. The remaining tiles, none or between one and two per block, are divided by steps.
    __device__ int full_waves() const
    {
        const int blocks = gridDim.x;
        return tiles % blocks == 0 ? tiles / blocks : max(0, tiles / blocks - 1);
    }
    __device__ long long remaining_steps() const
    {
        return (long long)(tiles - full_waves() * (int)gridDim.x) * steps;
    }
    // The first of the remaining steps that a block computes.
    __device__ long long first_step(int block) const
    {
        return remaining_steps() * block / gridDim.x;
    }
    // The block that computes one of the remaining steps.
    __device__ int block_of(long long step) const
    {
        return ((step + 1) * gridDim.x - 1) / remaining_steps();
    }
    // This block's i-th piece.
    __device__ Piece piece(int i) const
    {
        const int block = blockIdx.x, blocks = gridDim.x, whole = full_waves();
        if (i < whole)
            return {i * blocks + block, 0, steps};
        const long long first = first_step(block), end = first_step(block + 1);
        const long long tile = first / steps + (i - whole), start = tile * steps;
        return {whole * blocks + (int)tile, (int)max(first - start, 0LL), (int)min(end - start, (long long)steps)};
    }
    // The tile of a piece of less than all steps.
    __device__ Divided divided(const Piece &piece) const
    {
        const int tile = piece.tile - full_waves() * (int)gridDim.x;
        return {tile, block_of((long long)tile * steps), block_of((long long)(tile + 1) * steps - 1)};
    }
};

// Count the sums of a piece that this block has published; return whether they are the last of their tile. `done` has
// the number of blocks that have finished their piece of each tile; 0 between launches.
__device__ inline bool is_last(unsigned int *done, const Divided &of)
{
    __shared__ bool all;
    __threadfence();  // the sums are visible before they are counted
    __syncthreads();
    if (threadIdx.x == 0) {
        all = atomicAdd(&done[of.tile], 1u) == of.last - of.first;
        if (all)
            done[of.tile] = 0;
    }
    __syncthreads();
    if (!all)
        return false;
    __threadfence();
    return true;
}

#endif
