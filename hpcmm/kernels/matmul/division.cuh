// How the blocks of a persistent kernel divide the tiles of C and their terms (stream-K; Osama, Merrill, Cecka, Garland
// and Owens, PPoPP 2023), and how the parts of a tile become one.
#ifndef DIVISION_CUH
#define DIVISION_CUH

// Steps `from` to `to` of a tile of C. There is none where `to` is not after `from`.
struct Piece {
    int tile, from, to;
};

// How the blocks of the grid divide `tiles` tiles of C, of `steps` steps each.
struct Division {
    int tiles, steps;

    // Full waves: one whole tile per block. What is left, none or one to two tiles per block, is divided step by step.
    __device__ int rounds() const
    {
        const int blocks = gridDim.x;
        return tiles % blocks == 0 ? tiles / blocks : max(0, tiles / blocks - 1);
    }
    __device__ long long left() const
    {
        return (long long)(tiles - rounds() * (int)gridDim.x) * steps;
    }
    // The first of the steps left that a block has.
    __device__ long long first_step(int block) const
    {
        return left() * block / gridDim.x;
    }
    // The block that has one of the steps left.
    __device__ int block_of(long long step) const
    {
        return ((step + 1) * gridDim.x - 1) / left();
    }
    // This block's i-th piece.
    __device__ Piece piece(int i) const
    {
        const int block = blockIdx.x, blocks = gridDim.x, whole = rounds();
        if (i < whole)
            return {i * blocks + block, 0, steps};
        const long long first = first_step(block), end = first_step(block + 1);
        const long long tile = first / steps + (i - whole), start = tile * steps;
        return {whole * blocks + (int)tile, (int)max(first - start, 0LL), (int)min(end - start, (long long)steps)};
    }
};

#endif
