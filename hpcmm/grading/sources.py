"""Compile submitted sources in isolation, from files of their folder and headers of the system."""

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcmm import kernels
from hpcmm.backends.emulated import launch
from hpcmm.grading import sandbox
from hpcmm.grading.sandbox import NotGraded, Sandbox
from hpcmm.grading.session import Refused
from hpcmm.kernels import modules
from hpcmm.model import DeviceError
from hpcmm.model.records import beside
from hpcmm.system import files

SHARED = ("ptx.cuh",)  # headers of the package that a solution may include
MOST_ERROR = 1 << 16  # characters of a compiler's message: the whole, but for one without an end
TABLES = beside(__file__)
# Assembly in what the compiler writes, and that of a launch's dynamic shared memory
ASSEMBLY = re.compile(rb"^#APP|^[^\"\n]*\.(macro|irpc?|rept|incbin|include|altmacro)\b", re.MULTILINE)
NAMED = re.escape(launch.SHARED).replace(re.escape("{}"), r"(.globl \w+; \w+: )+")
OF_LAUNCH = re.compile(rf"#APP\n(#.*\n)*\s*{NAMED}\n(#.*\n)*#NO_APP\n".encode())


@dataclass(frozen=True)
class Tools:
    """Compilers and binutils for one submitted file."""

    isolation: Sandbox
    source: Path
    folder: Path  # folder of the compiled module
    seconds: float  # time limit of each run

    @property
    def library(self) -> Path:
        return self.folder / f"{self.source.stem}.so"

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    def run(
        self, command: Sequence[str], results: Sequence[str] = (), text: bytes = b"", read: Sequence[Path] = ()
    ) -> list[bytes]:
        """Run a tool; return its results, which are files in ``scratch``, or without any its output."""
        found = shutil.which(command[0])
        if not found:
            raise NotGraded(f"{command[0]} is missing on this machine: install gcc and binutils")
        prefix = Path(found).resolve().parents[1]
        if prefix in (Path.home(), *Path.home().parents):
            raise NotGraded(f"{found}: a compiler in this place would show the files of the account to submissions")
        self.scratch.mkdir(exist_ok=True)
        program = self.isolation.wrap(
            ["sh", "-c", TABLES["script"], "sh", " ".join(results), *command],
            [*sandbox.SYSTEM, prefix, self.source.parent, *read],
            hidden=[sandbox.PACKAGE],
            scratch=self.scratch,
        )
        environment = {name: os.environ[name] for name in sandbox.PATHS if name in os.environ}
        environment |= {"LC_ALL": "C.UTF-8", "TMPDIR": str(self.scratch)}
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            with subprocess.Popen(
                *(program,),
                **{"stdin": subprocess.PIPE, "stdout": output, "stderr": errors},
                **{"env": environment, "cwd": self.scratch, "process_group": 0},
            ) as process:
                try:
                    process.communicate(text, timeout=self.seconds)
                except BaseException as error:
                    os.killpg(process.pid, signal.SIGKILL)
                    if isinstance(error, subprocess.TimeoutExpired):
                        raise Refused(f"took longer than {self.seconds:g} s to compile") from None
                    raise
            for each in (output, errors):
                each.seek(0)
            if process.returncode:
                message = errors.read(4 * MOST_ERROR).decode(errors="replace")
                message = message.replace(f"{self.source.parent}/", "").strip()[:MOST_ERROR]
                raise Refused(f"does not compile:\n{message or f'exit status {process.returncode}'}")
            return [output.read(int(output.readline())) for _ in results] or [output.read()]

    def preprocess(self, command: Sequence[str], text: bytes = b"", own: Sequence[Path] = ()) -> None:
        """Refuse files outside the folder of the source, or of a text that includes it, and the system."""
        self.check_read(self.run([*command, "-M"], text=text, read=own)[0], command[0], own)

    def build(self, command: Sequence[str], text: bytes = b"", own: Sequence[Path] = ()) -> None:
        """Write the library, and check which files the assembler reads."""
        more = [f"-Wa,--MD,{self.scratch}/read", "-o", "built.so"]
        by_assembler, built = self.run([*command, *more], ["read", "built.so"], text, own)
        self.check_read(by_assembler, command[0], own)
        self.library.write_bytes(built)

    def check_read(self, rule: bytes, program: str, own: Sequence[Path]) -> None:
        allowed = [self.source.parent, self.scratch, *own, *system_headers(program)]
        for file in modules.read_by(rule):
            path = Path(os.path.normpath(self.scratch / file))
            if file != "-" and not any(path.is_relative_to(each) for each in allowed):
                raise Refused(f"includes {file}; allowed: system headers, {', '.join(SHARED)}, files of its own folder")


