"""branchpoint in the shape in which the comparison takes an engine; its workloads are in `workloads.py`."""

from __future__ import annotations

from typing import Any

import workloads
from common import Outcome, Params, disk_bytes, message, small_state

NAME = "branchpoint"
PACKAGE = "branchpoint"
IMPORT = "branchpoint"
UNSUPPORTED = {
    "W3:sqlite": "there is no SQLite storage yet; files are fsynced",
    "W3:postgres": "there is no Postgres storage yet",
    "W4:sqlite": "there is no SQLite storage yet; files are fsynced",
    "W6:sqlite": "there is no SQLite storage yet; files are fsynced, one journal per execution in one folder",
    "W6:postgres": "there is no Postgres storage yet",
}

_DATA = workloads.Data(small_state=small_state, message=message)


def _case(run: workloads.Case) -> Any:
    async def case(p: Params) -> Outcome:
        done = await run(workloads.Task(p.n, p.workdir, _DATA))
        return Outcome(done.seconds, done.result, done.expected, {**done.extra, **disk_bytes(p.workdir)})

    return case


CASES = {key: _case(run) for key, run in workloads.CASES.items()}
