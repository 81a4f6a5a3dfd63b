"""branchpoint in the shape in which the comparison takes an engine; its workloads are in `workloads.py`."""

from __future__ import annotations

from typing import Any

import workloads
from common import Outcome, Params, disk_bytes, message, small_state

NAME = "branchpoint"
PACKAGE = "branchpoint"
IMPORT = "branchpoint"
UNSUPPORTED: dict[str, str] = {}

_DATA = workloads.Data(small_state=small_state, message=message)


def _case(key: str, run: workloads.Case) -> Any:
    async def case(p: Params) -> Outcome:
        place = p.pg_uri or "" if ":postgres" in key else p.workdir
        done = await run(workloads.Task(p.n, place, _DATA))
        return Outcome(done.seconds, done.result, done.expected, {**done.extra, **disk_bytes(p.workdir)})

    return case


CASES = {key: _case(key, run) for key, run in workloads.CASES.items()}
