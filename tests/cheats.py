"""Attempts to get points without a solution, or to harm the machine of the teacher.

``CHEATS`` has all by name. Some are whole files in ``cheats/``, which compute a wrong result or a right one in a
forbidden way. The others are written here, as pieces: of C code that returns whether an attack succeeded, and the
kernel is right only then; of C code before a right kernel, where the file must not compile; of heads of a right kernel;
of Python; and of code before a CUDA kernel that is empty.
"""

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("cheats")


class Cheat(NamedTuple):
    """A submission that must not pass.

    Parameters
    ----------
    mechanism : str
        What refuses it, as in the table of ``docs/teachers.md``.
    why : str
        Regular expression of the reason in the grade.
    file, text : str
        Its name and source. ``VICTIM`` stands for a file of the teacher, ``PACKAGE`` for the folder of hpcmm.
    """

    mechanism: str
    why: str
    file: str
    text: str


WRONG, ANY = "wrong result", ""
ALONE = "starts or reaches another process"
INPUTS = "inputs drawn anew, random shapes, guards, comparison of all bytes"
FILES = "the private view of files"
ONE_PROCESS = "the filter: one process"
NAMESPACES = "namespaces"
LIMITS = "limits"
CLOCK = "the CPU clock"
READ = "the list of files that the compiler read"
INTERFACE = "the grader's side of the interface"
LAUNCH = "the launch by libraries of the grader"

HEADERS = """
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
"""
PRODUCT = (FOLDER / "product.h").read_text()
KERNEL = (
    "void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, "
    "int ldc, int threads)\n"
)

SPIN = "static void *spin(void *unused) { for (;;) ; }\nstatic void again(int number) { }\n"

