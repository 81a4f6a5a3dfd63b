"""Every Python block of the README and of the docs runs, in order, as a reader would type it in."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# What a newcomer does first, and then does again in the same folder.
TWICE = [
    ROOT / "README.md",
    ROOT / "docs/tutorials/first-workflow.md",
    ROOT / "docs/how-to/load-or-create.md",
]

# Its code is for a server, whose address is in the environment.
POSTGRES = ROOT / "docs/how-to/store-in-postgres.md"

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```\s*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """The code of one fenced block; `line` is where it begins in its page, counted from one."""

    code: str
    line: int


def python_blocks(text: str) -> list[Block]:
    return [
        Block(match["code"], text.count("\n", 0, match.start("code")) + 1)
        for match in _BLOCK.finditer(text)
        if match["language"] == "python"
    ]


async def run_blocks(page: Path, name: str) -> ModuleType:
    """Run a page's blocks in one module, with `await` allowed at the top level."""
    module = ModuleType(name)
    sys.modules[name] = module
    for block in python_blocks(page.read_text(encoding="utf-8")):
        # Empty lines in front make the lines of a traceback those of the page.
        source = "\n" * (block.line - 1) + block.code
        code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        result = eval(code, vars(module))
        if code.co_flags & inspect.CO_COROUTINE:
            await result
    return module


def _has_blocks(page: Path) -> bool:
    return bool(python_blocks(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if _has_blocks(page) and page != POSTGRES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
async def test_r58_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from branchpoint.codec import isolated_registry

    name = "page_" + re.sub(r"\W", "_", page.stem)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # taken out again afterwards
    with isolated_registry():
        await run_blocks(page, name)


async def test_r58_the_code_of_the_page_on_postgres_runs(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from branchpoint.codec import isolated_registry

    monkeypatch.setenv("DATABASE_URL", postgres_dsn)
    monkeypatch.setitem(sys.modules, "page_postgres", ModuleType("page_postgres"))
    with isolated_registry():
        await run_blocks(POSTGRES, "page_postgres")


@pytest.mark.parametrize("page", TWICE, ids=lambda page: str(page.relative_to(ROOT)))
async def test_r58_a_page_can_be_tried_again_where_it_was_tried_before(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from branchpoint.codec import isolated_registry

    name = "page_" + re.sub(r"\W", "_", page.stem)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for _ in range(3):
        with isolated_registry():
            await run_blocks(page, name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    targets = [target.partition("#")[0] for target in _LINK.findall(prose) if "://" not in target]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = ROOT / "docs" / "README.md"
    linked = {(contents.parent / target).resolve() for target in _LINK.findall(contents.read_text("utf-8"))}
    assert {page for page in PAGES if page not in (contents, ROOT / "README.md")} <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_its_language(page: Path) -> None:
    """So that no Python hides in a block that the test above would not see."""
    languages = {match["language"] for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))}
    assert languages <= {"python", "console", "text", "json", "toml"}


def test_blocks_are_found_where_they_are() -> None:
    text = "a\n\n```python\nx = 1\n```\n\n```console\n$ make\n```\n\n```python\ny = 2\nz = 3\n```\n"
    assert python_blocks(text) == [Block("x = 1\n", 4), Block("y = 2\nz = 3\n", 12)]


def test_the_readme_shows_code() -> None:
    assert _has_blocks(ROOT / "README.md")
