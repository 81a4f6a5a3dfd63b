"""The benchmarks measure something that works: every case runs at a tiny size and stores what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import agents
import pytest
from beds import DIMENSIONS, Dimension
from page import ENGINES, Facts, growth, page
from peers import FLOORS, MANY, MORE, plan_of
from workloads import CASES, Case, Data, Done, Task, message, small_state

from tests.architecture.source_files import ROOT

DATA = Data(small_state, message)
BENCHMARKS = ROOT / "benchmarks"


POSTGRES = [key for key in CASES if ":postgres" in key]


async def _right(case: Case, n: int, place: Path | str) -> Done:
    done = await case(Task(n, str(place), DATA))
    assert done.result == done.expected
    return done


@pytest.mark.parametrize("key", [key for key in CASES if not key.startswith("W7") and key not in POSTGRES])
async def test_a_case_stores_what_it_should(key: str, runs: Path) -> None:
    assert (await _right(CASES[key], 3, runs)).seconds > 0


@pytest.mark.parametrize("key", POSTGRES)
async def test_a_case_stores_what_it_should_in_postgres(key: str, postgres_dsn: str) -> None:
    assert (await _right(CASES[key], 3, postgres_dsn)).seconds > 0


@pytest.mark.parametrize("key", [key for key in CASES if key.startswith("W7") and ":prepare" not in key])
async def test_a_resumed_case_leaves_the_folder_as_it_was(key: str, runs: Path) -> None:
    await _right(CASES[f"{key}:prepare"], 4, runs)
    before = {path.name: path.read_bytes() for path in runs.iterdir()}
    for _ in range(2):
        await _right(CASES[key], 4, runs)
        assert {path.name: path.read_bytes() for path in runs.iterdir()} == before


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("dimension", DIMENSIONS, ids=[dimension.make.__name__ for dimension in DIMENSIONS])
async def test_a_bed_goes_back_to_where_it_was_ready(
    dimension: Dimension, stored: bool, tmp_path: Path
) -> None:
    for size in dimension.sizes[:2]:
        if size > 10:
            continue
        bed = await dimension.make(size, tmp_path / str(size) if stored else None)
        for ticks in (3, 2):
            reading = await bed.measure(1, ticks)
            assert await bed.is_right()
            assert reading.seconds > 0
            assert (reading.bytes > 0) is stored
        bed.ticks += 1
        assert not await bed.is_right(), "the check cannot tell a wrong state"


# The comparison, without the other engines.

_COMMON = """
import dataclasses, typing
@dataclasses.dataclass
class Params:
    n: int
    workdir: str
@dataclasses.dataclass
class Outcome:
    seconds: float
    result: typing.Any
    expected: typing.Any
    extra: dict
def small_state(step):
    return {"step": step}
def message(number):
    return {"number": number}
def disk_bytes(folder):
    return {"bytes": 1}
"""
_RUN = """
import asyncio, sys
from common import Params
import peer_branchpoint
for key in ("W1", "W2", "W4:file"):
    done = asyncio.run(peer_branchpoint.CASES[key](Params(2, sys.argv[1])))
    assert done.result == done.expected and done.extra["bytes"] == 1, (key, done)
