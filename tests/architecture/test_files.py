"""Files are small, have a noun for a name, and cannot execute what they read."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.source_files import imports_of, module_name, python_files, tree_of

FILES = python_files()
LINES = 500
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "core", "internal", "misc", "shared", "base"}

# Modules that turn bytes into code or into objects of any class.
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "shelve", "jsonpickle", "joblib"}
# Modules and builtins that run or import what they are given, by the file that may use them and why.
DYNAMIC_ALLOWED: dict[tuple[str, str], str] = {}
DYNAMIC_CALLS = {"eval", "exec", "compile", "__import__"}
DYNAMIC_MODULES = {"importlib", "runpy", "pkgutil", "imp", "code", "codeop"}


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_file_fits_the_eye(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LINES, f"{lines} lines; split it by noun"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_file_says_what_it_is(path: Path) -> None:
    assert path.stem.strip("_") not in VAGUE_NAMES, "move each part to the room whose noun it is"
    assert ast.get_docstring(tree_of(path)), "the first line says in one sentence what the file is"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_r42_no_pickle_and_nothing_like_it(path: Path) -> None:
    found = [
        str(item)
        for item in imports_of(path)
        if {item.module.partition(".")[0], item.name} & FORBIDDEN_MODULES
    ]
    assert not found


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_r42_marshal_is_never_loaded(path: Path) -> None:
    """`marshal` gives in-memory fingerprints only: it may be written, never read back."""
    from_marshal = {item.name for item in imports_of(path) if item.module == "marshal"}
    assert from_marshal <= {None, "dumps"}, "import marshal.dumps or the module, nothing else"
    for node in ast.walk(tree_of(path)):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "marshal"
        ):
            assert node.attr == "dumps", f"line {node.lineno}: marshal.{node.attr}"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_r42_nothing_is_run_or_imported_by_a_name_found_in_data(path: Path) -> None:
    found = {
        item.module.partition(".")[0]
        for item in imports_of(path)
        if item.module.partition(".")[0] in DYNAMIC_MODULES
    }
    found |= {
        node.func.id
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in DYNAMIC_CALLS
    }
    refused = {use for use in found if (module_name(path), use) not in DYNAMIC_ALLOWED}
    assert not refused, f"needs a line with a reason in DYNAMIC_ALLOWED: {sorted(refused)}"


def test_the_allow_list_has_no_leftovers() -> None:
    present = {module_name(path) for path in FILES}
    assert {module for module, _ in DYNAMIC_ALLOWED} <= present


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_nothing_waits_for_time_to_pass(path: Path) -> None:
    """No polling: `time.sleep` is nowhere, `asyncio.sleep` only as a bare turn of the loop."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and re.fullmatch(
            r"(time|asyncio|anyio)\.sleep", ast.unparse(node.func)
        ):
            assert ast.unparse(node) == "asyncio.sleep(0)", f"line {node.lineno}: {ast.unparse(node)}"
