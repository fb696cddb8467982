// The ring of pipeline stages of a persistent block with a producer and consumers, which persistent spells out.
#ifndef RING_CUH
#define RING_CUH

#include "ptx.cuh"

template <int STAGE_BYTES, int CONSUMERS> struct Ring {
    unsigned char *stages;             // [STAGES][STAGE_BYTES], in shared memory
    unsigned long long *full, *empty;  // mbarriers of each stage: it has arrived; all consumers have read it
    int stage = 0, parity = 0;         // of the stage that this thread is at

    __device__ Ring(unsigned char *stages, void *mbarriers)
        : stages(stages), full((unsigned long long *)mbarriers), empty(full + STAGES)
    {
    }

    // Initialize the mbarriers. Called by one thread, before a barrier of the block. The producer arrives `arrivals`
    // times at a stage, and each warp of the consumers once.
    __device__ void init(int arrivals)
    {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], arrivals);
            mbarrier_init(&empty[s], CONSUMERS * 4);
        }
        fence_mbarrier_init();
    }

    __device__ void advance()
    {
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        parity ^= stage == 0;
    }

    // Advance from the first stage by at most STAGES.
    __device__ void skip(int stages)
    {
        stage = stages % STAGES;
        parity = stages / STAGES;
    }

    // The number of the stage before the current one.
    __device__ int previous() const
    {
        return stage == 0 ? STAGES - 1 : stage - 1;
    }

    // What follows the mbarriers.
    __device__ void *end() const
    {
        return empty + STAGES;
    }

    // The bytes of the current stage.
    __device__ unsigned char *bytes() const
    {
        return stages + stage * STAGE_BYTES;
    }
};

#endif
