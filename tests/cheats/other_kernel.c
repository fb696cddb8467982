/* expected: a kernel of this package */
#include "matmul/packed.c"
