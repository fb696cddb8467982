"""The GPUs that this process can use, from the CUDA driver without CuPy."""

import ctypes
import importlib.util

from hpcmm.model import DeviceError

MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


def count() -> int:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    number = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(number)):
        return 0
    return number.value


def memory() -> int:
    """Return the memory in bytes of the GPU with the least memory; 0 without a GPU."""
    sizes = []
    for index in range(count()):
        driver = ctypes.CDLL("libcuda.so.1")
        device, size = ctypes.c_int(), ctypes.c_size_t()
        driver.cuDeviceGet(ctypes.byref(device), index)
        if driver.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0:
            sizes.append(size.value)
    return min(sizes, default=0)


def multiprocessors() -> int:
    """Return the SM count of the first GPU; 0 without a GPU."""
    device, number = ctypes.c_int(), ctypes.c_int()
    if count():
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuDeviceGet(ctypes.byref(device), 0)
        driver.cuDeviceGetAttribute(ctypes.byref(number), MULTIPROCESSORS, device)
    return number.value


def uuids() -> list[str]:
    names = []
    for index in range(count()):
        driver = ctypes.CDLL("libcuda.so.1")
        device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        if driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetUuid_v2(uuid, device):
            raise DeviceError(f"CUDA returns no UUID of GPU {index}: check the driver with nvidia-smi -L")
        names.append(bytes(uuid).hex())
    return names


def missing() -> str:
    """Return why CUDA variants cannot run on this machine; empty if they can."""
    if count() == 0:
        return "this machine has no GPU"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (extras cuda12 and cuda13)"
    return ""
