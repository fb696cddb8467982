"""Each backend has the whole interface, and nothing outside of the backends uses more than the interface."""

import ast
import inspect
import re
import textwrap
from pathlib import Path

import pytest

import hpcmm
from hpcmm.backends import base
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.model.launch import Run
from hpcmm.operations import MATMUL
from hpcmm.operations.vector_add import VECTOR_ADD

PACKAGE = Path(hpcmm.__file__).parent
OUTSIDE = [each for each in sorted(PACKAGE.rglob("*.py")) if "backends" not in each.relative_to(PACKAGE).parts]
INTERFACES = {"cpu": (base.Backend,), "cuda": (base.Backend, base.Accelerator)}
# Methods of the interface that a CPU need not define: it has no streams, and keeps nothing
OF_GPUS = {"stream", "wait", "finish", "register", "unregister", "synchronize", "release", "compile_ahead"}
LIBRARIES = re.compile("gemm|why_no|reduction|addition|geam|counted")  # functions of a backend that records name


def members(interface: type) -> set[str]:
    return {name for name in (*vars(interface), *inspect.get_annotations(interface)) if not name.startswith("_")}


def without_default(interface: type) -> set[str]:
    """Members that have neither a value nor a body."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(interface))).body
    return {each.name for each in node.body if isinstance(each, ast.FunctionDef) and len(each.body) == 1} | {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign)
    }


def classes(device: str) -> list[ast.ClassDef]:
    """Return the class of a backend and its bases in the same room, read as text: CuPy may not be installed."""
    trees = [ast.parse(path.read_text()) for path in (PACKAGE / "backends" / device).glob("*.py")]
    defined = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    (backend,) = (node for name, node in defined.items() if name.endswith("Backend"))
    return [backend, *(defined[each.id] for each in backend.bases if each.id in defined)]


def functions(device: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for each in classes(device) for node in each.body if isinstance(node, ast.FunctionDef)}


def defines(device: str) -> set[str]:
    """Return the names of methods, and of all that is assigned to a class or to ``self``."""
    found = set(functions(device))
    for node in (node for each in classes(device) for node in ast.walk(each)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and getattr(node.value, "id", "") == "self"
        ):
            found.add(node.attr)
    for node in (node for each in classes(device) for node in each.body if isinstance(node, ast.Assign)):
        found |= {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return found


@pytest.mark.parametrize("device", INTERFACES)
def test_a_backend_has_the_whole_interface(device):
    wanted = set().union(*map(without_default, INTERFACES[device]))
    assert {"prepare", "upload", "kind", "release"} <= wanted
    assert wanted - defines(device) == (OF_GPUS if device == "cpu" else set())


@pytest.mark.parametrize("device", INTERFACES)
def test_the_methods_of_a_backend_take_what_the_interface_says(device):
    differing = {}
    for interface in INTERFACES[device]:
        for name in members(interface) & set(functions(device)):
            wanted = getattr(interface, name, None)
            if inspect.isfunction(wanted):
                arguments = functions(device)[name].args
                given = [each.arg for each in (*arguments.args, *arguments.kwonlyargs)]
                given += [arguments.vararg.arg] if arguments.vararg else []
                defaults = len(arguments.defaults) + sum(each is not None for each in arguments.kw_defaults)
                parameters = inspect.signature(wanted).parameters
                expected = list(parameters), sum(each.default is not each.empty for each in parameters.values())
                if (given, defaults) != expected:
                    differing[name] = given, list(parameters)
    assert differing == {}


def uses(path: Path) -> set[str]:
    """Return what a module uses of ``backend``, ``self.backend`` and the like."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and (getattr(node.value, "id", "") == "backend" or getattr(node.value, "attr", "") == "backend")
    }


def test_callers_use_nothing_outside_of_the_interface():
    interface = set().union(*map(members, INTERFACES["cuda"]))
    interface |= {name for device in INTERFACES for name in defines(device) if LIBRARIES.match(name)}
    used = {path.name: uses(path) - interface for path in OUTSIDE}
    assert {name: each for name, each in used.items() if each} == {}
    # a judge calls its backend ``device``; the record of a library names its call, and what refuses it
    called = {getattr(each.library, "keywords", {}).get("call") for each in MATMUL.ladder}
    called |= {each.unsupported for each in MATMUL.ladder}
    assert interface - set().union(*map(uses, OUTSIDE)) <= {"kind", "upload", "gemm", *called}, "nothing uses it"


def test_a_run_of_a_function_is_a_run_with_steps():
    done = []
    run = Run.of(lambda: done.append("once"))
    assert Run.of(run) is run and run.complaint() == "" and (run.choice, run.launches) == ("", "")
    Run(run, lambda: done.append("before"), lambda: done.append("after")).whole()
    assert done == ["before", "once", "after"]


@pytest.mark.parametrize("variant", ["serial", "numpy"])
def test_a_library_and_a_kernel_are_prepared_as_runs(variant):
    from tasks import task

    backend, problem = CpuBackend(1), task(VECTOR_ADD, (5,), "float32", variant=variant)
    arrays = {name: backend.empty((5,), "float32") for name in "xyz"}
    assert isinstance(backend.prepare(problem, arrays), Run)
