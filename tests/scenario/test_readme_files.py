"""The code of the README, put into a file and run by a fresh interpreter, as a new user would."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenario.test_docs import ROOT, python_blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICKSTART, AGENTS = README.split("\n## Agents\n")[0], README.split("\n## Agents\n")[1]

WriteFile = Callable[[str, str], Path]


@pytest.fixture
def plain_user(write_file: WriteFile) -> None:
    """Somebody who installed the package alone: neither tests nor examples, nor what only tests need."""
    for name in ("pytest", "hypothesis", "tests", "examples", "openai", "agent_framework_openai"):
        write_file(f"{name}.py", f"raise ModuleNotFoundError('{name} is not installed', name='{name}')\n")


def run(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", file.name],
        cwd=file.parent,
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.usefixtures("plain_user")
def test_r58_the_agents_of_the_readme_run_from_a_file(write_file: WriteFile) -> None:
    (block,) = python_blocks(AGENTS)
    file = write_file("poems.py", block.code)
    for _ in range(2):  # and again, beside what the first time left
        done = run(file)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "Rain, softly, on the roof.\nGood.\n"
    told = AGENTS.partition("It prints ")[2].partition("\n")[0]
    assert all(f"`{line}`" in told for line in done.stdout.splitlines())


@pytest.mark.usefixtures("plain_user")
def test_r58_the_quickstart_runs_from_a_file_as_it_says(write_file: WriteFile) -> None:
    """With its `await` inside `async def main():`, and `asyncio.run(main())` at the end."""
    code = "".join(block.code for block in python_blocks(QUICKSTART))
    body = textwrap.indent(code, "    ")
    text = f"import asyncio\n\n\nasync def main():\n{body}\n\nasyncio.run(main())\n"
    done = run(write_file("quickstart.py", text))
    assert (done.returncode, done.stderr) == (0, "")
