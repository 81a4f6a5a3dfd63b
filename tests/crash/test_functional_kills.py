"""Functional workflows whose process is killed in the middle of a step, and that go on in another one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from branchpoint import FileCheckpointStorage
from branchpoint.testing import check_lineage_law
from tests.scenario.kit import ROOT

_SCRIPT = """
import asyncio, os, sys
from branchpoint import CheckpointNotFoundError, FileCheckpointStorage
from branchpoint.functional import RunContext, step, workflow

folder, dies_at = sys.argv[1], int(sys.argv[2])
log = os.path.join(folder, "log")


def done(what):
    with open(log, "a") as lines:
        lines.write(what + "\\n")


@step
async def fetch(n: int) -> int:
    done(f"fetch-{n}")
    if n == dies_at:
        os.kill(os.getpid(), 9)
    return n * n


@step
def store(total: int) -> str:
    done("store")
    if dies_at == 100:
        os.kill(os.getpid(), 9)
    return f"stored {total}"


@workflow
async def pipeline(count: int, ctx: RunContext) -> str:
    total = 0
    for n in range(count):
        total += await fetch(n)
    total += sum(await asyncio.gather(*(fetch(n) for n in range(count, 2 * count))))
    if not await ctx.request_info(total, bool):
        return "no"
    return await store(total)


async def main():
    async with FileCheckpointStorage(os.path.join(folder, "runs")) as storage:
        try:
            cp = await storage.load("run")
        except CheckpointNotFoundError:
            cp = pipeline.create_checkpoint("run", storage)
            result = await pipeline.run(4, checkpoint=cp)
        else:
            if cp.status == "idle_with_pending_requests":
                [asked] = cp.pending_requests
                result = await pipeline.run(responses={asked.request_id: True}, checkpoint=cp)
            else:
                result = await pipeline.run(checkpoint=cp)
        print(result.get_outputs(), len(result.get_request_info_events()))


asyncio.run(main())
"""


def run(folder: Path, dies_at: int) -> subprocess.CompletedProcess[str]:
    script = folder / "pipeline.py"
    script.write_text(_SCRIPT, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(script), str(folder), str(dies_at)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


@pytest.mark.parametrize("dies_at", [0, 2, 4, 6])
def test_r53_a_killed_process_repeats_only_the_step_it_was_in(tmp_path: Path, dies_at: int) -> None:
    killed = run(tmp_path, dies_at)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = run(tmp_path, -1)
    assert resumed.stdout == "[] 1\n", resumed.stderr
    killed = run(tmp_path, 100)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ended = run(tmp_path, -1)
    assert ended.stdout == f"['stored {sum(n * n for n in range(8))}'] 0\n", ended.stderr
    did = Counter((tmp_path / "log").read_text(encoding="utf-8").split())
    alone = {f"fetch-{n}" for n in range(min(dies_at, 4))}
    assert all(did[name] == 1 for name in alone)
    assert did[f"fetch-{dies_at}"] == 2
    assert did["store"] == 2
    assert max(did.values()) == 2
    if dies_at < 4:
        assert sum(did.values()) == 8 + 1 + 2
    asyncio.run(_lawful(tmp_path / "runs"))


async def _lawful(folder: Path) -> None:
    async with FileCheckpointStorage(folder) as storage:
        check_lineage_law(await storage.load("run"))
