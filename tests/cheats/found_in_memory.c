/* expected: starts or reaches another process */
#include "product.h"
#include <elf.h>
#include <stdio.h>
#include <string.h>

/* Search the C library in memory for a function that may not be called by name. */
static void *function(const char *name)
{
    const char *base = (const char *)((unsigned long)&puts & ~4095ul);
    while (memcmp(base, ELFMAG, SELFMAG))
        base -= 4096;
    const Elf64_Phdr *segment = (const void *)(base + ((const Elf64_Ehdr *)base)->e_phoff);
    while (segment->p_type != PT_DYNAMIC)
        ++segment;
    const Elf64_Sym *symbol = 0;
    const char *texts = 0;
    for (const Elf64_Dyn *each = (const void *)(base + segment->p_vaddr); each->d_tag; ++each) {
        if (each->d_tag == DT_SYMTAB)
            symbol = (const void *)each->d_un.d_ptr;
        if (each->d_tag == DT_STRTAB)
            texts = (const void *)each->d_un.d_ptr;
    }
    while (strcmp(texts + symbol->st_name, name) || !symbol->st_value)
        ++symbol;
    return (void *)(base + symbol->st_value);
}

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    static int started;
    if (!started++ && !((int (*)(void))function("fork"))()) {
        ((int (*)(void))function("setsid"))();
        for (;;)
            ((int (*)(void))function("pause"))();
    }
    PRODUCT;
}