# of all of these: mechanism, reason -> name -> code
# code of a function that returns whether it succeeded, and code before it
ATTACKS = {
    (FILES, WRONG): {
        "delete": "return !unlink(VICTIM);",
        "empty": "return !truncate(VICTIM, 0);",
        "rename": 'return !rename(VICTIM, VICTIM "x") || !rename(VICTIM, "/tmp/x");',
        "chmod": "return !chmod(VICTIM, 0777) || !chown(VICTIM, 1, 1);",
        "link": 'return !link(VICTIM, VICTIM "x") || !symlink("/etc/passwd", VICTIM "y");',
        "write": "return open(VICTIM, O_WRONLY | O_CREAT, 0666) >= 0;",
        "read": 'return open(VICTIM, O_RDONLY) >= 0 || open("/etc/passwd", O_RDONLY) >= 0;',
        "grades": 'return open("grades.json", O_CREAT, 0666) >= 0 || open("../grades.json", O_CREAT, 0666) >= 0;',
        "sitecustomize": """
        const char *const places[] = {".", "/tmp", "/", "/usr/lib/python3", PACKAGE, PACKAGE "/..", 0};
        for (int i = 0; places[i]; ++i) {
            char name[4096];
            snprintf(name, sizeof name, "%s/sitecustomize.py", places[i]);
            if (open(name, O_WRONLY | O_CREAT, 0666) >= 0)
                return 1;
        }
        return 0;""",
        "own module": """return open(PACKAGE "/kernels/matmul/products/packed.c", O_RDONLY) >= 0 ||
            open(PACKAGE "/model/__init__.py", O_RDONLY) >= 0;""",
        "library by name": (
            """for (int i = 0; i < 4; ++i) {
            const char *const names[] = {"libopenblas.so.0", "libblas.so.3", "libmkl_rt.so.2", "libcblas.so.3"};
            if (dlopen(names[i], RTLD_NOW))
                return 1;
        }
        return 0;""",
            "#include <dlfcn.h>",
        ),
        "processes of others": 'return open("/proc/1/environ", 0) >= 0 || open("/proc/self/mountinfo", 0) >= 0;',
        "environment": 'return getenv("HPCMM_SECRET") || getenv("HOME");',
        "shared memory by name": """return shm_open("/hpcmm-left", O_CREAT | O_RDWR, 0666) >= 0 ||
            mq_open("/hpcmm-left", O_CREAT | O_RDWR, 0666, 0) >= 0;""",
        "files without an end": """char name[64]; for (int i = 0; i < 9; ++i) { snprintf(name, 64, "/dev/shm/%d", i);
        if (!mkdir(name, 0777) || !symlink("x", name)) return 1; } return 0;""",
    },
    (NAMESPACES, WRONG): {
        "mount": 'return !unshare(CLONE_NEWUSER) || !unshare(CLONE_NEWNS) || !mount("none", "/tmp", "tmpfs", 0, 0);',
        "remount": 'return !mount(0, "/", 0, MS_REMOUNT | MS_BIND, 0) || !umount2("/dev", MNT_DETACH);',
        "signals to all": "return !kill(-1, SIGKILL) && getppid() != 1;",
        "cores of others": """cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(0, &one);
        return getppid() != 1 && !sched_setaffinity(getppid(), sizeof one, &one);""",
        "priority": "return !setpriority(PRIO_PROCESS, 0, -5);",
        "real time": "struct sched_param most = {1}; return !sched_setscheduler(0, SCHED_FIFO, &most);",
        "network": """struct sockaddr_in at = {AF_INET, htons(22)};
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int file = socket(AF_INET, SOCK_DGRAM, 0);
        at.sin_addr.s_addr = htonl(0x08080808);
        return !connect(file, (void *)&at, sizeof at) && send(file, "x", 1, 0) == 1;""",
        # of a hypervisor, of the kernel, and of its ciphers
        "sockets without a namespace": """
        return socket(40, SOCK_STREAM, 0) >= 0 || socket(16, SOCK_RAW, 0) >= 0 || socket(38, SOCK_DGRAM, 0) >= 0;""",
        # the filter and the first process of the namespace hold also without the signal
        "parent's death": "prctl(PR_SET_PDEATHSIG, 0); return getppid() != 1;",
    },
    (ONE_PROCESS, ALONE): {
        "fork": "if (!fork()) for (;;) pause(); return 1;",
        "daemon": "if (!fork()) { setsid(); if (fork()) _exit(0); for (;;) pause(); } wait(0); return 1;",
        # the parent waits for the child and does not stop
        "deaf to SIGSTOP": "if (!vfork()) for (;;) ; return 1;",
        "clone that shares memory": (
            "return clone(child, malloc(65536) + 65536, CLONE_VM | CLONE_FILES | SIGCHLD, 0) > 0;",
            "static int child(void *unused) { for (;;) ; }",
        ),
        "program": 'char *const no[] = {0}; return execve("/bin/sh", no, no);',
        "memory of the grader": """char byte;
        struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
        return process_vm_writev(getppid(), &here, 1, &there, 1, 0) == 1;""",
        "memory of the first process": """char byte; struct iovec here = {&byte, 1}, there = {(void *)&byte, 1};
        return process_vm_readv(1, &here, 1, &there, 1, 0) >= 0;""",
        "files of the first process": "return syscall(438, syscall(434, 1, 0), 0, 0) >= 0;",
        "debugger": "return !ptrace(PTRACE_ATTACH, getppid(), 0, 0);",
    },
    (ONE_PROCESS, "starts or reaches another process|wrong result"): {
        "system": 'return !system("true");',
    },
    (ONE_PROCESS, "starts or reaches another process|machine"): {
        "fork in machine code": """
        #if defined __x86_64__
        long result;
        __asm__ volatile("syscall" : "=a"(result) : "a"(57) : "rcx", "r11", "memory");
        return result >= 0;
        #else
        return !fork();
        #endif""",
    },
    (ONE_PROCESS, "starts or reaches another process|wrong result|signal"): {
        "second set of system calls": "return syscall(0x40000000 | 57) >= 0;",
    },
    (CLOCK, "computed for .* while its clock was stopped|cannot be stopped: its CPU clock runs on"): {
        # a new one in each call, because a stop discards a signal that is due
        "timer": (
            """static int begun;
        pthread_t thread;
        if (!begun++)
            pthread_create(&thread, 0, spin, 0);
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCONT};
        const struct itimerspec often = {{0, 300000}, {0, 300000}};
        signal(SIGCONT, again);
        timer_create(CLOCK_MONOTONIC, &event, &timer);
        timer_settime(timer, 0, &often, 0);
        return 1;""",
            SPIN,
        ),
    },
    (LIMITS, "took longer than 1 s"): {
        "code before the clock": (
            "return 1;",
            "__attribute__((constructor)) static void first(void) { for (;;) pause(); }",
        ),
        "ignored signals": "for (int i = 1; i < 65; ++i) signal(i, SIG_IGN); for (;;) pause();",
    },
    (INTERFACE, "ended before the kernel returned: exit status 0"): {
        "exit before the clock": ("return 1;", "__attribute__((constructor)) static void first(void) { _exit(0); }"),
        "exit": "_exit(0);",
    },
    (LIMITS, "starts more than 1024 threads|longer than 1 s|wrong result"): {
        "threads": (
            """pthread_attr_t small;
        pthread_attr_init(&small), pthread_attr_setstacksize(&small, 16384);
        pthread_t thread;
        for (long i = 0; i < 1000000; ++i)
            if (pthread_create(&thread, &small, idle, 0))
                return 0;
        return 1;""",
            "static void *idle(void *unused) { for (;;) pause(); }",
        ),
    },
    (LIMITS, WRONG): {
        "memory": "return malloc((size_t)1 << 40) != 0;",
        "shared memory": "return shmget(0x5eed, 1 << 20, IPC_CREAT | 0666) >= 0;",
        "queues of the kernel": """char all[256] = {0};
        return syscall(425, 64, all) >= 0 || !syscall(SYS_io_setup, 8, all) ||
            syscall(SYS_msgget, 0x5eed, 01666) >= 0;""",
        "keys of the kernel": """
        return syscall(SYS_add_key, "user", "hpcmm", "x", 1, -4) >= 0 || syscall(SYS_keyctl, 0, -4, 1) >= 0 ||
            syscall(SYS_request_key, "user", "hpcmm", 0, -4) >= 0;""",
    },
    (LIMITS, "wrong result|SIGXFSZ"): {
        "file in memory": """signal(SIGXFSZ, SIG_IGN); int file = memfd_create("x", 0);
        return !ftruncate(file, 1 << 30) || write(file, "x", 1) == 1;""",
    },
    (INTERFACE, WRONG): {
        "memory taken away": "for (int i = 0; i < 64; ++i) if (!ftruncate(i, 0)) return 1; return 0;",
    },
    (INTERFACE, "ended before the kernel returned: signal SIGABRT"): {
        "abort": "abort();",
    },
    (INTERFACE, "wrote to|wrote outside|wrong result"): {
        "reply": r"""for (int i = 3; i < 64; ++i) (void)!write(i, "\"\"\n", 3); for (volatile long i = 0;
        i < 300000000; ++i) ; return 1;""",
    },
    (INTERFACE, "wrote to the pipe of the grader"): {
        "brackets": r"""static char all[65000];
        memset(all, '[', sizeof all), all[sizeof all - 1] = '\n';
        for (int i = 3; i < 64; ++i)
            (void)!write(i, all, sizeof all);
        return 1;""",
        "number as a reply": r'for (int i = 3; i < 64; ++i) (void)!write(i, "1e999\n", 6); for (;;) pause();',
        "bytes as a reply": r'for (int i = 3; i < 64; ++i) (void)!write(i, "\xff\xfe\n", 3); for (;;) pause();',
    },
    (INTERFACE, "wrote to the pipe of the grader|longer than 1 s"): {
        "endless reply": 'for (;;) for (int i = 3; i < 64; ++i) (void)!write(i, "xxxxxxxxxxxxxxxx", 16);',
    },
}

