"""Write the tests of each requirement into docs/reference/requirements.md.

A test that shows requirement R07 carries its number in its name: `test_r07_…`; one that shows two
carries both: `test_r17_r31_…`. A clause of the storage contract names them in its decorator. The
sentences of the page are written by hand; only the last column of its tables is written here. Run
this file after adding or renaming such a test.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

from branchpoint.testing import clauses

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "requirements.md"

_REQUIREMENT = re.compile(r"R\d\d")
_NUMBERS = re.compile(r"^test_((?:r\d\d_)+)")
_ROW = re.compile(r"^\| (R\d\d) \| (.*?) \|(?: .*)? ?\|$")
NONE_YET = "none yet"

Tests = dict[str, dict[str, list[str]]]


def by_requirement(folder: Path = ROOT / "tests") -> Tests:
    """Requirement to test file to the names of the tests in it, all sorted."""
    found: Tests = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if match := _NUMBERS.match(node.name):
                for number in match[1].upper().strip("_").split("_"):
                    found[number][str(path.relative_to(ROOT))].append(node.name)
    for one in clauses():
        path = ROOT / "src" / f"{one.check.__module__.replace('.', '/')}.py"
        for number in one.shows:
            if _REQUIREMENT.fullmatch(number):
                found[number][str(path.relative_to(ROOT))].append(one.name)
    return found


def cell(files: dict[str, list[str]]) -> str:
    """One line: each file once, as a link from the page, with its tests behind it."""
    if not files:
        return NONE_YET
    parts = []
    for name, tests in sorted(files.items()):
        listed = ", ".join(f"`{test}`" for test in sorted(set(tests)))
        parts.append(
            f"[{name.removeprefix('tests/').removeprefix('src/branchpoint/')}](../../{name}): {listed}"
        )
    return "<br>".join(parts)


def rendered(page: str, tests: Tests) -> str:
    lines = []
    for line in page.splitlines():
        row = _ROW.match(line)
        lines.append(f"| {row[1]} | {row[2]} | {cell(tests.get(row[1], {}))} |" if row else line)
    return "\n".join(lines) + "\n"


def listed_requirements(page: str) -> list[str]:
    return [row[1] for line in page.splitlines() if (row := _ROW.match(line))]


def main() -> int:
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), by_requirement()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
