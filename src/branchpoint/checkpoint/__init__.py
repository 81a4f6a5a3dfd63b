"""What has happened: checkpoints, snapshots, lineage, buckets, the commit, and the storage contract."""

from __future__ import annotations

from branchpoint.checkpoint._aside import aside
from branchpoint.checkpoint._checkpoint import Checkpoint
from branchpoint.checkpoint._contract import (
    Capability,
    CheckpointInfo,
    CheckpointStorage,
    Lease,
    StoredHead,
    StoredLease,
    StoredRecords,
    refuse_leased,
    refuse_lost,
    refuse_stale,
)
from branchpoint.checkpoint._events import (
    BoundaryView,
    OpenedRequest,
    ProducedOutput,
    durable_events,
    request_event,
)
from branchpoint.checkpoint._hold import Hold
from branchpoint.checkpoint._leasing import LeaseRecord, check_lease_seconds, renewed_every
from branchpoint.checkpoint._lineage import (
    check_lineage,
    children,
    common_ancestor,
    is_ancestor,
    path_to_root,
)
from branchpoint.checkpoint._manifest import (
    BOUNDARIES,
    FORMAT_VERSION,
    INNER_BOUNDARIES,
    BoundaryName,
    Format,
    Header,
    Manifest,
    Origin,
    Status,
    check_manifest,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
    is_v1_checkpoint,
    refuse_v1,
)
from branchpoint.checkpoint._plain import check_id, check_lazy_over, copy_metadata, copy_signature
from branchpoint.checkpoint._records import EarlierInput, OutputRecord, PendingRequest
from branchpoint.checkpoint._restoring import parts_below
from branchpoint.checkpoint._shape import BUCKETS, MESSAGES, OpenedInput, OpenedState, read_state
from branchpoint.checkpoint._snapshot import CheckpointSnapshot, check_part
from branchpoint.checkpoint._standin import checkpoint_standin, snapshot_standin
from branchpoint.checkpoint._state import Summary, status_of
from branchpoint.checkpoint._stored import Source, Stored, stored_state
from branchpoint.checkpoint._telling import Announced, announced, boundary_view
from branchpoint.checkpoint._whole import checkpoint_of, copied_checkpoint, mark_of, whole_of

__all__ = [
    "Announced",
    "BOUNDARIES",
    "BUCKETS",
    "FORMAT_VERSION",
    "INNER_BOUNDARIES",
    "MESSAGES",
    "BoundaryName",
    "BoundaryView",
    "Capability",
    "Checkpoint",
    "CheckpointInfo",
    "CheckpointSnapshot",
    "CheckpointStorage",
    "EarlierInput",
    "Format",
    "Header",
    "Hold",
    "Lease",
    "LeaseRecord",
    "Manifest",
    "OpenedInput",
    "OpenedRequest",
    "OpenedState",
    "Origin",
    "OutputRecord",
    "PendingRequest",
    "ProducedOutput",
    "Source",
    "Status",
    "Stored",
    "StoredHead",
    "StoredLease",
    "StoredRecords",
    "Summary",
    "announced",
    "aside",
    "boundary_view",
    "check_id",
    "check_lazy_over",
    "check_lease_seconds",
    "check_lineage",
    "check_manifest",
    "check_part",
    "checkpoint_of",
    "checkpoint_standin",
    "children",
    "common_ancestor",
    "copied_checkpoint",
    "copy_metadata",
    "copy_signature",
    "decode_header",
    "decode_manifest",
    "durable_events",
    "encode_header",
    "encode_manifest",
    "is_ancestor",
    "is_v1_checkpoint",
    "mark_of",
    "parts_below",
    "path_to_root",
    "read_state",
    "refuse_leased",
    "refuse_lost",
    "refuse_stale",
    "refuse_v1",
    "renewed_every",
    "request_event",
    "snapshot_standin",
    "status_of",
    "stored_state",
    "whole_of",
]