# C code before a right kernel, where the file must not compile
SOURCES = {
    (READ, "includes|No such file"): {
        "file of the system": '#include "/etc/passwd"',
    },
    (READ, "No such file"): {
        "after a comment in a string": 'const char *s = "/*";\n#include "/etc/passwd"\nconst char *t = "*/";',
        "a splice": '#inc\\\nlude "/etc/pas\\\nswd"',
        "a digraph": '%:include "/etc/passwd"',
        "a macro": '#define FILE_ "/etc/passwd"\n#include FILE_',
        "include_next": "#include_next </etc/passwd>",
    },
    (READ, "No such file|does not compile"): {
        "a trigraph": '??=include "/etc/passwd"\n#include "/etc/passwd"',
    },
    (READ, "No such file|does not compile|text"): {
        "NUL": '\0\n#include "/etc/passwd"',
    },
    (READ, "includes .*; allowed"): {
        "a header that is not one": '#include "/usr/lib/os-release"',
        "the library of C": '__asm__(".section .data\\n.incbin \\"/usr/lib/os-release\\"\\n");',
        "incbin in pieces": '__asm__(".section .data\\n.irp x, bin\\n.inc\\\\x \\"/usr/lib/os-release\\"\\n.endr\\n");',
        "incbin in a section": '__attribute__((section(".data\\n.incbin \\"/usr/lib/os-release\\"\\n#"))) int x = 1;',
        "pretended header of the system": '# 1 "x.h" 1 3\n#pragma GCC system_header\n#include "/usr/lib/os-release"',
    },
    (READ, "file not found|can't open|does not compile"): {
        "incbin": '__asm__(".section .data\\n.incbin \\"/etc/passwd\\"\\n");',
    },
    (READ, "does not compile"): {
        "include of the assembler": '__asm__(".section .data\\n.include \\"/etc/passwd\\"\\n.error \\"x\\"\\n");',
    },
    (FILES, "does not compile"): {
        "line of another file": '#line 1 "/etc/passwd"\n#error shown',
    },
    (READ, "No such file|includes"): {
        "own kernel": '#include "PACKAGE/kernels/matmul/products/packed.c"',
        "own kernel by a relative path": "#include <matmul/products/packed.c>",
        "own header": '#include "evict.c"',
    },
    (READ, "does not compile|includes"): {
        "module of the build": '__asm__(".incbin \\"PACKAGE/kernels/matmul/products/packed.c\\"");',
    },
    (LIMITS, "does not compile"): {
        "a large file": '__asm__(".section .data\\n.fill 0x1000000000, 1, 1\\n");',
    },
    (LIMITS, "does not compile|longer than"): {
        "a large array": "char all[1ul << 36] = {1};",
        "errors without an end": "".join(f"#define W{i + 1} {f'W{i} ' * 8}\n" for i in range(5)).replace(
            "W0", '_Pragma("GCC warning \\"x\\"")'
        )
        + "W5\n#error e",
        "memory of the compiler": "".join(f"#define A{i + 1} A{i} A{i} A{i} A{i}\n" for i in range(20)).replace(
            "A0 ", "0, "
        )
        + "int all[] = {A20};",
    },
    (READ, "nested depth|does not compile"): {
        "itself": "#include __FILE__",
    },
}

