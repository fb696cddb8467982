// The order of the tiles of C, for blocks that run at the same time to share tiles in the L2 cache.
#ifndef RASTERIZE_CUH
#define RASTERIZE_CUH

#ifndef GROUP_ROWS
#define GROUP_ROWS 8
#endif

// Rasterization order: return column x and row y of the i-th of `tile_rows` x `tile_columns` tiles of C. The order goes
// down the columns of groups of GROUP_ROWS rows of tiles.
template <typename Count> __device__ int2 rasterize(int i, Count tile_rows, Count tile_columns)
{
    const int group_tiles = GROUP_ROWS * tile_columns, first_row = i / group_tiles * GROUP_ROWS;
    const int rows = min(GROUP_ROWS, tile_rows - first_row);
    return make_int2(i % group_tiles / rows, first_row + i % group_tiles % rows);
}

#endif
