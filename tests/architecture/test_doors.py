"""A room's `__init__.py` is its only door."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.source_files import (
    PACKAGE,
    Import,
    imports_of,
    module_name,
    python_files,
    room_of,
    tree_of,
)

# An import that has to walk past a door is listed here, with its reason.
EXCEPTIONS: dict[tuple[str, str], str] = {}

FILES = python_files()


def _walks_past_a_door(found: Import) -> bool:
    other = room_of(found.module)
    if other is None or other == room_of(module_name(found.file)):
        return False
    beyond = [*found.module.split(".")[2:], found.name or ""]
    return any(part.startswith("_") and not part.startswith("__") for part in beyond)


def test_no_room_imports_a_private_file_or_name_of_another() -> None:
    found = [
        str(item)
        for path in FILES
        for item in imports_of(path)
        if _walks_past_a_door(item) and (module_name(path), item.module) not in EXCEPTIONS
    ]
    assert not found, "import from the room's door (its __init__.py) instead"


def test_a_door_says_what_it_gives() -> None:
    """A door that imports anything has an `__all__`, and all of it is bound in the door itself."""
    for path in FILES:
        if path.name != "__init__.py" or not any(room_of(item.module) for item in imports_of(path)):
            continue
        names = _all_of(path)
        assert names is not None, f"{module_name(path)} needs __all__"
        assert len(names) == len(set(names)), f"{module_name(path)} lists a name twice"
        missing = set(names) - {item.name for item in imports_of(path)} - _bound_at_top(path)
        assert not missing, f"{module_name(path)} does not bind what it lists"


def test_the_files_of_a_room_are_private() -> None:
    inside = [path for path in FILES if path.parent != PACKAGE]
    public = [module_name(path) for path in inside if not path.name.startswith("_")]
    assert not public, "a file inside a room begins with `_`; its public names leave by the door"


def test_a_private_import_would_be_seen() -> None:
    here = PACKAGE / "engine" / "_driver.py"
    assert _walks_past_a_door(Import(here, 1, "branchpoint.codec._cut", "cut"))
    assert _walks_past_a_door(Import(here, 1, "branchpoint.codec", "_cut"))
    assert not _walks_past_a_door(Import(here, 1, "branchpoint.engine._state", "RunState"))
    assert not _walks_past_a_door(Import(here, 1, "branchpoint.codec", "encode"))


def _all_of(path: Path) -> list[str] | None:
    for node in tree_of(path).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return list(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    return None


def _bound_at_top(path: Path) -> set[str]:
    bound: set[str] = set()
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            bound.add(node.name)
        elif isinstance(node, ast.Assign):
            bound |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            bound.add(node.target.id)
    return bound
