"""The check for leftovers in tests/conftest.py finds them, and leaves clean tests alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source_files import ROOT

_TESTS = """
import asyncio
import threading

import pytest
from hypothesis import given, strategies as st

kept = []


async def test_leaves_a_task():
    kept.append(asyncio.ensure_future(asyncio.Event().wait()))


@given(st.booleans())
async def test_leaves_a_task_in_a_property(value):
    kept.append(asyncio.ensure_future(asyncio.Event().wait()))


def test_leaves_a_file(tmp_path):
    kept.append(open(tmp_path / "file", "w"))


def test_leaves_a_loop():
    kept.append(asyncio.new_event_loop())


def test_leaves_a_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()


async def test_clean_task_and_thread():
    await asyncio.gather(asyncio.to_thread(int), asyncio.sleep(0))


def test_clean_file(tmp_path, capsys):
    (tmp_path / "file").write_text("text")


@pytest.mark.leaks("on purpose")
async def test_clean_because_marked():
    kept.append(asyncio.ensure_future(asyncio.Event().wait()))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted in /proc")
def test_leftovers_are_found(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    for path in (ROOT / "tests").glob("*.py"):  # what the check is in, and what that needs
        shutil.copy(path, tmp_path / "tests")
    no_tests = shutil.ignore_patterns("test_*")
    shutil.copytree(ROOT / "tests" / "servers", tmp_path / "tests" / "servers", ignore=no_tests)
    (tmp_path / "tests" / "test_inner.py").write_text(_TESTS)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    red = set(re.findall(r"^(?:FAILED|ERROR) \S+::(test_\w+)", done.stdout, re.MULTILINE))
    assert red == set(re.findall(r"def (test_leaves_\w+)", _TESTS)), done.stdout
