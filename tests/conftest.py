"""What all tests share: hypothesis profiles, the GPU, and MPI jobs that leave no process behind."""

import contextlib
import functools
import gc
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from hpcmm import backends, store
from hpcmm.backends.cpu import device
from hpcmm.backends.emulated import launch
from hpcmm.cli import main
from hpcmm.cli.bench import TIMING
from hpcmm.experiment import extensions
from hpcmm.operations import OPERATIONS
from hpcmm.system import surroundings

surroundings.enter(launched=False, local=True)  # before libraries are loaded, and for all programs of the tests
# Tests ignore the settings of the user's shell, terminal and Slurm job.
OF_SHELL = "S(LURM|BATCH)_(?!CONF$).*|(PMI|OMPI_COMM_WORLD)_SIZE|LC_.*|LANG(UAGE)?|COLUMNS|LINES|(NO|FORCE)_COLOR|TERM"
found = {surroundings.RECORD, *surroundings.remembered(os.environ)} - {"LD_PRELOAD"}  # of sanitizers
for name in found | {name for name in os.environ if re.fullmatch(OF_SHELL, name)}:
    os.environ.pop(name, None)
surroundings.enter(launched=False, local=True)  # sets again what was removed
os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")  # ranks of MPICH that wait sleep instead of spinning

# A job in the background may have started with Ctrl-C ignored, which the programs of the tests would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# HYPOTHESIS_PROFILE=few is for slow tools such as compute-sanitizer, many for a long search.
if not os.access(Path(__file__).parents[1], os.W_OK):  # failed examples are kept in the checkout
    settings.register_profile("default", settings.get_profile("default"), database=None)
    settings.load_profile("default")
settings.register_profile("few", deadline=None, max_examples=5, derandomize=True)
settings.register_profile("usual", deadline=None, max_examples=25)
settings.register_profile("many", deadline=None, max_examples=1000)


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests that take long, as CI does")


def pytest_configure(config):
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "usual"))  # read where a module decorates its tests


# The modules that take longest, the longest first, so that none of them starts when the other processes are done. Some
# mostly wait, and come early, so that the others run beside them: slurm, cluster, parallel, alone and hang.
# pytest-xdist gives each process two modules at first: those after slurm and workflow, with six processes, are short.
LONGEST = (
    "slurm", "cluster", "workflow", "adopting", "kernels_on_host", "docs", "hang", "kernels_compiled", "alone",
    "tma_on_host", "verdicts", "page", "bench", "course", "grade", "check", "measure", "new", "published", "kills",
    "amx", "distributed", "wheel", "same_bits", "parallel", "listed", "compare", "choice", "plan", "extras", "links",
    "main", "history", "report", "host_header", "extending", "own_kernels", "findings", "fingerprint", "architecture",
    "store", "surroundings", "overwritten", "picks", "transcripts", "why", "energy", "residues", "kernels", "scaling",
    "journal", "show", "noise", "analysis",
)  # fmt: skip


class WithoutGpu(pytest.Item):
    """A test that is skipped once, whatever its parameters: each process would collect more than a thousand."""

    def runtest(self):
        pytest.skip(backends.missing("cuda"))


def pytest_pycollect_makeitem(collector, name, obj):
    if any(mark.name == "gpu" for mark in getattr(obj, "pytestmark", ())) and backends.missing("cuda"):
        return WithoutGpu.from_parent(collector, name=name)
    return None


def pytest_collection_modifyitems(config, items):
    """Skip tests whose GPU is missing, and slow tests unless they are asked for.

    The modules are ordered for several processes (pytest-xdist).
    """
    missing = backends.missing("cuda")  # here, because a fixture that skips takes as long as a short test
    for item in items:
        if missing and (item.get_closest_marker("gpu") or "gpu" in getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.skip(reason=missing))
        if item.get_closest_marker("slow") and not config.getoption("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: make test-all (pytest --slow) runs it"))
    place = {f"test_{name}.py": i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (place.get(item.path.name, len(place)), item.path.name))


def pytest_collection_finish():
    """Keep the garbage collector from passing over all modules and tests again and again."""
    gc.freeze()
    gc.set_threshold(20_000)  # nor over the few objects of a test after each 700 new ones


