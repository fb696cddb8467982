/* expected: includes "matmul/packed.c" */
#include "matmul/packed.c"
