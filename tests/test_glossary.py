"""One word, one meaning: the glossary of CONTRIBUTING.md, over names, docstrings and texts of the package."""

import ast
import collections
import re
from pathlib import Path

import hpcmm

PACKAGE = Path(hpcmm.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
TEXTS = [each for each in PACKAGE.rglob("*") if each.suffix in (".yaml", ".j2") and "kernels" not in each.parts]
NOT_MEASURED = ("omitted", "left_out", "lacking", "absent", "impossible", "unsuited")
GROUP = "omitted"  # of timings files: a name of their format
PHRASE = re.compile(r"\b(left out|unsuited|lacking)\b", re.IGNORECASE)
# No point without a result is meant: terms of a sum in a hint at a mistake
OTHER = {'guesses[f"the {what} of the k products is left out"]'}
# Names that say nothing: how often they may be bound in a thousand lines
RATIONED = {"each": 18.0, "found": 9.5, "own": 3.5, "known": 3.1}


def names(tree: ast.AST):
    """Yield each name that a module gives to something, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield getattr(node, "id", None) or node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def wrong_names(path: Path, text: str) -> list[str]:
    room = path.relative_to(PACKAGE).parts[0]
    banned = (*NOT_MEASURED, *(("spread",) if room in ("bench", "jobs", "parallel", "experiment") else ()))
    return [
        f"{path.name}:{line}: {name}"
        for name, line in names(ast.parse(text))
        if any(re.search(rf"(^|_){word}(_|$)", name.lower()) for word in banned)
    ]


def wrong_texts(path: Path, text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not any(each in line for each in OTHER)]
    return [f"{path.name}: {line.strip()}" for line in lines if PHRASE.search(line)]


def test_one_word_for_what_was_not_measured_and_spreads_are_deviations():
    texts = {path: path.read_text() for path in (*MODULES, *TEXTS)}
    assert [line for path in MODULES for line in wrong_names(path, texts[path])] == []
    assert [line for path, text in texts.items() for line in wrong_texts(path, text)] == []


def test_the_name_of_the_group_in_files_is_used_as_text_only():
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and GROUP in node.value.split():
                assert node.value == GROUP or f"``{GROUP}``" in node.value, f"{path.name}:{node.lineno}"


def test_names_that_say_nothing_are_rationed():
    texts = [path.read_text() for path in MODULES]
    lines = sum(text.count("\n") for text in texts)
    counts = collections.Counter(name for text in texts for name, _ in names(ast.parse(text)))
    assert {name: counts[name] for name, most in RATIONED.items() if counts[name] * 1000 > most * lines} == {}


def test_the_glossary_stands_in_contributing():
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    assert all(word.replace("_", " ") in text for word in (*NOT_MEASURED, "counterpart", "distribution", "accumulator"))
    assert all(f"`{name}`" in text for name in RATIONED)
