"""The layers of pyproject.toml hold, are complete, and can fail."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.architecture.source_files import PACKAGE, ROOT

# In a process of its own: the linter configures logging, which silences every logger made before.
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"


def test_rooms_import_only_from_the_rooms_below_them() -> None:
    kept, said = _linted(ROOT / "pyproject.toml")
    assert kept, said


def test_the_contract_is_exhaustive_and_names_every_room_once() -> None:
    contract = _layers_contract()
    placed = [room.strip() for line in contract["layers"] for room in line.replace("|", ":").split(":")]
    rooms = {
        path.stem
        for path in PACKAGE.iterdir()
        if (path.is_dir() and (path / "__init__.py").exists()) or path.suffix == ".py"
    } - {"__init__"}

    assert contract["exhaustive"] is True
    assert contract.get("exhaustive_ignores", []) == []
    # A builder that meets an agent imports the room of agents, and a type that is met or loaded has its room
    # imported: in one file, by fixed names.
    assert contract["ignore_imports"] == [
        "branchpoint.workflow._agents -> branchpoint.agents",
        "branchpoint.workflow._agents -> branchpoint.orchestrations",
    ]
    assert sorted(placed) == sorted(rooms)


def test_a_room_that_is_not_placed_breaks_the_contract(tmp_path: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    changed = text.replace('"errors : ids : clock"', '"errors : ids"')
    assert changed != text
    config = tmp_path / "pyproject.toml"
    config.write_text(changed, encoding="utf-8")

    kept, said = _linted(config)
    assert not kept
    assert "branchpoint.clock" in said


def _layers_contract() -> dict[str, Any]:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract: dict[str, Any]
    (contract,) = [entry for entry in options["contracts"] if entry["id"] == "layers"]
    return contract


def _linted(config: Path) -> tuple[bool, str]:
    done = subprocess.run(
        [sys.executable, "-c", LINT, str(config)],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout + done.stderr