@functools.cache
def system_headers(program: str) -> tuple[str, ...]:
    command = [program, "-E", "-v", "-x", "c++" if program == launch.COMPILER else "c", os.devnull]
    said = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"}).stderr
    listed = said.partition("search starts here:\n#include <...>")[2] or said.partition("#include <...>")[2]
    folders = [line.strip() for line in listed.partition("End of search list")[0].splitlines()[1:]]
    # the C library's headers that are read in any case, such as stdc-predef.h, are there, too
    return tuple(os.path.normpath(folder) for folder in folders if folder.startswith("/"))


def compiled(tools: Tools, macros: Mapping[str, Any]) -> None:
    if not modules.compiler()[0]:
        raise NotGraded(modules.compiler()[1])
    command = modules.command_of(tools.source, macros, ())
    tools.preprocess(command)
    tools.build(command)


def emulated(tools: Tools, symbol: str, macros: Mapping[str, Any]) -> launch.Entry:
    """Compile a CUDA kernel for the host; return how to launch it. Refuse what a GPU does not have."""
    if not launch.COMPILER:
        raise NotGraded("there is neither a GPU nor g++ on this machine: install g++ to emulate CUDA kernels")
    defines, folder = [f"-D{name}={value}" for name, value in macros.items()], files.cache()
    options, text, _ = launch.translation(tools.source, symbol, defines, folder)
    header = next(option[2:] for option in options if option.startswith("-I"))
    own = [launch.FOLDER, Path(header), launch.runtime(folder), *(kernels.FOLDER / name for name in SHARED)]
    command, language = [launch.COMPILER, *launch.FLAGS], options.index("-x")
    tools.preprocess([*command, *options], text.encode(), own)
    (assembly,) = tools.run([*command, *options, "-S", "-o", "built.s"], ["built.s"], text.encode(), own)
    if ASSEMBLY.search(OF_LAUNCH.sub(b"", assembly)):
        raise Refused("contains assembly, which the host emulation does not run")
    tools.build([*command, *options[:language], "-x", "assembler", *options[language + 2 :]], assembly, own)
    about = tools.run([*launch.ABOUT, str(tools.library)], read=[tools.library])[0].decode(errors="replace")
    if re.search(TABLES["before_launch"], about):
        raise Refused("has code that runs before a launch: a constructor or the initialization of a variable")
    names = {name.partition("@")[0]: place == "UND" for _, _, _, place, name in launch.SYMBOL.findall(about)}
    allowed, refused = (re.compile(TABLES[name]) for name in ("device_functions", "of_emulation"))
    if wrong := [name for name, undefined in names.items() if undefined and not allowed.fullmatch(name)]:
        more = " and others" if len(wrong) > 5 else ""
        raise Refused(f"calls {', '.join(wrong[:5])}{more}, which a GPU does not have")
    if wrong := [name for name, undefined in names.items() if not undefined and refused.fullmatch(name)]:
        raise Refused(f"defines {', '.join(wrong[:5])}, a name of the host emulation")
    try:
        return launch.entry(about, symbol, folder)
    except DeviceError as error:
        raise Refused(str(error)) from None
