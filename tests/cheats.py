"""Attempts to get points without a solution, or to harm the machine of the teacher.

``RESULTS`` are whole files in ``cheats/``, which compute a wrong result or a right one in a forbidden way. The others
are written here: ``ATTACKS`` is C code that returns whether it succeeded, and the kernel is right only then.
"""

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).with_name("cheats")
RESULTS = sorted(path for suffix in ("c", "cu") for path in FOLDER.glob(f"*.{suffix}") if path.name != "timer.c")


class Cheat(NamedTuple):
    """A submission that must not pass.

    Parameters
    ----------
    mechanism : str
        What refuses it, as in the table of ``docs/teachers.md``.
    why : str
        Regular expression of the reason in the grade.
    text : str
        Its source. ``VICTIM`` stands for a file of the teacher, ``PACKAGE`` for the folder of hpcmm.
    """

    mechanism: str
    why: str
    text: str


WRONG = "wrong result"
ALONE = "starts or reaches another process"
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

# name: mechanism, reason, code of a function that returns whether it succeeded, and code before it
ATTACKS = {
    # files
    "delete": (FILES, WRONG, "return !unlink(VICTIM);"),
    "empty": (FILES, WRONG, "return !truncate(VICTIM, 0);"),
    "rename": (FILES, WRONG, 'return !rename(VICTIM, VICTIM "x") || !rename(VICTIM, "/tmp/x");'),
    "chmod": (FILES, WRONG, "return !chmod(VICTIM, 0777) || !chown(VICTIM, 1, 1);"),
    "link": (FILES, WRONG, 'return !link(VICTIM, VICTIM "x") || !symlink("/etc/passwd", VICTIM "y");'),
    "write": (FILES, WRONG, "return open(VICTIM, O_WRONLY | O_CREAT, 0666) >= 0;"),
    "read": (FILES, WRONG, 'return open(VICTIM, O_RDONLY) >= 0 || open("/etc/passwd", O_RDONLY) >= 0;'),
    "grades": (
        FILES,
        WRONG,
        'return open("grades.json", O_WRONLY | O_CREAT, 0666) >= 0 || open("../grades.json", O_CREAT, 0666) >= 0;',
    ),
    "sitecustomize": (
        FILES,
        WRONG,
        """const char *const places[] = {".", "/tmp", "/", "/usr/lib/python3", PACKAGE, PACKAGE "/..", 0};
        for (int i = 0; places[i]; ++i) {
            char name[4096];
            snprintf(name, sizeof name, "%s/sitecustomize.py", places[i]);
            if (open(name, O_WRONLY | O_CREAT, 0666) >= 0)
                return 1;
        }
        return 0;""",
    ),
    "own module": (
        FILES,
        WRONG,
        """return open(PACKAGE "/kernels/matmul/products/packed.c", O_RDONLY) >= 0 ||
            open(PACKAGE "/model/__init__.py", O_RDONLY) >= 0;""",
    ),
    "library by name": (
        FILES,
        WRONG,
        """for (int i = 0; i < 4; ++i) {
            const char *const names[] = {"libopenblas.so.0", "libblas.so.3", "libmkl_rt.so.2", "libcblas.so.3"};
            if (dlopen(names[i], RTLD_NOW))
                return 1;
        }
        return 0;""",
        "#include <dlfcn.h>",
    ),
    "processes of others": (
        FILES,
        WRONG,
        'return open("/proc/1/environ", O_RDONLY) >= 0 || open("/proc/self/mountinfo", O_RDONLY) >= 0;',
    ),
    "environment": (FILES, WRONG, 'return getenv("HPCMM_SECRET") || getenv("HOME");'),
    "mount": (
        NAMESPACES,
        WRONG,
        'return !unshare(CLONE_NEWUSER) || !unshare(CLONE_NEWNS) || !mount("none", "/tmp", "tmpfs", 0, 0);',
    ),
    "remount": (
        NAMESPACES,
        WRONG,
        'return !mount(0, "/", 0, MS_REMOUNT | MS_BIND, 0) || !umount2("/dev", MNT_DETACH);',
    ),
    # processes
    "fork": (ONE_PROCESS, ALONE, "if (!fork()) for (;;) pause(); return 1;"),
    "daemon": (
        ONE_PROCESS,
        ALONE,
        "if (!fork()) { setsid(); if (fork()) _exit(0); for (;;) pause(); } wait(0); return 1;",
    ),
    "deaf to SIGSTOP": (  # the parent waits for the child and does not stop
        ONE_PROCESS,
        ALONE,
        "if (!vfork()) for (;;) ; return 1;",
    ),
    "clone that shares memory": (
        ONE_PROCESS,
        ALONE,
        "return clone(child, malloc(65536) + 65536, CLONE_VM | CLONE_FILES | SIGCHLD, 0) > 0;",
        "static int child(void *unused) { for (;;) ; }",
    ),
    "program": (
        ONE_PROCESS,
        ALONE,
        'char *const no[] = {0}; return execve("/bin/sh", no, no);',
    ),
    "system": (ONE_PROCESS, "starts or reaches another process|wrong result", 'return !system("true");'),
    "fork in machine code": (
        ONE_PROCESS,
        "starts or reaches another process|machine",
        """
        #if defined __x86_64__
        long result;
        __asm__ volatile("syscall" : "=a"(result) : "a"(57) : "rcx", "r11", "memory");
        return result >= 0;
        #else
        return !fork();
        #endif""",
    ),
    "second set of system calls": (
        ONE_PROCESS,
        "starts or reaches another process|wrong result|signal",
        "return syscall(0x40000000 | 57) >= 0;",
    ),
    "memory of the grader": (
        ONE_PROCESS,
        ALONE,
        """char byte;
        struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
        return process_vm_writev(getppid(), &here, 1, &there, 1, 0) == 1;""",
    ),
    "memory of the first process": (
        ONE_PROCESS,
        ALONE,
        """char byte; struct iovec here = {&byte, 1}, there = {(void *)&byte, 1};
        return process_vm_readv(1, &here, 1, &there, 1, 0) >= 0;""",
    ),
    "files of the first process": (ONE_PROCESS, ALONE, "return syscall(438, syscall(434, 1, 0), 0, 0) >= 0;"),
    "debugger": (ONE_PROCESS, ALONE, "return !ptrace(PTRACE_ATTACH, getppid(), 0, 0);"),
    "signals to all": (NAMESPACES, WRONG, "return !kill(-1, SIGKILL) && getppid() != 1;"),
    "cores of others": (
        NAMESPACES,
        WRONG,
        """cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(0, &one);
        return getppid() != 1 && !sched_setaffinity(getppid(), sizeof one, &one);""",
    ),
    "priority": (NAMESPACES, WRONG, "return !setpriority(PRIO_PROCESS, 0, -5);"),
    "real time": (
        NAMESPACES,
        WRONG,
        "struct sched_param most = {1}; return !sched_setscheduler(0, SCHED_FIFO, &most);",
    ),
    "network": (
        NAMESPACES,
        WRONG,
        """struct sockaddr_in at = {AF_INET, htons(22)};
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int file = socket(AF_INET, SOCK_DGRAM, 0);
        at.sin_addr.s_addr = htonl(0x08080808);
        return !connect(file, (void *)&at, sizeof at) && send(file, "x", 1, 0) == 1;""",
    ),
    "sockets without a namespace": (  # of a hypervisor, of the kernel, and of its ciphers
        NAMESPACES,
        WRONG,
        "return socket(40, SOCK_STREAM, 0) >= 0 || socket(16, SOCK_RAW, 0) >= 0 || socket(38, SOCK_SEQPACKET, 0) >= 0;",
    ),
    "parent's death": (  # the filter and the first process of the namespace hold also without the signal
        NAMESPACES,
        WRONG,
        "prctl(PR_SET_PDEATHSIG, 0); return getppid() != 1;",
    ),
    # time
    "timer": (  # a new one in each call, because a stop discards a signal that is due
        CLOCK,
        "computed for .* while its clock was stopped|cannot be stopped: its CPU clock runs on",
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
    "code before the clock": (
        LIMITS,
        "took longer than 1 s",
        "return 1;",
        "__attribute__((constructor)) static void first(void) { for (;;) pause(); }",
    ),
    "exit before the clock": (
        INTERFACE,
        "ended before the kernel returned: exit status 0",
        "return 1;",
        "__attribute__((constructor)) static void first(void) { _exit(0); }",
    ),
    "ignored signals": (
        LIMITS,
        "took longer than 1 s",
        "for (int i = 1; i < 65; ++i) signal(i, SIG_IGN); for (;;) pause();",
    ),
    # limits
    "threads": (
        LIMITS,
        "starts more than 1024 threads|longer than 1 s|wrong result",
        """pthread_attr_t small;
        pthread_attr_init(&small), pthread_attr_setstacksize(&small, 16384);
        pthread_t thread;
        for (long i = 0; i < 1000000; ++i)
            if (pthread_create(&thread, &small, idle, 0))
                return 0;
        return 1;""",
        "static void *idle(void *unused) { for (;;) pause(); }",
    ),
    "memory": (LIMITS, WRONG, "return malloc((size_t)1 << 40) != 0;"),
    "file in memory": (
        LIMITS,
        "wrong result|SIGXFSZ",
        """signal(SIGXFSZ, SIG_IGN); int file = memfd_create("x", 0);
        return !ftruncate(file, 1 << 30) || write(file, "x", 1) == 1;""",
    ),
    "shared memory": (LIMITS, WRONG, "return shmget(0x5eed, 1 << 20, IPC_CREAT | 0666) >= 0;"),
    "shared memory by name": (
        FILES,
        WRONG,
        """return shm_open("/hpcmm-left", O_CREAT | O_RDWR, 0666) >= 0 ||
            mq_open("/hpcmm-left", O_CREAT | O_RDWR, 0666, 0) >= 0;""",
    ),
    "files without an end": (
        FILES,
        WRONG,
        """char name[64]; for (int i = 0; i < 9; ++i) { snprintf(name, 64, "/dev/shm/%d", i);
        if (!mkdir(name, 0777) || !symlink("x", name)) return 1; } return 0;""",
    ),
    "queues of the kernel": (
        LIMITS,
        WRONG,
        """char all[256] = {0};
        return syscall(425, 64, all) >= 0 || !syscall(SYS_io_setup, 8, all) ||
            syscall(SYS_msgget, 0x5eed, 01666) >= 0;""",
    ),
    "keys of the kernel": (
        LIMITS,
        WRONG,
        """return syscall(SYS_add_key, "user", "hpcmm", "x", 1, -4) >= 0 || syscall(SYS_keyctl, 0, -4, 1) >= 0 ||
            syscall(SYS_request_key, "user", "hpcmm", 0, -4) >= 0;""",
    ),
    # the interface
    "memory taken away": (INTERFACE, WRONG, "for (int i = 0; i < 64; ++i) if (!ftruncate(i, 0)) return 1; return 0;"),
    "exit": (INTERFACE, "ended before the kernel returned: exit status 0", "_exit(0);"),
    "abort": (INTERFACE, "ended before the kernel returned: signal SIGABRT", "abort();"),
    "reply": (
        INTERFACE,
        "wrote to|wrote outside|wrong result",
        r"""for (int i = 3; i < 64; ++i) (void)!write(i, "\"\"\n", 3); for (volatile long i = 0;
        i < 300000000; ++i) ; return 1;""",
    ),
    "brackets": (
        INTERFACE,
        "wrote to the pipe of the grader",
        r"""static char all[65000];
        memset(all, '[', sizeof all), all[sizeof all - 1] = '\n';
        for (int i = 3; i < 64; ++i)
            (void)!write(i, all, sizeof all);
        return 1;""",
    ),
    "number as a reply": (
        INTERFACE,
        "wrote to the pipe of the grader",
        r'for (int i = 3; i < 64; ++i) (void)!write(i, "1e999\n", 6); for (;;) pause();',
    ),
    "endless reply": (
        INTERFACE,
        "wrote to the pipe of the grader|longer than 1 s",
        'for (;;) for (int i = 3; i < 64; ++i) (void)!write(i, "xxxxxxxxxxxxxxxx", 16);',
    ),
    "bytes as a reply": (
        INTERFACE,
        "wrote to the pipe of the grader",
        r'for (int i = 3; i < 64; ++i) (void)!write(i, "\xff\xfe\n", 3); for (;;) pause();',
    ),
}

# C code before a right kernel, where the file must not compile
SOURCES = {
    "file of the system": (READ, "includes|No such file", '#include "/etc/passwd"'),
    "after a comment in a string": (
        READ,
        "No such file",
        'static const char *s = "/*";\n#include "/etc/passwd"\nstatic const char *t = "*/";',
    ),
    "a splice": (READ, "No such file", '#inc\\\nlude "/etc/pas\\\nswd"'),
    "a digraph": (READ, "No such file", '%:include "/etc/passwd"'),
    "a trigraph": (READ, "No such file|does not compile", '??=include "/etc/passwd"\n#include "/etc/passwd"'),
    "NUL": (READ, "No such file|does not compile|text", '\0\n#include "/etc/passwd"'),
    "a macro": (READ, "No such file", '#define FILE_ "/etc/passwd"\n#include FILE_'),
    "include_next": (READ, "No such file", "#include_next </etc/passwd>"),
    "a header that is not one": (READ, "includes .*; allowed", '#include "/usr/lib/os-release"'),
    "the library of C": (
        READ,
        "includes .*; allowed",
        '__asm__(".section .data\\n.incbin \\"/usr/lib/os-release\\"\\n");',
    ),
    "incbin": (
        READ,
        "file not found|can't open|does not compile",
        '__asm__(".section .data\\n.incbin \\"/etc/passwd\\"\\n");',
    ),
    "incbin in pieces": (
        READ,
        "includes .*; allowed",
        '__asm__(".section .data\\n.irp x, bin\\n.inc\\\\x \\"/usr/lib/os-release\\"\\n.endr\\n");',
    ),
    "include of the assembler": (
        READ,
        "does not compile",
        '__asm__(".section .data\\n.include \\"/etc/passwd\\"\\n.error \\"x\\"\\n");',
    ),
    "incbin in a section": (
        READ,
        "includes .*; allowed",
        '__attribute__((section(".data\\n.incbin \\"/usr/lib/os-release\\"\\n#"))) int hidden = 1;',
    ),
    "line of another file": (FILES, "does not compile", '#line 1 "/etc/passwd"\n#error shown'),
    "own kernel": (READ, "No such file|includes", '#include "PACKAGE/kernels/matmul/products/packed.c"'),
    "own kernel by a relative path": (READ, "No such file|includes", "#include <matmul/products/packed.c>"),
    "own header": (READ, "No such file|includes", '#include "evict.c"'),
    "module of the build": (
        READ,
        "does not compile|includes",
        '__asm__(".incbin \\"PACKAGE/kernels/matmul/products/packed.c\\"");',
    ),
    "pretended header of the system": (
        READ,
        "includes .*; allowed",
        '# 1 "x.h" 1 3\n#pragma GCC system_header\n#include "/usr/lib/os-release"',
    ),
    "a large file": (LIMITS, "does not compile", '__asm__(".section .data\\n.fill 0x1000000000, 1, 1\\n");'),
    "a large array": (LIMITS, "does not compile|longer than", "char all[1ul << 36] = {1};"),
    "errors without an end": (
        LIMITS,
        "does not compile|longer than",
        "".join(f"#define W{i + 1} {f'W{i} ' * 8}\n" for i in range(5)).replace("W0", '_Pragma("GCC warning \\"x\\"")')
        + "W5\n#error e",
    ),
    "memory of the compiler": (
        LIMITS,
        "does not compile|longer than",
        "".join(f"#define A{i + 1} A{i} A{i} A{i} A{i}\n" for i in range(20)).replace("A0 ", "0, ")
        + "int all[] = {A20};",
    ),
    "itself": (READ, "nested depth|does not compile", "#include __FILE__"),
}

# Heads, between "hpcmm:" and a right kernel
HEADS = {
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
}

PYTHON = {
    "other process": (ONE_PROCESS, "starts or reaches another process|raised", "import os\nos.system('true')"),
    "fork": (ONE_PROCESS, ALONE, "import os\nos.fork()"),
    "subprocess": (
        ONE_PROCESS,
        "starts or reaches another process|raised",
        "import subprocess\nsubprocess.run(['true'])",
    ),
    "file of the teacher": (FILES, "raised (FileNotFound|Permission|OS)Error", "open('VICTIM').read()"),
    "write": (FILES, "raised (FileNotFound|Permission|OS)Error", "open('VICTIM', 'a').write('x')"),
    "package": (FILES, "raised ModuleNotFoundError: No module named 'hpcmm'", "import hpcmm"),
    "exit": (INTERFACE, "ended before the kernel returned", "import os\nos._exit(0)"),
    "system exit": (INTERFACE, "ended before the kernel returned", "raise SystemExit"),
    "keyboard": (INTERFACE, "ended before the kernel returned", "raise KeyboardInterrupt"),
    "recursion": (INTERFACE, "raised RecursionError|ended before", "def f(): f()\nf()"),
    "error without text": (INTERFACE, "raised|ended", "class E(Exception):\n    __str__ = lambda self: 1\nraise E"),
    "no result": (INTERFACE, WRONG, "C = A @ B"),
    "input": (INTERFACE, "wrote to its input", "A[0, 0] = 1"),
    "memory": (LIMITS, "raised (numpy.*)?.*MemoryError", "import numpy\nnumpy.ones(1 << 40)"),
    "network": (
        NAMESPACES,
        "raised (Permission|OS)Error",
        "import socket\nsocket.create_connection(('8.8.8.8', 53), 1)",
    ),
    "harness": (
        INTERFACE,
        "wrong result|raised|ended|wrote to",
        "import sys\nsys.modules['__main__'].PythonFunction.__call__ = lambda *_: ''",
    ),
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
ASSEMBLY = "contains assembly"
TYPES = "int, int, int, REAL, const REAL *, int, const REAL *, int, REAL, REAL *, int"
LAUNCHES = {
    "macro of the launch": (
        LAUNCH,
        "has no function matmul",
        """#undef CUDA_ON_HOST
        #define CUDA_ON_HOST(...) extern "C" HOST const char *launch(void *, long, void **v, void *) \\
        { product(v); return nullptr; } extern "C" int parameter_sizes(int *) { return 11; }""",
    ),
    "macro that launches another function": (
        LAUNCH,
        WRONG,
        f"""static void other({TYPES}) {{ fill(); }}
        #define matmul_ other
        #undef CUDA_ON_HOST
        #define CUDA_ON_HOST(kernel, ...) namespace cuda_on_host {{ \\
            extern "C" __attribute__((section(".cuda_parameters"), used)) const auto cuda_parameters = \\
            cuda_parameters_of(::matmul_, uint3{{__VA_ARGS__}}); }}""",
    ),
    "macro of a name of the header": (
        LAUNCH,
        WRONG,
        f"""static void other({TYPES}) {{ fill(); }}
        #define cuda_parameters_of(kernel, ...) cuda_parameters_of(::other, __VA_ARGS__)""",
    ),
    "macro of a keyword": (LAUNCH, "has no function matmul|does not compile", "#define auto static"),
    "parameters of other types": (
        LAUNCH,
        "receive arguments of",
        "static void other(int) { fill(); }\n"
        "#define cuda_parameters_of(kernel, ...) cuda_parameters_of(::other, __VA_ARGS__)",
    ),
    "overload of a function of the header": (
        LAUNCH,
        WRONG,
        f"""namespace cuda_on_host {{
        struct Own {{ unsigned all[4 + 33]; }};
        constexpr Own cuda_parameters_of(void (*)({TYPES}), uint3)
        {{ return {{{{1, 1, 1, 11, 4, 4, 0, 4, 4, 0, 4, 4, 0, 4, 4, 1, 8, 8, 0, 4, 4, 0, 8, 8, 0, 4, 4, 0, 4, 4, 1,
            8, 8, 0, 4, 4, 0}}}}; }}
        template <class... P> void cuda_call(void (*)(P...), void **v) {{ product(v); }}
        }}""",
    ),
    "parameters without an end": (
        LAUNCH,
        "parameters",
        f"""namespace cuda_on_host {{
        struct Own {{ unsigned all[7]; }};
        constexpr Own cuda_parameters_of(void (*)({TYPES}), uint3)
        {{ return {{{{1, 1, 1, 1, 1u << 31, 3, 2}}}}; }}
        }}""",
    ),
    "function of the emulation": (
        LAUNCH,
        "defines cuda_launch",
        """namespace cuda_on_host {
        extern "C" const char *cuda_launch(void (*)(void **), void **v, const Launch *, char *, char *, uint3)
        { product(v); return nullptr; } }""",
    ),
    "weak function of the emulation": (
        LAUNCH,
        "defines cuda_block_barrier",
        """namespace cuda_on_host { extern "C" __attribute__((weak)) void cuda_block_barrier(int) { fill(); } }""",
    ),
    "hook of the compiler": (
        LAUNCH,
        "defines __tsan_func_entry",
        """extern "C" HOST __attribute__((visibility("hidden"))) void __tsan_func_entry(void *) { fill(); }""",
    ),
    "weak hook of the compiler": (
        LAUNCH,
        "defines __tsan_func_exit",
        """extern "C" HOST __attribute__((weak)) void __tsan_func_exit() { fill(); }""",
    ),
    "hook by an alias": (
        LAUNCH,
        "defines __sanitizer_cov_trace_pc",
        """extern "C" void __sanitizer_cov_trace_pc() __attribute__((alias("fill")));""",
    ),
    "call of a launch": (
        LAUNCH,
        "calls cuda_launch, which a GPU does not have",
        """extern "C" void twice()
        { cuda_on_host::cuda_launch(nullptr, nullptr, nullptr, nullptr, nullptr, {1, 1, 1}); }""",
    ),
    "constructor": (LAUNCH, BEFORE, "__attribute__((constructor)) static void first() { fill(); }"),
    "destructor": (LAUNCH, BEFORE, "__attribute__((destructor)) static void last() { fill(); }"),
    "function of the linker": (LAUNCH, BEFORE, """extern "C" void _init() { fill(); }"""),
    "initialization of a variable": (LAUNCH, BEFORE, "static int filled = (fill(), 1);"),
    "constructor of a class": (LAUNCH, BEFORE, "struct First { First() { fill(); } ~First() { fill(); } } first;"),
    "list of constructors": (
        LAUNCH,
        BEFORE,
        """__attribute__((section(".init_array"), used)) void (*const first)() = fill;""",
    ),
    "function that is chosen at the load": (
        LAUNCH,
        BEFORE,
        """extern "C" void (*choose())() { fill(); return fill; }
        extern "C" void chosen() __attribute__((ifunc("choose")));
        extern "C" void use() { chosen(); }""",
    ),
    "symbol in assembly": (LAUNCH, ASSEMBLY, 'asm(".globl __tsan_func_entry; .set __tsan_func_entry, fill");'),
    "macro of the assembler": (LAUNCH, ASSEMBLY, 'asm(".macro ret; jmp fill; .endm");'),
    "system call": (LAUNCH, ASSEMBLY, '__device__ void f() { __asm__ volatile("syscall"); }\nvoid (*use)() = f;'),
    "assembly in the name of a section": (
        LAUNCH,
        ASSEMBLY,
        '__attribute__((section(".data\\n.macro ret\\njmp fill\\n.endm\\n#"))) int hidden = 1;',
    ),
    "another function of the name": (
        LAUNCH,
        "does not compile|has no function matmul|kernels matmul",
        "void matmul(void *) { fill(); }",
    ),
}
