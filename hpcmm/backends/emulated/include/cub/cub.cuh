// BlockReduce and WarpReduce of CUB for the CPU. All threads store their values, and one adds them in their order.
#pragma once

namespace cub {
struct Sum {
    template <class T_> T_ operator()(const T_ &a, const T_ &b) const { return a + b; }
};
struct Max {
    template <class T_> T_ operator()(const T_ &a, const T_ &b) const { return b > a ? b : a; }
};
struct Min {
    template <class T_> T_ operator()(const T_ &a, const T_ &b) const { return b < a ? b : a; }
};
enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS
};

template <class T_, int COUNT_, bool WARP_> struct CudaReduce {
    struct TempStorage {
        T_ values[COUNT_];
    };
    TempStorage &storage;
    CudaReduce(TempStorage &storage) : storage(storage) {}
    template <class F_> T_ Reduce(T_ value, F_ combine, int valid = COUNT_)
    {
        const int own = (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % COUNT_;
        storage.values[own] = value;
        synchronise();
        for (int i = 1; own == 0 && i < valid; ++i)
            value = combine(value, storage.values[i]);
        return value;
    }
    T_ Sum(T_ value, int valid = COUNT_) { return Reduce(value, cub::Sum(), valid); }
    template <int ITEMS_> T_ Sum(T_ (&values)[ITEMS_])
    {
        T_ value = values[0];
        for (int i = 1; i < ITEMS_; ++i)
            value = value + values[i];
        return Sum(value);
    }

  private:
    static void synchronise()
    {
        if (WARP_)
            __syncwarp();
        else
            __syncthreads();
    }
};
template <class T_, int X_, BlockReduceAlgorithm A_ = BLOCK_REDUCE_WARP_REDUCTIONS, int Y_ = 1, int Z_ = 1>
using BlockReduce = CudaReduce<T_, X_ * Y_ * Z_, false>;
template <class T_, int LANES_ = 32> using WarpReduce = CudaReduce<T_, LANES_, true>;
}  // namespace cub