@pytest.fixture(autouse=True, scope="session")
def short_timing():
    """Cold runs in this process flush with a small buffer, and ``hpcmm bench`` makes one short visit.

    No result depends on them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "cache_sizes", lambda: {3: 1 << 16})
        for name, value in {"visits": 1, "max_seconds": 0.05, "cache": "hot"}.items():
            patch.setitem(TIMING, name, value)
        yield


@pytest.fixture(scope="session")
def gpu():
    """The backend of the first GPU; without one, its tests are skipped."""
    import cupy

    cupy.cuda.set_allocator(None)  # no pool: compute-sanitizer then knows where each array ends
    return backends.open_backend("cuda", threads=1, local_rank=0, share_gpu=True)


@contextlib.contextmanager
def started(ranks: int, *program, **environment: str) -> Iterator[subprocess.Popen]:
    """Start a program, or ``"-m", module``, under mpiexec; no process of it outlives the block.

    The launcher is the one beside this Python if there is one, so that the tests need no PATH.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    launcher = shutil.which("mpiexec", path=places)
    assert launcher, "no mpiexec: install the extra mpich, or load the MPI module of this machine"
    command = [launcher, "-n", ranks, sys.executable, "-m", "mpi4py", *program]
    with subprocess.Popen(
        list(map(str, command)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        start_new_session=True,
    ) as job:
        try:
            yield job
        finally:
            kill(job)


def kill(job: subprocess.Popen) -> None:
    """SIGKILL the launcher and its ranks, which may have process groups of their own."""
    if job.poll() is not None:
        return  # its number may be another process's by now
    launcher = psutil.Process(job.pid)
    tree = [launcher, *launcher.children(recursive=True)]
    for process in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(tree[1:], timeout=10)


@pytest.fixture(scope="session")
def mpi_job():
    """Start a program: ``with mpi_job(ranks, program, *arguments, **environment) as process``."""
    return started


@pytest.fixture(scope="session")
def mpiexec():
    """Run a program to its end: ``mpiexec(ranks, program, *arguments, timeout=300, **environment)``."""

    def run(ranks: int, *program, timeout: float = 120, **environment: str):
        with started(ranks, *program, **environment) as job:
            try:
                output, errors = job.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                kill(job)
                output, errors = job.communicate()
                pytest.fail(f"{program[0]} did not end within {timeout} s\n{output}\n{errors}")
        return subprocess.CompletedProcess(job.args, job.returncode, output, errors)

    return run


@pytest.fixture(scope="session")
def mpi_output(mpiexec):
    """Return what a program prints that ends well: ``mpi_output(ranks, program, *arguments)``, as of ``mpiexec``."""

    def run(*program, **options) -> str:
        done = mpiexec(*program, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def command(capfd):
    """Run a command of hpcmm in this process: ``command(name, *arguments, folder=None)``.

    Its status and output are those of a process, whose start takes longer than most commands.
    """

    def run(*arguments, folder: Path | None = None) -> subprocess.CompletedProcess:
        capfd.readouterr()
        with contextlib.chdir(folder or Path.cwd()):
            try:
                code = main.main(list(map(str, arguments)))
            except SystemExit as end:  # of argparse
                code = end.code
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run


@pytest.fixture
def limited_files():
    """Let files grow to a size only, as on a full disk: ``with limited_files(bytes)``."""

    @contextlib.contextmanager
    def limited(size: int) -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)

    return limited


@pytest.fixture
def forgotten(monkeypatch):
    """Remove the kernels and extensions that a test loads."""
    monkeypatch.setattr(extensions, "LOADED", {})
    before = dict(OPERATIONS)
    yield
    OPERATIONS.update(before)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory) -> Path:
    """A temporary folder of all test processes."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def emulated(shared_folder) -> Path:
    """The folder of kernels that are compiled for the host, with what all of them need."""
    folder = shared_folder / "emulated"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def build(emulated):
    """Compile a kernel's source for the host, each text and set of constants once: ``build(text, symbol, options)``."""
    if launch.COMPILER is None:
        pytest.skip("no g++ on this machine")
    folder = emulated / "sources"  # by their contents, so that all test processes share what one has compiled
    folder.mkdir(exist_ok=True)

    @functools.cache
    def build(text: str, symbol: str, options: tuple[str, ...] = ()) -> launch.HostKernel:
        source = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.cu"
        if not source.exists():
            with store.replacing(source) as temporary:
                temporary.write_text(text)
        return launch.compile_kernel(source, symbol, options, emulated)

    return build


# The headless shell comes first: it has no windows, and opens a page in two thirds of the time of the whole browser.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


# It is closed after each module, because a process can have one Playwright only.
@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium; without one, its tests are skipped."""
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine (Debian's package is chromium-headless-shell)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # a container's root has no user namespaces, which the sandbox needs
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def drawn_here():
    """Draw the figures of a module's reports in this process: a renderer of its own takes half a second to start."""
    import vl_convert

    from hpcmm.report import drawing, renderer

    rendered, draw = drawing._run, functools.partial(vl_convert.vegalite_to_svg, vl_version=renderer.VEGA_LITE)
    with pytest.MonkeyPatch.context() as patch:  # read with the first drawing; a browser needs other fonts
        patch.setenv("FONTCONFIG_FILE", str(drawing.FONTS))
        draw({"mark": "text", "encoding": {"text": {"value": "a"}}})

    def run(specs):
        lines = [f"{json.dumps(draw(spec))}\n" for spec in specs]
        return subprocess.CompletedProcess([], 0, "".join(lines), "") if lines else rendered(specs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "_run", run)
        yield


def pytest_terminal_summary(terminalreporter):
    """Show what refused the cheats, whichever process ran the tests."""
    properties = [each for report in terminalreporter.getreports("passed") for each in report.user_properties]
    cheats = [value for name, value in properties if name == "cheat"]
    if cheats:
        terminalreporter.section("cheats: mechanism, number refused, first words of the reasons")
    for mechanism in dict.fromkeys(mechanism for mechanism, _ in cheats):
        reasons = [" ".join(re.split("[ :]+", why)[:3]) for each, why in cheats if each == mechanism]
        most = ", ".join(f"{count} x {why}" for why, count in Counter(reasons).most_common(6))
        terminalreporter.write_line(f"| {mechanism} | {len(reasons)} | {most} |")
