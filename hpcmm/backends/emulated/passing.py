"""Pass a launch to ``harness.cpp``. The standard library only: an isolated process loads this file alone."""

import ctypes


class Array(ctypes.Structure):  # this and Launch mirror the structures of cuda_on_host.h
    _fields_ = (("begin", ctypes.c_size_t), ("end", ctypes.c_size_t))


class Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("order", ctypes.c_int),
        ("seed", ctypes.c_int),
        ("checked", ctypes.c_int),
        ("counted", ctypes.c_int),
        ("arrays", ctypes.c_int),
        ("array", ctypes.POINTER(Array)),
        ("dynamic_bytes", ctypes.c_size_t),
    )


def passed(kernel, addresses, shape, how, bounds, dynamic_bytes):
    """Launch a kernel on the host; return its error, empty without one.

    ``kernel`` is the function of the harness, the library, and the kernel's place in it. ``addresses`` are those of its
    arguments, ``shape`` is grid and block, ``how`` the order, whether misuse of shared memory is an error, and whether
    accesses are counted, and ``bounds`` the ends of each array.
    """
    function, library, place = kernel
    order, checked, counted = how
    sizes = ((ctypes.c_uint * 3)(*size, *(1,) * (3 - len(size))) for size in shape)
    arrays = (Array * len(bounds))(*(Array(*each) for each in bounds))
    error = function(
        ctypes.c_void_p(library._handle),
        ctypes.c_ssize_t(place),
        (ctypes.c_void_p * len(addresses))(*addresses),
        ctypes.byref(Launch(*sizes, order, 1, checked, counted, len(bounds), arrays, dynamic_bytes)),
    )
    return error.decode(errors="replace") if error else ""
