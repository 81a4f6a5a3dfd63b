"""The tree of errors is pinned: a name, a kind or a base that changes here is a change for every caller."""

from __future__ import annotations

import inspect
import re

from branchpoint import errors
from tests.architecture.source_files import ROOT

# name: (kind, retryable, bases). Lines are added; none is changed or removed.
TREE: dict[str, tuple[str, bool, tuple[str, ...]]] = {
    "BranchpointError": ("branchpoint", False, ("Exception",)),
    "DefinitionError": ("definition", False, ("BranchpointError",)),
    "WorkflowValidationError": ("definition.validation", False, ("DefinitionError",)),
    "EdgeDuplicationError": ("definition.edge_duplication", False, ("WorkflowValidationError",)),
    "TypeCompatibilityError": ("definition.type_compatibility", False, ("WorkflowValidationError",)),
    "GraphConnectivityError": ("definition.graph_connectivity", False, ("WorkflowValidationError",)),
    "CallError": ("call", False, ("BranchpointError",)),
    "InvalidCallError": ("call.invalid", False, ("CallError", "ValueError")),
    "InvalidInputError": ("call.invalid_input", False, ("CallError", "TypeError")),
    "InputMismatchError": ("call.input_mismatch", False, ("CallError",)),
    "CheckpointInUseError": ("call.in_use", True, ("CallError",)),
    "UnfinishedWorkError": ("call.unfinished_work", False, ("CallError",)),
    "PendingRequestsError": ("call.pending_requests", False, ("CallError",)),
    "UnknownRequestError": ("call.unknown_request", False, ("CallError", "KeyError")),
    "InvalidResponseError": ("call.invalid_response", False, ("CallError", "TypeError")),
    "SnapshotNotFoundError": ("call.snapshot_not_found", False, ("CallError", "LookupError")),
    "HandlerError": ("handler", False, ("BranchpointError",)),
    "ExecutorStateError": ("handler.executor_state", False, ("HandlerError", "AttributeError")),
    "StateConflictError": ("handler.state_conflict", False, ("HandlerError",)),
    "UndeliverableMessageError": ("handler.undeliverable", False, ("HandlerError",)),
    "OutputTypeError": ("handler.output_type", False, ("HandlerError", "TypeError")),
    "ConvergenceError": ("handler.convergence", False, ("HandlerError",)),
    "EncodingError": ("value", False, ("BranchpointError",)),
    "UnsupportedValueError": ("value.unsupported", False, ("EncodingError", "ValueError")),
    "UnregisteredTypeError": ("value.unregistered_type", False, ("EncodingError", "TypeError")),
    "DataError": ("data", False, ("BranchpointError",)),
    "CorruptCheckpointError": ("data.corrupt", False, ("DataError",)),
    "UnknownVersionError": ("data.unknown_version", False, ("DataError",)),
    "GraphMismatchError": ("data.graph_mismatch", False, ("DataError",)),
    "StorageError": ("storage", True, ("BranchpointError",)),
    "CheckpointConflictError": ("storage.conflict", False, ("StorageError",)),
    "CheckpointLeasedError": ("storage.leased", True, ("CheckpointConflictError",)),
    "CheckpointNotFoundError": ("storage.not_found", False, ("StorageError", "LookupError")),
    "SnapshotNotLoadedError": ("storage.not_loaded", False, ("StorageError",)),
}

CLASSES = {
    name: thing
    for name, thing in vars(errors).items()
    if inspect.isclass(thing) and issubclass(thing, errors.BranchpointError)
}


def test_the_tree_is_pinned() -> None:
    found = {
        name: (cls.kind, cls.retryable, tuple(base.__name__ for base in cls.__bases__))
        for name, cls in CLASSES.items()
    }
    assert found == TREE


def test_kinds_are_unique_and_lie_under_the_kind_of_their_group() -> None:
    kinds = [cls.kind for cls in CLASSES.values()]
    assert len(kinds) == len(set(kinds))
    groups = {cls.kind for cls in errors.BranchpointError.__subclasses__()}
    for cls in CLASSES.values():
        if cls is not errors.BranchpointError:
            assert cls.kind.partition(".")[0] in groups, cls


def test_every_error_is_public_in_its_module() -> None:
    assert set(CLASSES) <= set(errors.__all__)


def test_an_error_has_its_own_text() -> None:
    for name, cls in CLASSES.items():
        assert cls.__dict__.get("__doc__"), f"{name} does not say what happened"
        assert re.fullmatch(r"[A-Z][^{}%]*\.", cls.public_message), f"{name}: no id, no value, no path"


def test_a_key_error_shows_its_text_and_not_its_repr() -> None:
    assert str(errors.UnknownRequestError("no open request 'q1'")) == "no open request 'q1'"


def test_the_page_of_errors_lists_each_with_its_kind() -> None:
    rows = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8").splitlines()
    listed = [
        tuple(cell.strip(" `") for cell in row.split("|")[1:4]) for row in rows if row.startswith("| `")
    ]
    assert listed == [(name, cls.kind, "yes" if cls.retryable else "no") for name, cls in CLASSES.items()]
