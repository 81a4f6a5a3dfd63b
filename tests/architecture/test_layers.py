"""The layers of pyproject.toml hold, are complete, and can fail."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from tests.architecture.source_files import PACKAGE, ROOT


def test_rooms_import_only_from_the_rooms_below_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _contract_kept(ROOT / "pyproject.toml", monkeypatch), capsys.readouterr().out


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
    assert contract.get("ignore_imports", []) == []
    assert sorted(placed) == sorted(rooms)


def test_a_room_that_is_not_placed_breaks_the_contract(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    changed = text.replace('"errors : ids : clock"', '"errors : ids"')
    assert changed != text
    config = tmp_path / "pyproject.toml"
    config.write_text(changed, encoding="utf-8")

    assert not _contract_kept(config, monkeypatch)
    assert "branchpoint.clock" in capsys.readouterr().out


def _layers_contract() -> dict[str, Any]:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract: dict[str, Any]
    (contract,) = [entry for entry in options["contracts"] if entry["id"] == "layers"]
    return contract


def _contract_kept(config: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")
    return lint_imports(config_filename=str(config), no_cache=True) == EXIT_STATUS_SUCCESS
