"""The bytes of a journal: what is promised is checked, what is torn is dropped."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchpoint.errors import CorruptCheckpointError, UnknownVersionError
from branchpoint.storage._journal import (
    PREAMBLE_SIZE,
    Format,
    Preamble,
    Slot,
    framed,
    header_record,
    new_preamble,
    next_slot,
    read_preamble,
    records,
    seal_record,
    whole_journal,
)

FORMATS: list[Format] = ["json", "msgpack"]
BODIES = [b'{"header":{}}', b'{"a":1}', b'{"b":[2,3]}', b'{"c":"' + b"x" * 300 + b'"}']


def build(
    format: Format, bodies: list[bytes] = BODIES, promised: int | None = None
) -> tuple[bytes, list[int]]:
    """A whole journal, and where its records end; `promised` records are in the slots."""
    data, key, ends = b"", b"", [PREAMBLE_SIZE]
    for body in bodies:
        record = seal_record(body, start=ends[-1], key=key, format=format)
        key = key or record.seal
        data += framed(record, format=format)
        ends.append(record.end)
    number = len(bodies) if promised is None else promised
    whole = new_preamble(format, Slot(ends[number], ends[number - 1])) + data
    assert promised is not None or whole == whole_journal(bodies, format=format)
    return whole, ends


def read(data: bytes) -> list[bytes]:
    preamble = read_preamble(data, where="here")
    header = header_record(data, preamble, size=len(data), where="here")
    assert header is not None
    rest = records(data, preamble, start=header.end, base=0, key=header.seal, where="here")
    return [header.body, *(record.body for record in rest)]


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_written_is_read(format: Format) -> None:
    data, ends = build(format)
    assert read(data) == BODIES
    assert ends[-1] == len(data)


def test_a_json_journal_is_lines_of_json() -> None:
    data, _ = build("json")
    lines = [json.loads(line) for line in data.splitlines()]
    assert lines[0] == {"branchpoint": "journal", "version": 1, "format": "json"}
    assert lines[1] == lines[2]
    assert lines[1]["committed"] == len(data)
    assert lines[4] == {"c": lines[4]["c"], "a": 1}


@pytest.mark.parametrize("format", FORMATS)
def test_r33_a_promised_journal_cut_anywhere_is_damage(format: Format) -> None:
    data, _ = build(format)
    for length in range(len(data)):
        with pytest.raises(CorruptCheckpointError, match="here"):
            read(data[:length])


@pytest.mark.parametrize("format", FORMATS)
def test_any_flipped_bit_is_damage_or_changes_nothing(format: Format) -> None:
    data, ends = build(format)
    for n in range(len(data)):
        for bit in range(8):
            bad = bytearray(data)
            bad[n] ^= 1 << bit
            try:
                seen = read(bytes(bad))
            except (CorruptCheckpointError, UnknownVersionError):
                continue
            # Only in a slot: the other slot still speaks.
            assert seen == BODIES
            assert n < ends[0]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("promised", [1, 2, 3])
def test_r33_beyond_the_promise_whole_records_count_and_a_torn_one_does_not(
    format: Format, promised: int
) -> None:
    data, ends = build(format, promised=promised)
    for length in range(ends[promised], len(data) + 1):
        whole = sum(end <= length for end in ends[1:])
        assert read(data[:length]) == BODIES[:whole]


@pytest.mark.parametrize("format", FORMATS)
def test_a_record_of_another_place_or_journal_is_damage(format: Format) -> None:
    one, ends = build(format, [b'{"header":1}', b'{"a":1}', b'{"a":2}'])
    other, _ = build(format, [b'{"header":2}', b'{"a":1}', b'{"a":2}'])
    swapped = one[: ends[1]] + one[ends[2] : ends[3]] + one[ends[1] : ends[2]]
    with pytest.raises(CorruptCheckpointError):
        read(swapped)
    with pytest.raises(CorruptCheckpointError):
        read(one[: ends[2]] + other[ends[2] :])


def test_slots_take_turns_and_the_longer_promise_wins() -> None:
    data = bytearray(new_preamble("json", Slot(300, 200)))
    seen: list[Preamble] = [read_preamble(bytes(data), where="here")]
    for committed in (400, 500, 600):
        write = next_slot(seen[-1], Slot(committed, committed - 100))
        data[write.offset : write.offset + len(write.data)] = write.data
        seen.append(read_preamble(bytes(data), where="here"))
    assert [one.slot.committed for one in seen] == [300, 400, 500, 600]
    assert [one.index for one in seen] in ([0, 1, 0, 1], [1, 0, 1, 0])


def test_a_torn_slot_leaves_the_other_one() -> None:
    data = bytearray(new_preamble("json", Slot(300, 200)))
    before = read_preamble(bytes(data), where="here")
    write = next_slot(before, Slot(400, 300))
    for torn in range(len(write.data)):
        half = bytearray(data)
        half[write.offset : write.offset + torn] = write.data[:torn]
        assert read_preamble(bytes(half), where="here").slot in (before.slot, Slot(400, 300))


@pytest.mark.parametrize("format", FORMATS)
def test_r33_beside_an_unreadable_slot_a_later_record_may_be_missing(format: Format) -> None:
    whole, ends = build(format, promised=len(BODIES) - 1)
    preamble = read_preamble(whole, where="here")
    write = next_slot(preamble, Slot(ends[-1], ends[-2]))
    # Torn while it was written: its record is there.
    torn = bytearray(whole)
    torn[write.offset : write.offset + 30] = write.data[:30]
    assert read(bytes(torn)) == BODIES
    # The same slot whole, and damaged later together with what it promised.
    for lost in (whole[: ends[-2]], whole[: ends[-1] - 1], whole[: ends[-2]] + b"\x00" * 50):
        bad = bytearray(lost)
        bad[write.offset : write.offset + len(write.data)] = write.data
        with pytest.raises(CorruptCheckpointError, match="here"):
            read(bytes(bad))
        bad[write.offset + 15] = ord("x")
        with pytest.raises(CorruptCheckpointError, match="slots cannot be read"):
            read(bytes(bad))


def test_other_files_are_named_for_what_they_are() -> None:
    newer = (
        new_preamble("json", Slot(1, 1))
        .replace(b'"version":1,', b'"version":999,')
        .replace(b"   \n", b" \n", 1)
    )
    with pytest.raises(UnknownVersionError, match="999"):
        read_preamble(newer, where="here")
    for other in (
        b"",
        b"{}",
        b"\x00" * 500,
        b"PK\x03\x04",
        new_preamble("json", Slot(1, 1)).replace(b"json", b"yaml"),
    ):
        with pytest.raises(CorruptCheckpointError, match="here"):
            read_preamble(other, where="here")


@pytest.mark.parametrize("format", FORMATS)
def test_the_header_is_found_in_a_long_enough_beginning_and_the_end_without_the_middle(
    format: Format,
) -> None:
    data, ends = build(format)
    preamble = read_preamble(data, where="here")
    for length in range(PREAMBLE_SIZE, len(data) + 1):
        header = header_record(data[:length], preamble, size=len(data), where="here")
        assert (header is not None) == (length >= ends[1])
        if header is not None:
            last = preamble.slot.last
            tail = records(data[last:], preamble, start=last, base=last, key=header.seal, where="here")
            assert [record.body for record in tail] == BODIES[-1:]


@given(st.binary(max_size=400), st.sampled_from(FORMATS), st.booleans())
def test_rubbish_after_a_promise_is_never_shown(rubbish: bytes, format: Format, cut: bool) -> None:
    data, _ = build(format)
    data = data[: -len(rubbish)] + rubbish if cut and rubbish else data + rubbish
    try:
        assert read(data) == BODIES
    except CorruptCheckpointError:
        assert cut
