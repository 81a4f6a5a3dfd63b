"""Stored bytes are taken only in the one form in which they are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from branchpoint.codec import (
    Encoded,
    Format,
    decode,
    decode_state,
    digest,
    encode,
    encode_state,
    new_parts,
    open_dict,
    open_list,
    plain,
    reachable,
    references,
    register_state_type,
    transcode,
)
from branchpoint.errors import BranchpointError, CorruptCheckpointError, UnregisteredTypeError
from branchpoint.testing import strategies

BOTH = pytest.mark.parametrize("format", ["json", "msgpack"])


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with strategies.registered_types():
        yield


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"nul", b"[1,]", b'{"a":1,"a":2}', b'{"a": 1}', b"[1, 2]", b"1.50", b"1e0", b"-0", b'"\\u0041"',
        b"18446744073709551616", b"-9223372036854775809", b"NaN", b'"\xff"', b"[" * 5000, b"[" * 5000 + b"]" * 5000,
    ],
)  # fmt: skip
def test_json_in_another_form_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpointError, match=r"a\.b|nests without end"):
        decode(data, {}, format="json", path="a.b")


@pytest.mark.parametrize(
    "value",
    [
        b"\xca\x3f\x80\x00\x00", b"\xcd\x00\x01", b"\xc4\x01a", b"\xd6\xff\x00\x00\x00\x00", b"\xd4\x05a",
        b"\x81\x01\x02", b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", b"\x82\xa1a\x01\xa1a\x02", b"\xd9\x01a", b"\xc1",
        b"\x91\x81\xc0\x01", b"\x82\xa1a\x01\x02\x03", b"\x01\x01",
    ],
)  # fmt: skip
def test_messagepack_in_another_form_is_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptCheckpointError):
        decode(value, {}, format="msgpack")


@BOTH
@pytest.mark.parametrize(
    "tree",
    [
        {"$": "tuple"},
        {"$": "tuple", "v": {}},
        {"$": "tuple", "v": [], "x": 1},
        {"v": [], "$": "tuple"},
        {"$": "tuple", "n": 2, "v": []},
        {"$": 5, "v": []},
        {"a": 1, "$": "tuple"},
        {"a": 1, "$x": 2},
        {"$x": 2},
        {"$p": "missing"},
        {"$p": 5},
        {"$p": "x", "v": 1},
        {"$l": []},
        {"$l": [1]},
        {"$l": [{"a": 1}]},
        {"$l": [[1]], "v": 1},
        {"$d": [[1]]},
        {"$d": [{"a": 1}, {"a": 2}]},
        {"$d": [{"$": "x"}]},
        {"$": "dict", "v": [["a", 1]]},
        {"$": "dict", "v": [[1, 1], [1, 2]]},
        {"$": "dict", "v": [[1, 1], [True, 2]]},
        {"$": "dict", "v": [[1]]},
        {"$": "dict", "v": [[[], 1]]},
        {"$": "dict", "v": {"a": 1}},
        {"$": "int", "v": "0x1"},
        {"$": "int", "v": "99999999999999999999999"},
        {"$": "int", "v": "0x0fffffffffffffffffffff"},
        {"$": "int", "v": 5},
        {"$": "float", "v": "1.0"},
        {"$": "float", "v": 1.0},
        {"$": "set", "v": [2, 1]},
        {"$": "set", "v": [1, 1]},
        {"$": "set", "v": [[1]]},
        {"$": "frozenset", "v": 1},
        {"$": "bytes", "v": "a"},
        {"$": "bytes", "v": "YQ"},
        {"$": "bytes", "v": 1},
        {"$": "complex", "v": [1, 2]},
        {"$": "complex", "v": [1.0]},
        {"$": "decimal", "v": "1e5"},
        {"$": "decimal", "v": "x"},
        {"$": "decimal", "v": 1},
        {"$": "fraction", "v": [2, 4]},
        {"$": "fraction", "v": [1, 0]},
        {"$": "datetime", "v": "2026-01-01"},
        {"$": "datetime", "v": "2026-01-01 00:00:00"},
        {"$": "datetime", "v": ["2026-01-01T00:00:00", None, 0]},
        {"$": "datetime", "v": ["2026-01-01T00:00:00", None, 2]},
        {"$": "datetime", "v": ["2026-01-01T00:00:00", {"$": "tuple", "v": []}, 1]},
        {"$": "date", "v": "20260101"},
        {"$": "time", "v": "24:00"},
        {"$": "timedelta", "v": [0, 86400, 0]},
        {"$": "timezone", "v": [10**15]},
        {"$": "timezone", "v": []},
        {"$": "zoneinfo", "v": "../../etc/passwd"},
        {"$": "uuid", "v": "{12345678-1234-5678-1234-567812345678}"},
        {"$": "pureposixpath", "v": "a//b"},
        {"$": "deque", "v": [1, [1, 2]]},
        {"$": "deque", "v": [-1, []]},
        {"$": "defaultdict", "v": ["print", []]},
        {"$": "defaultdict", "v": [["int"], []]},
        {"$": "counter", "v": [["a"]]},
        {"$": "range", "v": [0, 1, 0]},
        {"$": "range", "v": [0, 1.0, 1]},
        {"$": "slice", "v": [1]},
        {"$": "strategies.mode", "v": 1},
        {"$": "strategies.right", "v": "READ"},
        {"$": "strategies.order", "v": [1]},
        {"$": "strategies.order", "v": {"number": 1, "items": [], "note": 1, "__dict__": 5}},
    ],
    ids=repr,
)
def test_a_shape_that_is_never_written_is_corrupt(tree: Any, format: Format) -> None:
    encoder = msgspec.json if format == "json" else msgspec.msgpack
    for data in (encoder.encode(tree), encoder.encode([1, {"k": tree}])):
        with pytest.raises(CorruptCheckpointError):
            decode(data, {}, format=format)
        for read in (plain, open_dict, open_list):
            try:
                read(data, {}, format=format)
            except BranchpointError:
                continue


@BOTH
def test_the_path_leads_to_the_damage(format: Format) -> None:
    encoder = msgspec.json if format == "json" else msgspec.msgpack
    data = encoder.encode({"a": [1, {"$": "strategies.order", "v": {"items": [{"$": "gone.type", "v": 1}]}}]})
    with pytest.raises(UnregisteredTypeError, match=r"at state\.a\[1\]\.items\[0\] .*'gone\.type'"):
        decode(data, {}, format=format, path="state")
    data = encoder.encode({"$": "dict", "v": [[1, {"b": {"$": "date", "v": "x"}}]]})
    with pytest.raises(CorruptCheckpointError, match=r"at s\[1\]\.b .*'date'"):
        decode(data, {}, format=format, path="s")


@BOTH
def test_a_missing_part_is_named_by_every_reader(format: Format) -> None:
    root, _ = encode_state({"a": {"b": {"c": ["x" * 200, "y" * 200]}}}, format=format)
    parts = new_parts(root, ())
    for name in parts:
        rest = {key: data for key, data in parts.items() if key != name}
        with pytest.raises(CorruptCheckpointError, match=f"the part {name}"):
            decode_state(root.digest, rest, format=format)
        with pytest.raises(CorruptCheckpointError, match=f"the part {name} is missing"):
            reachable([root.digest], rest, format=format)
        if name != root.digest:
            with pytest.raises(CorruptCheckpointError, match=f"the part {name} is missing"):
                plain(root.data, rest, format=format)


@BOTH
def test_a_part_that_leads_to_itself_is_corrupt_rather_than_endless(format: Format) -> None:
    encoder = msgspec.json if format == "json" else msgspec.msgpack
    loop = {"a" * 22: encoder.encode([{"$p": "a" * 22}])}
    for read in (decode, plain):
        with pytest.raises(CorruptCheckpointError):
            read(loop["a" * 22], loop, format=format)
    assert reachable(["a" * 22], loop, format=format) == {"a" * 22}


@BOTH
def test_every_byte_of_a_small_state_counts(format: Format) -> None:
    value = {"a": [1, "two", {3}, None], "b": {"c": 1.5}}
    data = encode(value, format=format, depth=9)[0].data
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            try:
                found = decode(bytes(damaged), {}, format=format)
            except BranchpointError:
                continue
            assert not strategies.same(found, value)


def test_the_name_of_bytes_is_short_and_safe_in_urls() -> None:
    name = digest(b"abc")
    assert len(name) == 22
    assert name.replace("-", "").replace("_", "").isalnum()
    assert name != digest(b"abd")


@BOTH
def test_parts_that_are_known_are_not_looked_into(format: Format) -> None:
    root, _ = encode_state({"a": {"b": {"c": ["x" * 600, "y" * 600]}}}, format=format)
    every = new_parts(root, ())
    assert new_parts(root, {root.digest}) == {}
    assert set(new_parts(root, {root.refs[0].digest})) == set(every) - {root.refs[0].digest}
    assert all(digest(data) == name for name, data in every.items())
    assert references(root.data, format=format) == tuple(part.digest for part in root.refs)


@BOTH
def test_transcoding_needs_no_registered_type(format: Format) -> None:
    target: Format = "msgpack" if format == "json" else "json"
    state = {
        "shared": {"k": {"set": {"a" * 200, "b", 1}, "blob": b"\x00" * 300, "order": [strategies.Mode.SLOW]}}
    }
    root, _ = encode_state(state, format=format)
    expected, _ = encode_state(state, format=target)
    parts = new_parts(root, ())
    with pytest.MonkeyPatch.context() as patch:
        from branchpoint.codec import _registry

        patch.setattr(_registry, "by_id", {})
        (carried,) = transcode(root.digest, parts, source=format, target=target)
    assert carried.digest == expected.digest


def test_an_encoding_shows_what_it_is() -> None:
    assert repr(Encoded(b"1")) == "Encoded(b'1')"
    assert Encoded(b"1") != Encoded(b"1")
    with pytest.raises(ValueError, match="'json' or 'msgpack'"):
        encode(1, format="yaml")  # type: ignore[arg-type]


@BOTH
def test_a_fingerprint_given_at_registration_recognises_items(format: Format) -> None:
    class Counted:
        def __init__(self, text: str) -> None:
            self.text = text

    encoded_texts: list[str] = []

    def encoder(value: Counted) -> str:
        encoded_texts.append(value.text)
        return value.text

    register_state_type(
        Counted, type_id="counted", encoder=encoder, decoder=Counted, fingerprint=lambda value: value.text
    )
    items = [Counted(f"{number} " + "x" * 200) for number in range(500)]
    first, memo = encode(items, format=format)
    encoded_texts.clear()
    again, memo = encode(items, format=format, memo=memo)
    assert encoded_texts == []
    assert again.data == first.data
    for number in range(3):  # what grows is encoded, what it grows on is recognised
        items.append(Counted(f"new {number}"))
        encoded_texts.clear()
        _, memo = encode(items, format=format, memo=memo)
        assert encoded_texts == [f"new {number}"]
    items[250].text = "changed"
    encoded_texts.clear()
    changed, _ = encode(items, format=format, memo=memo)
    assert 0 < len(encoded_texts) <= 256
    assert changed.data == encode(items, format=format)[0].data