# Heads, between "hpcmm:" and a right kernel
HEADS = {
    (INTERFACE, ANY): {
        "number as a key": "5: 1",
        "number as a constant": "constants: {1: 2}",
        "list as a key": "? [1, 2]\n: 3",
        "brackets": "dtypes: " + "[" * 20000,
        "no keys": "- 1",
        "null": "constants: null",
        "tag": "dtypes: !!python/object/apply:os.system [touch /tmp/x]",
        "aliases": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b, *b]",
        "options": "options: [-fplugin=/tmp/x.so]",
        "large number": "constants: {A: 1" + "0" * 5000 + "}",
        "another call": "call: product(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)",
        "a part of the exercise": "scalars: none",
        "some shapes": "multiples: {m: 32, n: 32, k: 32}",
        "macro that is text": 'constants: {"REAL=double -include /etc/passwd": 1}',
    },
}

PYTHON = {
    (ONE_PROCESS, "starts or reaches another process|raised"): {
        "other process": "import os\nos.system('true')",
        "subprocess": "import subprocess\nsubprocess.run(['true'])",
    },
    (ONE_PROCESS, ALONE): {
        "fork": "import os\nos.fork()",
    },
    (FILES, "raised (FileNotFound|Permission|OS)Error"): {
        "file of the teacher": "open('VICTIM').read()",
        "write": "open('VICTIM', 'a').write('x')",
    },
    (FILES, "raised ModuleNotFoundError: No module named 'hpcmm'"): {
        "package": "import hpcmm",
    },
    (INTERFACE, "ended before the kernel returned"): {
        "exit": "import os\nos._exit(0)",
        "system exit": "raise SystemExit",
        "keyboard": "raise KeyboardInterrupt",
    },
    (INTERFACE, "raised RecursionError|ended before"): {
        "recursion": "def f(): f()\nf()",
    },
    (INTERFACE, "raised|ended"): {
        "error without text": "class E(Exception):\n    __str__ = lambda self: 1\nraise E",
    },
    (INTERFACE, WRONG): {
        "no result": "C = A @ B",
    },
    (INTERFACE, "wrote to its input"): {
        "input": "A[0, 0] = 1",
    },
    (LIMITS, "raised (numpy.*)?.*MemoryError"): {
        "memory": "import numpy\nnumpy.ones(1 << 40)",
    },
    (NAMESPACES, "raised (Permission|OS)Error"): {
        "network": "import socket\nsocket.create_connection(('8.8.8.8', 53), 1)",
    },
    (INTERFACE, "wrong result|raised|ended|wrote to"): {
        "harness": "import sys\nsys.modules['__main__'].PythonFunction.__call__ = lambda *_: ''",
    },
}

