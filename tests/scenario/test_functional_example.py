"""The example of a functional workflow, as a person would start it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.scenario.kit import ROOT


def start(folder: Path) -> list[str]:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "functional.py"), str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    return ran.stdout.splitlines()


def test_r53_the_example_asks_and_goes_on_in_another_process(tmp_path: Path) -> None:
    first = start(tmp_path)
    assert first[:3] == [f"fetching the price of {item}" for item in ("tea", "rice", "salt")]
    assert first[3:] == ["may this be ordered? {'items': ['tea', 'rice', 'salt'], 'total': 8}"]
    [ordered] = start(tmp_path)
    assert ordered.startswith("ordered tea, rice, salt for 8 under ")
    assert start(tmp_path) == [ordered]
