"""Each sample of `examples/orchestrations` prints what it says it prints, as a reader would start it."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "examples" / "orchestrations").glob("*.py"))


def promised(sample: Path) -> str:
    """What the first lines of a sample say that it prints."""
    _, _, printed = (ast.get_docstring(ast.parse(sample.read_text(encoding="utf-8"))) or "").partition(
        "Prints:\n"
    )
    return textwrap.dedent(printed) + "\n"


def test_there_is_a_sample_for_each_pattern_and_each_question_to_a_person() -> None:
    names = {sample.stem for sample in SAMPLES}
    assert names == {
        "concurrent_panel",
        "group_chat",
        "group_chat_approval",
        "handoff",
        "magentic",
        "plan_review",
        "request_info",
        "sequential",
        "tool_approval",
    }


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.stem)
def test_r58_a_sample_prints_what_it_says(sample: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(sample)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == promised(sample)
    assert not list(tmp_path.iterdir())
