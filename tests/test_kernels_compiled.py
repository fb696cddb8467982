"""The CUDA kernels compiled by NVRTC for each architecture: without warnings and spills, each rung to other code.

They are not in ``test_kernels_on_host.py``, because both files take long and two processes share them.
"""

import ctypes
import functools
import itertools
import json
import re
from dataclasses import replace
from importlib import metadata

import pytest
from tabulate import tabulate
from test_kernels_on_host import ALL, BUILDS, NOT_ON_HOST, RUNG_OF, RUNGS, SKINNY, defines, some, source, task_of

from hpcmm import kernels
from hpcmm.backends.cuda import cache
from hpcmm.experiment import calls
from hpcmm.model import DeviceError, Task
from hpcmm.operations.tabled import Tabled, Tile

# (<operation>/<variant>, architecture) -> bytes that may be spilled
SPILLS = {("matmul/large_thread_tile", "sm_80"): 80, ("matmul/tensor_core", "sm_90"): 8}
SPILLS |= {(f"matmul/{name}", "sm_90a"): 120 for name in ("persistent_dmma", "undivided_dmma")}
SPILLS |= {(f"{name}/invariant", "sm_75"): 8 for name in ("sum", "minimum", "maximum")}  # float64, in the last block

INCLUDES = f"-I{kernels.FOLDER}"
CAPABILITIES = ("75", "80", "90")


def options_of(name: str, dtype: str | None, tile: int | None) -> list[str]:
    return kernels.options(RUNG_OF[name][1], task_of(name, dtype, tile).macros) if name in RUNG_OF else []


def architectures_of(name: str) -> list[str]:
    """Architectures of a kernel: each one of CAPABILITIES that can run it, or its own."""
    if name not in RUNG_OF:
        return [f"sm_{capability}" for capability in CAPABILITIES]
    variant = RUNG_OF[name][1]
    if variant.architecture.endswith("a"):
        return [variant.architecture]
    return [f"sm_{capability}" for capability in CAPABILITIES if not variant.why_not_run(capability)]


class Nvrtc:
    """NVRTC of the wheel ``nvidia-cuda-nvrtc``, which needs neither a GPU nor a toolkit."""

    def __init__(self):
        files = metadata.files("nvidia-cuda-nvrtc")
        self.library = ctypes.CDLL(str(next(f for f in files if re.search(r"libnvrtc\.so\.\d+$", str(f))).locate()))

    def compile(self, text: str, options: list[str], kind: str = "PTX") -> tuple[bool, str, bytes]:
        """Return whether a text compiles, the compiler's log, and the code: ``"PTX"`` or ``"CUBIN"``."""
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        created = self.library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"rung.cu", 0, None, None)
        assert created == 0, f"nvrtcCreateProgram returned {created}"
        encoded = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        failed = self.library.nvrtcCompileProgram(program, len(options), encoded)
        self.library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.library.nvrtcGetProgramLog(program, log)
        getattr(self.library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size))
        code = ctypes.create_string_buffer(0 if failed else size.value)
        getattr(self.library, f"nvrtcGet{kind}")(program, code)
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return not failed, log.value.decode(), code.raw


def instructions(ptx: str) -> str:
    """Return PTX without target, comments, line numbers, debug sections and generated names."""
    text = re.sub(r"//.*|\.(target|loc|file)\b.*|(?s:\.section.*)", "", ptx)
    text = re.sub(r"_Z\w+|\$\w+", "name", text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


@functools.cache
def nvrtc() -> Nvrtc:
    return Nvrtc()


OTHERS = [pytest.param(name, None, None, id=name) for name in NOT_ON_HOST if name not in RUNG_OF]


@functools.cache
def compiled(text: str, architecture: str, constants: tuple[str, ...]) -> dict[str, int]:
    """The most registers, spills and shared bytes of a kernel of a text; it must compile without a warning."""
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "-lineinfo", "--ptxas-options=-v"]
    options += [INCLUDES, *constants]
    works, log, ptx = nvrtc().compile(text, options)
    assert works, log
    assert not re.search("warning", log, re.IGNORECASE), log
    spills = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", log)
    stack, stores, loads = (max(map(int, each)) for each in zip(*spills, strict=True))
    return {
        "registers": max(map(int, re.findall(r"Used (\d+) registers", log))),
        "stack": stack,
        "spill_stores": stores,
        "spill_loads": loads,
        "shared": max(map(int, re.findall(r"(\d+) bytes smem", log)), default=0),
        "instructions": instructions(ptx.rstrip(b"\0").decode()),
    }


