"""A room's `__init__.py` is its only door."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.source_files import Import, imports_of, module_name, python_files, room_of, tree_of

# An import that has to walk past a door is listed here, with its reason.
EXCEPTIONS: dict[tuple[str, str], str] = {}

FILES = python_files()


def _walks_past_a_door(found: Import) -> bool:
    other = room_of(found.module)
    if other is None or other == room_of(module_name(found.file)):
        return False
    beyond = [*found.module.split(".")[2:], found.name or ""]
    return any(part.startswith("_") and not part.startswith("__") for part in beyond)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_no_room_imports_a_private_file_or_name_of_another(path: Path) -> None:
    found = [
        str(item)
        for item in imports_of(path)
        if _walks_past_a_door(item) and (module_name(path), item.module) not in EXCEPTIONS
    ]
    assert not found, "import from the room's door (its __init__.py) instead:\n" + "\n".join(found)


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "__init__.py"], ids=module_name)
def test_a_door_says_what_it_gives(path: Path) -> None:
    """A door that imports anything has an `__all__`, and all of it is bound in the door itself."""
    if not any(room_of(item.module) for item in imports_of(path)):
        return
    names = _all_of(path)
    assert names is not None, f"{module_name(path)} needs __all__"
    assert len(names) == len(set(names)), "a name is listed twice"
    bound = {item.name for item in imports_of(path)} | _bound_at_top(path)
    assert set(names) <= bound, f"not bound in the door: {sorted(set(names) - bound)}"


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.parent.parent.name == "branchpoint"], ids=module_name
)
def test_the_files_of_a_room_are_private(path: Path) -> None:
    assert path.name.startswith("_"), (
        "a file inside a room begins with `_`; its public names leave by the door"
    )


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