# Code before a CUDA kernel that is empty: PRODUCT, a function of its arguments, has the result
EMPTY = """
extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc) {}
"""
ON_HOST = """
#define HOST __attribute__((no_sanitize("thread", "undefined"), no_sanitize_coverage))
static HOST void product(void **v)
{
    const int m = *(int *)v[0], n = *(int *)v[1], k = *(int *)v[2];
    const REAL alpha = *(REAL *)v[3], beta = *(REAL *)v[8], *A = *(REAL **)v[4], *B = *(REAL **)v[6];
    const int lda = *(int *)v[5], ldb = *(int *)v[7], ldc = *(int *)v[10];
    REAL *const C = *(REAL **)v[9];
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            REAL sum = 0;
            for (int p = 0; p < k; ++p)
                sum += A[(size_t)i * lda + p] * B[(size_t)p * ldb + j];
            REAL &c = C[(size_t)i * ldc + j];
            c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
        }
}
extern "C" HOST void fill() { product(nullptr); }
"""
BEFORE = "has code that runs before a launch"
ASSEMBLY = "contains assembly|cannot be graded on this machine: needs a GPU: inline PTX"
TYPES = "int, int, int, REAL, const REAL *, int, const REAL *, int, REAL, REAL *, int"
LAUNCHES = {
    (LAUNCH, "has no function matmul"): {
        "macro of the launch": """#undef CUDA_ON_HOST
        #define CUDA_ON_HOST(...) extern "C" HOST const char *launch(void *, long, void **v, void *) \\
        { product(v); return nullptr; } extern "C" int parameter_sizes(int *) { return 11; }""",
    },
    (LAUNCH, WRONG): {
        "macro that launches another function": f"""static void other({TYPES}) {{ fill(); }}
        #define matmul_ other
        #undef CUDA_ON_HOST
        #define CUDA_ON_HOST(kernel, ...) namespace cuda_on_host {{ \\
            extern "C" __attribute__((section(".cuda_parameters"), used)) const auto cuda_parameters = \\
            cuda_parameters_of(::matmul_, uint3{{__VA_ARGS__}}); }}""",
        "macro of a name of the header": f"""static void other({TYPES}) {{ fill(); }}
        #define cuda_parameters_of(kernel, ...) cuda_parameters_of(::other, __VA_ARGS__)""",
        "overload of a function of the header": f"""namespace cuda_on_host {{
        struct Own {{ unsigned all[4 + 33]; }};
        constexpr Own cuda_parameters_of(void (*)({TYPES}), uint3)
        {{ return {{{{1, 1, 1, 11, 4, 4, 0, 4, 4, 0, 4, 4, 0, 4, 4, 1, 8, 8, 0, 4, 4, 0, 8, 8, 0, 4, 4, 0, 4, 4, 1,
            8, 8, 0, 4, 4, 0}}}}; }}
        template <class... P> void cuda_call(void (*)(P...), void **v) {{ product(v); }}
        }}""",
    },
    (LAUNCH, "has no function matmul|does not compile"): {
        "macro of a keyword": "#define auto static",
    },
    (LAUNCH, "receive arguments of"): {
        "parameters of other types": "static void other(int) { fill(); }\n"
        "#define cuda_parameters_of(kernel, ...) cuda_parameters_of(::other, __VA_ARGS__)",
    },
    (LAUNCH, "parameters"): {
        "parameters without an end": f"""namespace cuda_on_host {{
        struct Own {{ unsigned all[7]; }};
        constexpr Own cuda_parameters_of(void (*)({TYPES}), uint3)
        {{ return {{{{1, 1, 1, 1, 1u << 31, 3, 2}}}}; }}
        }}""",
    },
    (LAUNCH, "defines cuda_launch"): {
        "function of the emulation": """namespace cuda_on_host {
        extern "C" const char *cuda_launch(void (*)(void **), void **v, const Launch *, char *, char *, uint3)
        { product(v); return nullptr; } }""",
    },
    (LAUNCH, "defines cuda_block_barrier"): {
        "weak function of the emulation": """
        namespace cuda_on_host { extern "C" __attribute__((weak)) void cuda_block_barrier(int) { fill(); } }""",
    },
    (LAUNCH, "defines __tsan_func_entry"): {
        "hook of the compiler": """
        extern "C" HOST __attribute__((visibility("hidden"))) void __tsan_func_entry(void *) { fill(); }""",
    },
    (LAUNCH, "defines __tsan_func_exit"): {
        "weak hook of the compiler": """extern "C" HOST __attribute__((weak)) void __tsan_func_exit() { fill(); }""",
    },
    (LAUNCH, "defines __sanitizer_cov_trace_pc"): {
        "hook by an alias": """extern "C" void __sanitizer_cov_trace_pc() __attribute__((alias("fill")));""",
    },
    (LAUNCH, "calls cuda_launch, which a GPU does not have"): {
        "call of a launch": """extern "C" void twice()
        { cuda_on_host::cuda_launch(nullptr, nullptr, nullptr, nullptr, nullptr, {1, 1, 1}); }""",
    },
    (LAUNCH, BEFORE): {
        "constructor": "__attribute__((constructor)) static void first() { fill(); }",
        "destructor": "__attribute__((destructor)) static void last() { fill(); }",
        "function of the linker": """extern "C" void _init() { fill(); }""",
        "initialization of a variable": "static int filled = (fill(), 1);",
        "constructor of a class": "struct First { First() { fill(); } ~First() { fill(); } } first;",
        "list of constructors": """__attribute__((section(".init_array"), used)) void (*const first)() = fill;""",
        "function that is chosen at the load": """extern "C" void (*choose())() { fill(); return fill; }
        extern "C" void chosen() __attribute__((ifunc("choose")));
        extern "C" void use() { chosen(); }""",
    },
    (LAUNCH, ASSEMBLY): {
        "symbol in assembly": 'asm(".globl __tsan_func_entry; .set __tsan_func_entry, fill");',
        "macro of the assembler": 'asm(".macro ret; jmp fill; .endm");',
        "local hook of the compiler": """
        static HOST void hook(void *) __asm__("__tsan_func_entry");
        static HOST void hook(void *) { fill(); }
        void (*use)(void *) = hook;""",
        "system call": '__device__ void f() { __asm__ volatile("syscall"); }\nvoid (*use)() = f;',
        "assembly in the name of a section": '__attribute__((section(".data\\n.macro ret\\n.endm\\n#"))) int x = 1;',
    },
    (LAUNCH, "does not compile|has no function matmul|kernels matmul"): {
        "another function of the name": "void matmul(void *) { fill(); }",
    },
}


