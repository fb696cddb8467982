// Replaces the header of the C library: a failed assertion is an error of the kernel, and does not end the process.
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition) ((condition) ? (void)0 : cuda_on_host::cuda_stop("assert(" #condition ")", __LINE__))
#endif
