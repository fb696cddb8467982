// Cooperative groups for the CPU: blocks, and tiles of a warp. A grid cannot be synchronised.
#pragma once

namespace cooperative_groups {
using cuda_on_host::WARP;
using cuda_on_host::cuda_bits;
using cuda_on_host::cuda_lane;
using cuda_on_host::cuda_shuffle;
using dim3 = cuda_on_host::api::dim3;
#define CUDA_PLACE __builtin_return_address(0)
#define CUDA_GROUP CUDA_OF_WARP

inline unsigned cuda_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline unsigned cuda_threads() { return blockDim.x * blockDim.y * blockDim.z; }

// A block, or neighbouring lanes of a warp.
class thread_group {
  protected:
    unsigned first = 0, count = cuda_threads();  // threads of the block
    bool whole = true;                           // the block
    unsigned mask() const { return (count >= 32 ? ~0u : (1u << count) - 1) << first % WARP; }

  public:
    thread_group() = default;
    thread_group(unsigned first, unsigned count) : first(first), count(count), whole(false) {}
    unsigned thread_rank() const { return cuda_thread() - first; }
    unsigned size() const { return count; }
    unsigned num_threads() const { return count; }
    void sync(int line = __builtin_LINE()) const
    {
        if (whole)
            cuda_on_host::cuda_block_barrier(line);
        else
            cuda_on_host::cuda_warp_exchange(mask(), 0);
    }
};
class thread_block : public thread_group {
  public:
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
class lanes_of_warp : public thread_group {
  public:
    using thread_group::thread_group;
    unsigned meta_group_rank() const { return cuda_thread() / count; }
    unsigned meta_group_size() const { return (cuda_threads() + count - 1) / count; }
    template <class T_> CUDA_GROUP T_ shfl(T_ x, int rank) const { return from(x, first % WARP + rank % count, CUDA_PLACE); }
    template <class T_> CUDA_GROUP T_ shfl_down(T_ x, unsigned by) const
    {
        return from(x, thread_rank() + by < count ? cuda_lane() + by : cuda_lane(), CUDA_PLACE);
    }
    template <class T_> CUDA_GROUP T_ shfl_up(T_ x, unsigned by) const
    {
        return from(x, thread_rank() >= by ? cuda_lane() - by : cuda_lane(), CUDA_PLACE);
    }
    template <class T_> CUDA_GROUP T_ shfl_xor(T_ x, unsigned by) const
    {
        return from(x, (thread_rank() ^ by) < count ? cuda_lane() ^ by : cuda_lane(), CUDA_PLACE);
    }
    unsigned ballot(int predicate) const { return __ballot_sync(mask(), predicate) >> first % WARP; }
    int any(int predicate) const { return __any_sync(mask(), predicate); }
    int all(int predicate) const { return __all_sync(mask(), predicate); }
    // The combination of the values of all lanes in their order.
    template <class T_, class F_> CUDA_GROUP T_ combined(T_ x, F_ combine) const
    {
        const uint64_t *const values = cuda_on_host::cuda_warp_exchange(mask(), cuda_bits<uint64_t>(x), CUDA_PLACE);
        const unsigned lanes = cuda_on_host::cuda_lanes();
        bool any = false;
        for (int lane = 0; lane < WARP; ++lane)
            if (lanes >> lane & 1) {
                x = any ? combine(x, cuda_bits<T_>(values[lane])) : cuda_bits<T_>(values[lane]);
                any = true;
            }
        return x;
    }

  private:
    template <class T_> NOT_INSTRUMENTED T_ from(T_ x, int source, void *place) const
    {
        return cuda_bits<T_>(cuda_shuffle(mask(), cuda_bits<uint64_t>(x), source, place));
    }
};
template <unsigned N_, class Parent = void> class thread_block_tile : public lanes_of_warp {
    static_assert(N_ <= 32 && (N_ & (N_ - 1)) == 0, "tiles of several warps are not modelled on the host");

  public:
    thread_block_tile() : lanes_of_warp(cuda_thread() / N_ * N_, N_) {}
    template <class Other> thread_block_tile(const thread_block_tile<N_, Other> &) : thread_block_tile() {}
};
class coalesced_group : public lanes_of_warp {  // of one lane, the minimum that a device may return
  public:
    coalesced_group() : lanes_of_warp(cuda_thread(), 1) {}
};
class grid_group {
  public:
    unsigned long long thread_rank() const { return block_rank() * cuda_threads() + cuda_thread(); }
    unsigned long long block_rank() const { return blockIdx.x + gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z); }
    unsigned long long num_blocks() const { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
    unsigned long long num_threads() const { return num_blocks() * cuda_threads(); }
    unsigned long long size() const { return num_threads(); }
    bool is_valid() const { return false; }
    void sync(int line = __builtin_LINE()) const { cuda_on_host::cuda_stop("grid.sync() without a cooperative launch", line); }
};

inline thread_block this_thread_block() { return {}; }
inline grid_group this_grid() { return {}; }
inline coalesced_group coalesced_threads() { return {}; }
template <unsigned N_, class Group> thread_block_tile<N_, Group> tiled_partition(const Group &) { return {}; }
inline thread_group tiled_partition(const thread_group &, unsigned n) { return {cuda_thread() / n * n, n}; }
template <class Group> void sync(const Group &group, int line = __builtin_LINE()) { group.sync(line); }

template <class T_> struct plus { T_ operator()(T_ x, T_ y) const { return x + y; } };
template <class T_> struct less { T_ operator()(T_ x, T_ y) const { return y < x ? y : x; } };
template <class T_> struct greater { T_ operator()(T_ x, T_ y) const { return x < y ? y : x; } };
template <class T_> struct bit_and { T_ operator()(T_ x, T_ y) const { return x & y; } };
template <class T_> struct bit_or { T_ operator()(T_ x, T_ y) const { return x | y; } };
template <class T_> struct bit_xor { T_ operator()(T_ x, T_ y) const { return x ^ y; } };
template <class T_, class F_> T_ reduce(const lanes_of_warp &group, T_ x, F_ combine) { return group.combined(x, combine); }
}  // namespace cooperative_groups
