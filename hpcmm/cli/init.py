"""``hpcmm init``: write a working folder with the files that a user edits."""

import argparse
import shlex
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import hpcmm
from hpcmm.model import HpcmmError

CONTENT = ("Snakefile", "config.yaml", "jobs", "profiles")


def run(arguments: argparse.Namespace) -> int:
    write(arguments.folder)
    print(f"{arguments.folder}: wrote {', '.join(CONTENT)}")
    there = "" if arguments.folder.samefile(".") else f"cd {shlex.quote(str(arguments.folder))} && "
    print(f"edit config.yaml, then: {there}hpcmm run")
    return 0


def shipped() -> Path:
    """Return the folder with the files that ``write`` copies: the checkout, or where the build put them."""
    package = Path(hpcmm.__file__).parent
    return package.parent if (package.parent / "pyproject.toml").exists() else package / "workflow"


def config() -> Path:
    """Return the config of the current folder if it has one, otherwise the one of the package."""
    own = Path("config.yaml")
    return own if own.exists() else shipped() / own


def write(folder: Path) -> None:
    """Copy the files of a working folder; nothing is left if one exists already or cannot be written."""
    if present := [name for name in CONTENT if (folder / name).exists()]:
        raise HpcmmError(f"{folder}: exists already: {', '.join(present)}; give another folder, or remove them")
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as part:
            for source in (shipped() / name for name in CONTENT):
                if source.is_dir():
                    shutil.copytree(source, Path(part, source.name), ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(source, part)
            for name in CONTENT:
                Path(part, name).rename(folder / name)
    except OSError as error:
        if new:
            with suppress(OSError):
                folder.rmdir()
        raise HpcmmError(f"{folder}: cannot be written: {error.strerror or error}") from error
