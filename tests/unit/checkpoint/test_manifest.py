from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchpoint.checkpoint import (
    BOUNDARIES,
    Format,
    Header,
    Manifest,
    Origin,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
    is_v1_checkpoint,
    refuse_v1,
)
from branchpoint.errors import CorruptCheckpointError, UnknownVersionError

FORMATS: list[Format] = ["json", "msgpack"]
NOON = datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=UTC)
MANIFEST = Manifest(
    snapshot_id="01KC0000000000000000000002",
    parent_snapshot_id="01KC0000000000000000000001",
    timestamp=NOON,
    root="AAAAAAAAAAAAAAAAAAAAAA",
    boundary="superstep_completed",
    status="in_progress",
    superstep=12,
    input_id="01KC0000000000000000000000",
    executors=("writer", "reader"),
    graph_signature_hash="BBBBBBBBBBBBBBBBBBBBBB",
)
HEADER = Header(
    format_version=1,
    checkpoint_id="run-1",
    workflow_name="count",
    graph_signature_hash="BBBBBBBBBBBBBBBBBBBBBB",
    signature={"start": "tally"},
    metadata={"owner": "ann"},
    created_at=NOON,
)


def codec_of(form: Format) -> Any:
    return msgspec.json if form == "json" else msgspec.msgpack


texts = st.text(max_size=8)
manifests = st.builds(
    Manifest,
    snapshot_id=texts,
    parent_snapshot_id=st.none() | texts,
    timestamp=st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.just(UTC)),
    root=texts,
    boundary=st.sampled_from(BOUNDARIES),
    status=st.sampled_from(["in_progress", "idle", "idle_with_pending_requests"]),
    superstep=st.integers(0, 2**40),
    input_id=st.none() | texts,
    requests=st.lists(texts, max_size=3).map(tuple),
    executors=st.lists(texts, max_size=3).map(tuple),
    graph_signature_hash=texts,
    metadata=st.dictionaries(texts, st.none() | st.booleans() | st.integers(-9, 9) | texts, max_size=3),
    trace=st.none() | texts,
    forked_from=st.none() | st.builds(Origin, texts, texts),
)


@pytest.mark.parametrize("form", FORMATS)
@given(manifest=manifests)
def test_a_manifest_comes_back_from_both_formats(form: Format, manifest: Manifest) -> None:
    data = encode_manifest(manifest, format=form)
    assert decode_manifest(data, format=form, checkpoint_id="cp") == manifest


@pytest.mark.parametrize("form", FORMATS)
def test_a_header_comes_back_from_both_formats(form: Format) -> None:
    header = msgspec.structs.replace(HEADER, generation=2, pruned={"gone": None})
    assert decode_header(encode_header(header, format=form), format=form, checkpoint_id="run-1") == header


def test_a_plain_step_has_a_small_readable_manifest() -> None:
    data = encode_manifest(MANIFEST, format="json")
    assert len(data) < 330
    assert json.loads(data)["b"] == "superstep_completed"


@pytest.mark.parametrize("form", FORMATS)
def test_a_newer_version_is_named_even_with_fields_nobody_knows(form: Format) -> None:
    codec = codec_of(form)
    raw = codec.decode(encode_manifest(MANIFEST, format=form)) | {"v": 999, "shiny": [1]}
    with pytest.raises(UnknownVersionError, match=r"999.*upgrade"):
        decode_manifest(codec.encode(raw), format=form, checkpoint_id="run-1")
    raw = codec.decode(encode_header(HEADER, format=form)) | {"branchpoint": 2, "shiny": [1]}
    with pytest.raises(UnknownVersionError, match=r"'run-1'.*version 2"):
        decode_header(codec.encode(raw), format=form, checkpoint_id="run-1")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "change",
    [
        {"shiny": 1},
        {"b": "lunch"},
        {"st": "failed"},
        {"id": 7},
        {"n": "12"},
        {"v": 0},
        {"v": "1"},
        {"at": "2026-01-01T00:00:00"},
    ],
)
def test_a_damaged_manifest_names_the_checkpoint(form: Format, change: dict[str, Any]) -> None:
    codec = codec_of(form)
    raw = codec.decode(encode_manifest(MANIFEST, format=form)) | change
    with pytest.raises(CorruptCheckpointError, match="'run-1'"):
        decode_manifest(codec.encode(raw), format=form, checkpoint_id="run-1")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"[" * 100_000, b"\x91" * 100_000])
def test_bytes_that_are_no_envelope_are_damage(form: Format, data: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match="'run-1'"):
        decode_manifest(data, format=form, checkpoint_id="run-1")
    with pytest.raises(CorruptCheckpointError, match="'run-1'"):
        decode_header(data, format=form, checkpoint_id="run-1")


def test_what_msgspec_tolerates_is_still_not_canonical() -> None:
    data = encode_manifest(MANIFEST, format="json")
    for edited in (
        data.replace(b'{"id"', b'{ "id"'),
        data.replace(b'"n":12', b'"n":11,"n":12'),
        data[:-1] + b',"v":1}',
    ):
        assert edited != data
        with pytest.raises(CorruptCheckpointError, match="canonical"):
            decode_manifest(edited, format="json", checkpoint_id="run-1")


def test_a_header_of_another_checkpoint_is_refused() -> None:
    data = encode_header(HEADER, format="json")
    with pytest.raises(CorruptCheckpointError, match=r"'run-2'.*another checkpoint, 'run-1'"):
        decode_header(data, format="json", checkpoint_id="run-2")


V1 = {
    "workflow_name": "count",
    "graph_signature_hash": "abc",
    "checkpoint_id": "run-1",
    "previous_checkpoint_id": None,
    "timestamp": "2026-01-01T00:00:00+00:00",
    "messages": {},
    "state": {"x": {"__pickled__": "gASVBQAAAAAAAAB9lC4=", "__type__": "builtins:dict"}},
    "pending_request_info_events": {},
    "iteration_count": 3,
    "metadata": {},
    "version": "1.0",
}


@pytest.mark.parametrize("indent", [None, 2])
def test_r43_a_version_1_checkpoint_is_recognised_and_refused(indent: int | None) -> None:
    data = json.dumps(V1, indent=indent).encode()
    assert is_v1_checkpoint(data)
    with pytest.raises(
        UnknownVersionError, match=r"version 1 checkpoint of Agent Framework.*migrate it offline"
    ):
        refuse_v1(data, checkpoint_id="run-1")
    with pytest.raises(UnknownVersionError, match="version 1 checkpoint"):
        decode_header(data, format="json", checkpoint_id="run-1")


def test_r43_nothing_else_is_taken_for_version_1() -> None:
    assert not is_v1_checkpoint(encode_header(HEADER, format="json"))
    nested = msgspec.structs.replace(HEADER, signature=V1)
    assert not is_v1_checkpoint(encode_header(nested, format="json"))
    for data in (b"", b"{}", b'{"checkpoint_id":1', b'"checkpoint_id"', b"\xff"):
        assert not is_v1_checkpoint(data)


def test_a_timestamp_keeps_its_microseconds() -> None:
    odd = msgspec.structs.replace(MANIFEST, timestamp=NOON + timedelta(microseconds=987654))
    for form in FORMATS:
        data = encode_manifest(odd, format=form)
        assert decode_manifest(data, format=form, checkpoint_id="cp").timestamp == odd.timestamp
