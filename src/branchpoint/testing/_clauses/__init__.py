"""The clauses of the storage contract, a noun a file; importing them makes them known."""

from __future__ import annotations

from branchpoint.testing._clauses import (
    _clocks,
    _deleting,
    _fidelity,
    _interrupting,
    _isolation,
    _keeping,
    _lazy,
    _leasing,
    _leftovers,
    _listing,
    _names,
    _processes,
    _pruning,
    _replies,
    _running,
    _winning,
)

__all__ = ["GROUPS"]

GROUPS = (
    _keeping,
    _fidelity,
    _isolation,
    _winning,
    _interrupting,
    _replies,
    _deleting,
    _pruning,
    _names,
    _clocks,
    _leftovers,
    _listing,
    _lazy,
    _leasing,
    _running,
    _processes,
)
"""The files, in the order in which their clauses are checked: what others build on comes first."""