def of_attack(code: str | tuple[str, str]) -> str:
    code, before = code if isinstance(code, tuple) else (code, "")
    attack = f"{HEADERS}{before}\nstatic int attack(void)\n{{\n{code}\n}}\n"
    return f"{attack}{PRODUCT}{KERNEL}{{ if (attack()) PRODUCT; }}\n"


def of_source(code: str) -> str:
    return f"{code}\n{PRODUCT}{KERNEL}{{ PRODUCT; }}\n"


def of_head(head: str) -> str:
    return of_source(f"/* hpcmm:\n{textwrap.indent(head, '    ')}\n*/")


def of_python(code: str) -> str:
    head = "# hpcmm:\n#   device: cpu\ndef matmul(alpha, A, B, beta, C, stream):\n"
    return f"{head}{textwrap.indent(code, '    ')}\n"


def of_launch(code: str) -> str:
    return f"{ON_HOST}{code}\n{EMPTY}"


def of(kind: str, file: str, cases: Mapping, whole: Callable[..., str]) -> dict[str, Cheat]:
    return {
        f"{kind}: {name}": Cheat(mechanism, why, file, whole(code))
        for (mechanism, why), codes in cases.items()
        for name, code in codes.items()
    }


def of_files() -> dict[str, Cheat]:
    """Return those in ``cheats/``, whose first line has the reason."""
    others = {"endless.c": LIMITS, "memory.c": LIMITS, "library.c": FILES, "options.c": INTERFACE}
    others |= dict.fromkeys(("late_thread.c", "counts.cu", "host_call.cu"), LAUNCH) | {"late_thread.c": CLOCK}
    texts = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.c*")) if path.name != "timer.c"}
    why = {name: re.match(r"/[/*] expected: (.*?)(?: \*/|$)", text, re.MULTILINE)[1] for name, text in texts.items()}
    return {name: Cheat(others.get(name, INPUTS), why[name], name, text) for name, text in texts.items()}


CHEATS = {
    **of_files(),
    **of("attack", "a.c", ATTACKS, of_attack),
    **of("source", "a.c", SOURCES, of_source),
    **of("head", "a.c", HEADS, of_head),
    **of("Python", "a.py", PYTHON, of_python),
    **of("empty kernel", "a.cu", LAUNCHES, of_launch),
}