@pytest.fixture(scope="module")
def compilations(request):
    """Arguments of ``compiled`` for each kernel that is compiled, by build and architecture."""
    slow = request.config.getoption("slow")
    return {
        (*build.values, architecture): (
            source(name),
            architecture,
            (*defines(*build.values), *options_of(*build.values)),
        )
        for build in BUILDS + OTHERS
        for name in build.values[:1]
        for architecture in chosen(build, slow)
    }


def chosen(build, slow: bool) -> list[str]:
    """Architectures to compile a build for: the last, and with ``--slow`` also the first for one type of a lesson.

    All of them with HPCMM_TEST_ALL=1.
    """
    name, dtype, _ = build.values
    known = architectures_of(name)
    if ALL:
        return known
    if name.startswith(("minimum/", "maximum/")) or (name in RUNG_OF and RUNG_OF[name][1].shelf == "product"):
        return known[-1:]  # the first have the sources of sums
    is_first = dtype == next(other.values[1] for other in BUILDS + OTHERS if other.values[0] == name)
    return [*known[:1], *known[1:][-1:]] if slow and is_first else known[-1:]


@pytest.fixture(scope="session")
def usage(tmp_path_factory):
    """Resources of each kernel, as rows of a table and a JSON file."""
    rows = []
    yield rows
    path = tmp_path_factory.getbasetemp() / "kernel_usage.json"
    path.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"\n{tabulate(rows, headers='keys')}\n{path}")


@pytest.mark.parametrize(("name", "dtype", "tile"), BUILDS + OTHERS)
def test_a_kernel_compiles_for_every_architecture_without_spills(compilations, usage, name, dtype, tile):
    for architecture in architectures_of(name):
        if (name, dtype, tile, architecture) not in compilations:
            continue
        takes = dict(compiled(*compilations[name, dtype, tile, architecture]))
        takes.pop("instructions")
        usage.append({"kernel": name, "dtype": dtype, "tile": tile, "architecture": architecture, **takes})
        spills = SPILLS.get((name, architecture), 0)
        assert max(takes["spill_stores"], takes["spill_loads"]) <= spills, f"{architecture}: {takes}"
        if name in RUNG_OF:  # more registers than a multiprocessor has would fail at the launch
            threads = task_of(name, dtype, tile).macros.get("BLOCK") or (tile**2 if tile else 128)
            assert -(-takes["registers"] // 8) * 8 * threads <= 65536, takes


def idle_shared_memory(operation, variant) -> bool:
    """Whether a kernel asks for shared memory at its launch, but its source has none."""
    asked = getattr(variant.geometry, "shared_bytes", 0)
    return bool(asked) and "extern __shared__" not in source(f"{operation.name}/{variant.name}")


# A rung and its counterpart. A pitched variant is the same kernel on another memory layout, and one with guard rows the
# same kernel on another grid. Rungs with unused shared memory are the same kernel with fewer blocks on an SM.
# More levels of Strassen's algorithm launch the same kernels more often.
STEPS = [
    (f"{operation.name}/{after.counterpart}", f"{operation.name}/{after.name}")
    for operation, after in RUNGS
    if f"{operation.name}/{after.counterpart}" in RUNG_OF
    and not (after.pitched or after.guard_rows or idle_shared_memory(operation, after))
    and getattr(after.geometry, "levels", 1) == 1
    and {*operation.dtypes_of(after)} & {*operation.dtypes_of(operation.variant(after.counterpart))}
]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), STEPS, ids=lambda name: name.replace("/", "-"))
def test_the_rungs_of_a_step_compile_to_different_code(compilations, before, after):
    compared = 0
    of_before, of_after = ([each for each in compilations if each[0] == name] for name in (before, after))
    for one, other in itertools.product(of_before, of_after):
        (_, dtype, tile, _), (_, other_dtype, other_tile, _) = one, other
        if dtype == other_dtype and (tile == other_tile or None in (tile, other_tile)):
            codes = [compiled(*compilations[each])["instructions"] for each in (one, other)]
            assert codes[0] != codes[1], (one, other)
            compared += 1
    assert compared


