"""Values to bytes and back: one codec, one registry of types, and the parts that snapshots share.

This is the only door of the room. A value is *encoded* once and may then stand, as `Encoded`,
inside any later value; what is large is cut into parts named by their digest, so that states which
hold nearly the same values share nearly all of their bytes.
"""

from __future__ import annotations

from branchpoint.codec._api import (
    comparison_digest,
    decode,
    decode_state,
    encode,
    encode_state,
    open_dict,
    open_list,
    plain,
    reachable,
    references,
    transcode,
)
from branchpoint.codec._convert import convert
from branchpoint.codec._copy import copy_value
from branchpoint.codec._fingerprint import fingerprint
from branchpoint.codec._foreign import ForeignRegistry, expect_registry
from branchpoint.codec._format import Format
from branchpoint.codec._frame import Frame, Level, Settled
from branchpoint.codec._memo import Memo
from branchpoint.codec._parts import Encoded, Part, digest, new_parts
from branchpoint.codec._registry import (
    TypeEntry,
    is_registered,
    isolated_registry,
    join_registry,
    register_state_type,
    registered_type,
    type_id_of,
)
from branchpoint.codec._typeexpr import parse_type_expression, type_expression
from branchpoint.codec._wire import from_json, json_schema, to_json

__all__ = [
    "Encoded",
    "ForeignRegistry",
    "Format",
    "Frame",
    "Level",
    "Memo",
    "Part",
    "Settled",
    "TypeEntry",
    "comparison_digest",
    "convert",
    "copy_value",
    "decode",
    "decode_state",
    "digest",
    "encode",
    "encode_state",
    "expect_registry",
    "fingerprint",
    "from_json",
    "is_registered",
    "isolated_registry",
    "join_registry",
    "json_schema",
    "new_parts",
    "open_dict",
    "open_list",
    "parse_type_expression",
    "plain",
    "reachable",
    "references",
    "register_state_type",
    "registered_type",
    "to_json",
    "transcode",
    "type_expression",
    "type_id_of",
]
