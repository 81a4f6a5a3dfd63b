"""What a stranger's backend needs: the storage contract as tests that can fail, and what breaks storages on purpose.

Say how your storage is opened by a subclass of `Place`, and run the contract by `validate(MyPlace)`, or as
tests of pytest by a subclass of `CheckpointStorageContract`. `branchpoint.testing.mutants` has storages that are
each broken in one way, and the clause that finds it. `FaultyStorage` fails where a test says,
`check_lineage_law` is what a checkpoint obeys at every moment, and `storage_machine` does whatever can be done in any
order; it and `branchpoint.testing.strategies` need hypothesis, which the extra `testing` brings.
"""

from __future__ import annotations

from branchpoint.testing._clause import Clause, clauses
from branchpoint.testing._faulty import Fault, FaultyStorage, Gate
from branchpoint.testing._lineage_law import LineageLaw, Sight, check_lineage_law
from branchpoint.testing._machine import storage_machine
from branchpoint.testing._place import Place, Process
from branchpoint.testing._report import Outcome, Report
from branchpoint.testing._suite import CheckpointStorageContract
from branchpoint.testing._validate import validate

__all__ = [
    "CheckpointStorageContract",
    "Clause",
    "Fault",
    "FaultyStorage",
    "Gate",
    "LineageLaw",
    "Outcome",
    "Place",
    "Process",
    "Report",
    "Sight",
    "check_lineage_law",
    "clauses",
    "storage_machine",
    "validate",
]
