// Launch a kernel of a library, by its address. Compiled for each list of types of PARAMETERS, apart from all kernels, so
// that a kernel's file cannot change what launches it.
#define CUDA_ON_HOST_RUNTIME
#include "cuda_on_host.h"

#include <dlfcn.h>

using namespace cuda_on_host;

namespace {

// A parameter of a class: as many bytes, at the same alignment
template <int BYTES, int ALIGNMENT> struct __attribute__((aligned(ALIGNMENT))) Value {
    char bytes[BYTES];
};

// Call a kernel with the addresses of its arguments, as cuLaunchKernel does.
template <class... P> struct Call {
    Call(void (*kernel)(P...), P... arguments) { kernel(arguments...); }
};
template <class... P> void call(void (*kernel)(P...), void **arguments)
{
    Call<P...>{kernel, *(P *)*arguments++...};  // braces keep the order
}

void (*kernel)(PARAMETERS);

void run_thread(void **arguments) { call(kernel, arguments); }

}  // namespace

// `place`: that of the kernel relative to cuda_parameters, which begins with the blocks of a cluster
extern "C" const char *launch(void *library, ptrdiff_t place, void **arguments, const Launch *launch)
{
    char *const parameters = (char *)dlsym(library, "cuda_parameters");
    kernel = (void (*)(PARAMETERS))(parameters + place);
    uint3 cluster;
    memcpy(&cluster, parameters, sizeof cluster);
    char *const shared = (char *)dlsym(library, "cuda_any_shared"), *const dynamic = (char *)dlsym(library, "cuda_dynamic_memory");
    return cuda_launch(run_thread, arguments, launch, shared, dynamic, cluster);
}
