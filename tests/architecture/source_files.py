"""Where the source is and what it imports, read with `ast`, for the tests of the house."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "branchpoint"


@dataclass(frozen=True)
class Import:
    """One imported name: `module` is absolute, `name` is None for `import module`."""

    file: Path
    line: int
    module: str
    name: str | None

    def __str__(self) -> str:
        what = self.module if self.name is None else f"{self.module}.{self.name}"
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {what}"


def python_files(folder: Path = PACKAGE) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str | None:
    """The room of a module of the package: `branchpoint.codec._trees` is in `codec`."""
    parts = module.split(".")
    return parts[1] if parts[0] == "branchpoint" and len(parts) > 1 else None


def imports_of(path: Path) -> Iterator[Import]:
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = package.split(".")[: len(package.split(".")) - node.level + 1]
                module = ".".join([*base, module] if module else base)
            for alias in node.names:
                yield Import(path, node.lineno, module, alias.name)


def _is_made(path: Path) -> bool:
    """Whether a tool made this file: an environment, a cache, a build."""
    folders = path.relative_to(ROOT).parts[:-1]
    return any(
        part in {"__pycache__", "dist", "build"} or (part.startswith(".") and part != ".ci")
        for part in folders
    )


def tracked_files() -> list[Path]:
    """The files that git holds or would hold; where there is no git, every file outside of caches."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return sorted(path for path in ROOT.rglob("*") if path.is_file() and not _is_made(path))
    return sorted(path for name in listing.split("\0") if name and (path := ROOT / name).is_file())