"""


def test_the_comparison_can_take_branchpoint_as_an_engine(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "common.py").write_text(_COMMON, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(BENCHMARKS), str(tmp_path)])}
    subprocess.run([sys.executable, "-c", _RUN, str(runs)], check=True, env=environment, timeout=60)


PLAN: list[tuple[str, int, int, bool, list[str]]] = [
    ("W1", 1000, 7, False, ["W1"]),
    ("W2", 1000, 5, False, ["W2", "W2:msgpack"]),
    ("W3", 200, 5, False, ["W3:file", "W3:file-msgpack", "W3:sqlite", "W3:postgres", "W3:postgres-msgpack"]),
    ("W4", 200, 3, True, ["W4:file", "W4:sqlite-delta"]),
    ("W4", 800, 2, True, ["W4:file", "W4:sqlite-delta"]),
    ("W5", 1000, 3, False, ["W5:none", "W5:memory"]),
    ("W6", 500, 3, False, ["W6:sqlite", "W6:file", "W6:memory", "W6:postgres"]),
    ("W7", 1000, 3, True, ["W7:sqlite", "W7:file"]),
]


@pytest.mark.parametrize("quick", [False, True])
def test_the_plan_has_all_that_branchpoint_can_do(quick: bool) -> None:
    plan = plan_of(PLAN, quick=quick)
    planned = {key for *_, keys in plan for key in keys}
    assert planned >= set(MORE)
    assert [n for workload, n, *_ in plan if workload == "W4"] == [200, MANY]
    prepared = {key for key in CASES if key.endswith(":prepare")}
    left_out = {"W6:file-msgpack", "W7:file-msgpack"}  # the comparison has no place for them
    assert set(CASES) - prepared - left_out <= planned
    assert set(FLOORS) <= planned


def test_without_the_comparison_it_says_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "--peers", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"There is no comparison at {tmp_path / 'none'}" in done.stderr
    assert "PEERS=" in done.stderr


def test_what_only_the_benchmarks_need_is_pinned_once() -> None:
    lines = (BENCHMARKS / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", pin) for pin in pins)
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert not {pin.partition("==")[0] for pin in pins} & {line.partition("==")[0] for line in constraints}


# The page.


def _summary(workload: str, peer: str, case: str, **more: Any) -> dict[str, Any]:
    row = {"workload": workload, "n": 10, "peer": peer, "case": case, "ok": True, "ratios": {}}
    return {**row, "median": 0.5, "min": 0.25, "max": 1.0, **more}


def _grown(size: int, place: str, ratio: float) -> dict[str, Any]:
    figures = {"microseconds": 1234.4, "bytes": 2345.6, "ratio": ratio}
    return {"dimension": "keys", "size": size, "base": 1, "place": place, **figures}


def test_the_page_shows_each_ratio_in_its_place() -> None:
    memory = {"bytes": 2_500_000, "rss_growth": 3_000_000}
    compared = {
        "summary": [
            _summary("W1", "floor", "W1"),
            _summary("W1", "branchpoint", "W1", ratios={"W1": 2.5}),
            _summary("W1", "langgraph", "W1", ratios={"W1": 1234.5}),
            _summary("W1", "burr", "W1", ok=False, error="it broke"),
            _summary("W4", "branchpoint", "W4:file", n=5, ratios={"W4:sqlite-delta": 9.0}, **memory),
            _summary(
                "W4", "branchpoint", "W4:file", ratios={"W4:sqlite-delta": 1.234, "W4:file": 7.0}, **memory
            ),
            _summary("W7", "branchpoint", "W7:file", ratios={"W7:sqlite": 1.5}),
        ],
        "W8": {"dict | branchpoint copy_value": {"1000": 0.001, "10000": 0.01}},
        "W9": {"branchpoint": {"importtime_ms": 49.6, "modules": 7, "own_mb": 1.0, "total_mb": 2.0}},
    }
    grown = {
        "rows": [_grown(size, place, size * 1.5) for size in (1, 20) for place in ("memory", "file")],
        "peaks": [{"messages": 1000, "data": 500_000, "grown": 1_000_000}],
        "agents": {
            "turns": [{"messages": 1000, "ms": 7.25, "ratio": 3.5}],
            "talks": [{"user": 500, "reply": 1500, "turns": 1000, "ratio": 2.75}],
            "carried": [{"turns": 1000, "bytes": 6_500_000}],
        },
    }
    facts = Facts("2001-02-03", "abc", "2 cores", {"branchpoint": "0.1"})
    text = page(facts, compared, grown)
    assert not re.search(r"[{}]", text), "a place was not filled"
    lines = text.splitlines()
    assert next(line for line in lines if line.startswith("| W1:")) == (
        "| W1: a superstep without checkpoints | 10 | 2.5 | under 3 | 1,234 |  | failed |"
    )
    assert next(line for line in lines if line.startswith("| W4: a message")).startswith(
        "| W4: a message appended to a history in each superstep | 10 | 1.23 | under 4 |"
    )
    assert "| branchpoint `W4:file` | 2.5 | under 4 | 3.0 |" in lines
    assert "| keys | 20 | 1,234 | 30 | 1,234 | 30 | 2,346 |" in lines
    assert "| 1,000 | 0.5 | 1.0 | 2.0 |" in lines
    assert "of commit abc" in text
    assert all(name in text for name in ENGINES.values())
    assert "| 1,000 | 7.2 | under 10 | 3.5 |" in lines
    assert "| 500 and 1,500 | 1,000 | 2.8 | under 3 |" in lines
    assert "| 1,000 | 6.50 | 6,500 |" in lines
    assert len(growth(grown)) == 3


async def test_conversations_are_measured_and_stored_right(tmp_path: Path) -> None:
    assert (await agents._turn(10, tmp_path, 2))["ms"] > 0
    (tmp_path / "talk").mkdir()
    assert 1 < (await agents._talked(1_000, 1_000, tmp_path / "talk", 3))["ratio"] < 4
    few, more = await agents._carried((2, 4))
    assert few["bytes"] < more["bytes"] < 3 * few["bytes"]