@pytest.mark.parametrize(("dtype", "tile"), [("float32", 8), ("float64", 16), ("float32", 32)])
def test_a_loop_over_a_tile_is_kept_only_where_that_is_the_idea(dtype, tile):
    """So that a step from one of these rungs to another shows what their heads say, and not a pragma."""
    codes = {}
    for _, variant in RUNGS:
        if getattr(variant.geometry, "staged", False) and not variant.pitched:
            name = f"matmul/{variant.name}"
            codes[variant.name] = compiled(source(name), "sm_90", defines(name, dtype, tile))["instructions"]
    fma = re.compile(r"\bfma\.rn(?:\.ftz)?\.f(?:32|64)\b")
    kept = {name for name, code in codes.items() if len(fma.findall(code)) < tile}
    assert kept == {"tiled_rolled"}
    assert codes["tiled_padded"] == codes["tiled_unrolled"]
    pragma = "#pragma unroll"
    rolled, unrolled, padded = (
        source(f"matmul/tiled_{name}").partition("extern")[2] for name in ("rolled", "unrolled", "padded")
    )
    assert rolled.replace(f"{pragma} 1\n", f"{pragma}\n") == unrolled != rolled, "they differ in the pragma alone"
    assert unrolled.replace(f"{pragma}\n", "") == padded


def ends(geometry: Tabled) -> list[Tile]:
    """Builds with the fewest and the most parts of each tile; the others have the same code."""
    builds: dict[tuple, list[Tile]] = {}
    for tile in geometry.choices:
        builds.setdefault(tile.numbers[: len(geometry.record["fields"])], []).append(tile)
    return [tile for own in builds.values() for tile in dict.fromkeys([own[0], own[-1]])]


# rungs whose warpgroups share the registers of a block unevenly; those of which the test does not know how
BY_WARPGROUPS = ("split_k_wgmma", "stream_k_wgmma", "tf32")
UNEVEN = ("few_rows_wgmma", "short_k_wgmma", "persistent_dmma")
BY_WARPS = ("split_k", "split_k_dmma", "stream_k_dmma", "short_k_mma", "direct_mma", "int8_direct")
RUNGS_OF_TILES = (*BY_WARPS, *BY_WARPGROUPS, *UNEVEN)
TILES = {
    **{name: ends(RUNG_OF[f"matmul/{name}"][1].geometry) for name in RUNGS_OF_TILES},
    "skinny": [(dtype, tile) for dtype in SKINNY.geometry for tile in ends(SKINNY.geometry[dtype])],
}


def test_an_option_may_name_a_macro():
    variant = replace(RUNG_OF["matmul/split_k"][1], options=("--level={LEVEL}", "-DX={1}", "-DY={OTHER}"))
    assert kernels.options(variant, {"LEVEL": 3}) == ["--level=3", "-DX={1}", "-DY={OTHER}"]


