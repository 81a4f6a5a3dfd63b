"""Files are small, have a noun for a name, and cannot execute what they read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source_files import ROOT, imports_of, module_name, python_files, tree_of

FILES = python_files()
LINES = 500
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "core", "internal", "misc", "shared", "base"}

# Modules that turn bytes into code or into objects of any class.
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "shelve", "jsonpickle", "joblib"}
# Modules and builtins that run or import what they are given, by the file that may use them and why.
DYNAMIC_ALLOWED: dict[tuple[str, str], str] = {
    ("branchpoint.testing._child", "importlib"): "a test names what a process of the kit opens",
}
DYNAMIC_CALLS = {"eval", "exec", "compile", "__import__"}
DYNAMIC_MODULES = {"importlib", "runpy", "pkgutil", "imp", "code", "codeop"}


def _calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call))


def _at(path: Path, node: ast.expr) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def test_files_fit_the_eye() -> None:
    lengths = {module_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    long = {name: lines for name, lines in lengths.items() if lines > LINES}
    assert not long, "split it by noun"


def test_files_have_plain_names() -> None:
    parts = {part.strip("_") for path in FILES for part in module_name(path).split(".")}
    assert not parts & VAGUE_NAMES, "move each part to the room whose noun it is"


def test_files_say_what_they_are() -> None:
    silent = [module_name(path) for path in FILES if not ast.get_docstring(tree_of(path))]
    assert not silent, "the first line says in one sentence what the file is"


def test_r42_no_pickle_and_nothing_like_it() -> None:
    imports = [item for path in FILES for item in imports_of(path)]
    found = [str(item) for item in imports if {item.module.partition(".")[0], item.name} & FORBIDDEN_MODULES]
    assert not found


def test_r42_marshal_is_never_loaded() -> None:
    """`marshal` gives in-memory fingerprints only: it may be written, never read back."""
    found = [
        str(item)
        for path in FILES
        for item in imports_of(path)
        if item.module == "marshal" and item.name not in (None, "dumps")
    ]
    found += [
        _at(path, node)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and re.fullmatch(r"marshal\.(?!dumps$)\w+", ast.unparse(node))
    ]
    assert not found


def test_r42_nothing_is_run_or_imported_by_a_name_found_in_data() -> None:
    uses = {
        (module_name(path), item.module.partition(".")[0])
        for path in FILES
        for item in imports_of(path)
        if item.module.partition(".")[0] in DYNAMIC_MODULES
    }
    uses |= {
        (module_name(path), node.func.id)
        for path in FILES
        for node in _calls(path)
        if isinstance(node.func, ast.Name) and node.func.id in DYNAMIC_CALLS
    }
    assert uses <= DYNAMIC_ALLOWED.keys(), "needs a line with a reason in DYNAMIC_ALLOWED"
    assert uses >= DYNAMIC_ALLOWED.keys(), "DYNAMIC_ALLOWED has a line that nothing needs"


def test_nothing_waits_for_time_to_pass() -> None:
    """No polling: `time.sleep` is nowhere, `asyncio.sleep` only as a bare turn of the loop."""
    found = [
        _at(path, node)
        for path in FILES
        for node in _calls(path)
        if re.fullmatch(r"(time|asyncio|anyio)\.sleep", ast.unparse(node.func))
        and ast.unparse(node) != "asyncio.sleep(0)"
    ]
    assert not found