@pytest.mark.parametrize("rung", [name for name in (*BY_WARPS, *BY_WARPGROUPS) if not name.endswith("direct")])
def test_an_sm_has_the_shared_memory_of_every_tile(rung):
    for tile in RUNG_OF[f"matmul/{rung}"][1].geometry.choices:
        numbers = {name.lower(): number for name, number in tile.numbers}
        assert numbers.get("resident", 1) * (numbers["shared_bytes"] + 1024) <= 228 * 1024, tile


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rung", "choice"),
    [
        pytest.param(rung, *each.values, id=f"{rung}-{each.id}")
        for rung, choices in TILES.items()
        for each in some(choices, 120)
    ],
)
def test_every_tile_fits(rung, choice):
    """The resident blocks fit into the registers and the shared memory of an SM."""
    operation, variant = RUNG_OF[f"matmul/{rung}"]
    dtype, tile = choice if rung == "skinny" else (variant.dtypes[-1], choice)
    geometry = replace(variant.geometry_of(dtype), choices=(tile,))
    task = Task(operation, replace(variant, geometry=geometry), (), dtype, multiprocessors=132)
    tile, macros = geometry.chosen(task), task.macros
    threads = -(-tile.block // 128) * 128 if rung in BY_WARPGROUPS else 1 if rung in UNEVEN else tile.block
    # spills are in the copies of single elements, and between the mainloop and the epilogue of large tiles
    spills = 120 if rung == "persistent_dmma" else 16 * (rung == "stream_k_dmma" and tile.warp_columns >= 56)
    resident = getattr(tile, "resident", 1)
    constants = (*(f"-D{key}={value}" for key, value in macros.items()), *kernels.options(variant, macros))
    takes = compiled(source(f"matmul/{rung}"), variant.architecture, constants)
    assert takes["spill_stores"] <= spills, takes
    assert -(-takes["registers"] // 8) * 8 * threads * resident <= 65536, takes
    assert resident * (tile.shared_bytes + 1024) <= 228 * 1024


def test_a_kernel_of_a_user_has_the_names_of_headers_of_c():
    names, types = [*calls.TABLES["limits"], *calls.TABLES["math"]], calls.TABLES["integers"]
    uses = [f"x[{i}] = {name};" for i, name in enumerate(names)] + [f"{each} of_{each} = 0;" for each in types]
    uses += ["std::size_t many = 0;", "std::uint32_t some = 0;"]
    kernel = f'extern "C" __global__ void f(double *x)\n{{\n{" ".join(uses)}\n}}'
    options = ["--gpu-architecture=sm_80", "-DREAL=float", "-DACCUMULATOR=float"]
    for lines, works in ((calls.first_lines(kernel, {}, accelerator=True), True), ([], False)):
        assert nvrtc().compile("\n".join([*lines, kernel]), options)[0] == works
    own = "constexpr float INFINITY = 1e30f, M_PI = 3.14f;\n#define FLT_MAX 1e30f\ntypedef unsigned char ushort;\n"
    own += kernel.replace(f"{' '.join(uses)}", "x[0] = INFINITY + M_PI + FLT_MAX + ushort(1);")
    compiles, log, _ = nvrtc().compile("\n".join([*calls.first_lines(own, {}, accelerator=True), own]), options)
    assert compiles and "warning" not in log, log


def test_spills_warnings_and_errors_of_the_compiler_are_found():
    many = (
        'extern "C" __global__ void __launch_bounds__(1024) k(double *x) { double v[99];'
        "for (int i = 0; i < 99; ++i) v[i] = x[i * 1024 + threadIdx.x]; __syncthreads();"
        "for (int i = 0; i < 99; ++i) x[threadIdx.x * 99 + i] = v[i]; }"
    )
    assert compiled(many, "sm_90", ())["spill_stores"] > 0
    with pytest.raises(AssertionError, match="never referenced"):
        compiled('extern "C" __global__ void k() { int unused; }', "sm_90", ())
    with pytest.raises(AssertionError, match="undefined"):
        compiled('extern "C" __global__ void k() { nothing(); }', "sm_90", ())


def test_only_rungs_may_spill():
    assert RUNG_OF.keys() >= {name for name, _ in SPILLS}


def test_a_compiled_kernel_is_kept_in_the_folder_of_cupy(monkeypatch, tmp_path):
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = cache.folder() / "kernel.elf"
    for code in (b"one", b"other"):
        cache.write(path, code)
        assert (tmp_path / ".cupy" / "kernel_cache" / "kernel.elf").read_bytes() == code
    assert list(path.parent.iterdir()) == [path]


def test_a_compiled_kernel_that_cannot_be_written_leaves_no_part_of_it(monkeypatch, tmp_path, limited_files):
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    refused = pytest.raises(DeviceError, match=f"^{tmp_path}: cannot write compiled kernels: File too large; set ")
    with refused, limited_files(1000):
        cache.write(cache.folder() / "kernel.elf", bytes(2000))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("folder", "reason"), [("file", "not a folder"), ("file/inside", "Not a directory")])
def test_a_folder_of_compiled_kernels_that_cannot_be_written_is_named(monkeypatch, tmp_path, folder, reason):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / folder))
    expected = f"{tmp_path / folder}: cannot write compiled kernels: {reason}; set CUPY_CACHE_DIR to a writable folder"
    with pytest.raises(DeviceError, match=f"^{re.escape(expected)}$"):
        cache.write(cache.folder() / "kernel.elf", b"code")
