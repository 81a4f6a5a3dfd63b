"""Reading ends, with an error of ours, whatever the bytes are; and what is too deep is no value."""

from __future__ import annotations

import base64
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from branchpoint.codec import (
    Format,
    decode,
    decode_state,
    digest,
    encode,
    encode_state,
    isolated_registry,
    new_parts,
    open_dict,
    open_list,
    plain,
    reachable,
    references,
    register_state_type,
    transcode,
)
from branchpoint.errors import BranchpointError, CorruptCheckpointError, UnsupportedValueError
from branchpoint.testing import strategies

BOTH = pytest.mark.parametrize("format", ["json", "msgpack"])
OTHER: dict[Format, Format] = {"json": "msgpack", "msgpack": "json"}


def wire(tree: Any, format: Format) -> bytes:
    return msgspec.json.encode(tree) if format == "json" else msgspec.msgpack.encode(tree)


def readings(data: bytes, parts: Mapping[str, bytes], format: Format) -> dict[str, Callable[[], Any]]:
    root = digest(data)
    more = {**parts, root: data}
    return {
        "decode": lambda: decode(data, parts, format=format),
        "decode_state": lambda: decode_state(root, more, format=format),
        "plain": lambda: plain(data, parts, format=format),
        "open_dict": lambda: open_dict(data, parts, format=format),
        "open_list": lambda: open_list(data, parts, format=format),
        "references": lambda: references(data, format=format),
        "reachable": lambda: reachable([root], more, format=format),
        "transcode": lambda: transcode(root, more, source=format, target=OTHER[format]),
    }


@BOTH
@pytest.mark.parametrize("shape", ["$l", "$d", "list", "dict"])
def test_few_parts_that_stand_for_endless_values_are_refused_at_once(shape: str, format: Format) -> None:
    leaf: Any = {"a": 1} if shape == "$d" else [1]
    data = wire(leaf, format)
    parts: dict[str, bytes] = {}
    for _ in range(31):
        parts[digest(data)] = data
        ref = {"$p": digest(data)}
        node: Any = {"list": [ref, ref], "dict": {"x": ref, "y": ref}}.get(shape, {shape: [ref, ref]})
        data = wire(node, format)
    names = ["decode", "decode_state", "plain", "transcode"]
    if shape in ("$l", "$d"):
        names.append("open_list" if shape == "$l" else "open_dict")
    for name in names:
        with pytest.raises(CorruptCheckpointError, match="references come to over"):
            readings(data, parts, format)[name]()


@BOTH
def test_a_part_that_many_places_share_is_no_such_case(format: Format) -> None:
    value = ["x" * 200] * 60_000
    encoded, _ = encode(value, format=format)
    parts = new_parts(encoded, ())
    assert len(parts) < 2_000
    assert decode(encoded.data, parts, format=format) == value
    assert plain(encoded.data, parts, format=format) == value


@BOTH
@pytest.mark.parametrize("shape", ["$l", "$d", "list", "dict", "bare", "tuple"])
def test_a_part_that_contains_itself_is_refused(shape: str, format: Format) -> None:
    name = "A" * 22
    ref = {"$p": name}
    shapes = {"list": [ref], "dict": {"x": ref}, "bare": ref, "tuple": {"$": "tuple", "v": [ref]}}
    data = wire(shapes.get(shape, {shape: [ref]}), format)
    for reading in ("decode", "decode_state", "plain", "transcode"):
        with pytest.raises(CorruptCheckpointError):
            readings(data, {name: data}, format)[reading]()
    for call in readings(data, {name: data}, format).values():
        try:
            call()
        except BranchpointError:
            pass


@BOTH
@pytest.mark.parametrize(
    "nest",
    [
        lambda inner: [inner],
        lambda inner: {"a": inner},
        lambda inner: {"$": "tuple", "v": [inner]},
        lambda inner: {"$": "dict", "v": [[1, inner]]},
        lambda inner: {"$": "deque", "v": [None, [inner]]},
        lambda inner: {"$": "strategies.item", "v": {"sku": "", "data": inner}},
    ],
    ids=["list", "dict", "tuple", "pairs", "deque", "record"],
)
def test_what_nests_deeper_than_a_value_may_is_not_decoded(
    nest: Callable[[Any], Any], format: Format
) -> None:
    with strategies.registered_types():
        fits: Any = 0
        for levels in range(1, 300):  # noqa: B007
            fits = nest(fits)
            try:
                value = decode(wire(fits, format), {}, format=format)
            except CorruptCheckpointError as error:
                assert "nests deeper than 256 levels" in str(error)
                break
        else:
            pytest.fail("it has no end")
        assert levels in (129, 258)  # a deque is two levels
        with pytest.raises(UnsupportedValueError, match="256"):
            encode({"a": value, "b": [value]}, format=format, depth=0)
        for _ in range(20):
            fits = nest(fits)
        with pytest.raises(CorruptCheckpointError, match="nests deeper"):
            plain(wire(fits, format), {}, format=format)


@BOTH
@pytest.mark.parametrize("levels", [200, 254])
def test_the_deepest_value_that_is_kept_is_read_back(levels: int, format: Format) -> None:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    encoded, _ = encode(value, format=format)
    root, _ = encode_state({"a": {"b": {"c": [{"d": encoded}]}}}, format=format)
    parts = new_parts(root, ())
    assert decode_state(root.digest, parts, format=format)["a"]["b"]["c"][0]["d"] == value
    assert plain(root.data, parts, format=format)["a"]["b"]["c"][0]["d"] == value
    (carried,) = transcode(root.digest, parts, source=format, target=OTHER[format])
    assert decode_state(carried.digest, new_parts(carried, ()), format=OTHER[format])["a"]["b"]


PAYLOADS: list[Any] = [
    None, True, 0, -1, 1.5, "", "x", "nan", [], [1], [1, 2], [1, 2, 3], [[1, 2]], [[1]], [None, [[1, 2]]], [[[], 1]],
    ["int", [[1, 2]]], {"a": 1}, {}, {"$p": "A" * 22}, {"$p": 5}, {"$l": []}, {"$l": [5]}, {"$l": [[1]]},
    {"$d": [{"a": 1}]}, {"$": "tuple", "v": [1]}, {"$": "nope", "v": 1}, ["2024-01-01T00:00:00", 5, 1], [0, 0, 0],
    ["2024-01-01T00:00:00", {"$": "int", "v": "0x1"}, 1], ["2024-01-01T00:00:00", {"$": "timezone", "v": [10**15]}, 1],
    "AA", "AA==", "AB==", "é", "0x10000000000000000", {"$": [1], "v": 1}, {"$": None}, {"$": {}, "v": []}, {"$x": 1},
]  # fmt: skip
TAGS = [
    "dict", "int", "float", "tuple", "set", "frozenset", "bytes", "bytearray", "complex", "decimal", "fraction",
    "datetime", "time", "date", "timedelta", "timezone", "zoneinfo", "uuid", "pureposixpath", "windowspath", "deque",
    "ordereddict", "counter", "defaultdict", "range", "slice", "unknown", 5, None, "a[", "a[]",
]  # fmt: skip


@BOTH
def test_every_payload_under_every_tag_is_read_or_refused_with_an_error_of_ours(format: Format) -> None:
    for tag in TAGS:
        for payload in PAYLOADS:
            data = wire({"$": tag, "v": payload}, format)
            done = set()
            for name, call in readings(data, {}, format).items():
                try:
                    call()
                except BranchpointError:
                    continue
                done.add(name)
            if "decode" in done:
                assert {"plain", "transcode"} <= done, (tag, payload)


@BOTH
def test_damaged_bytes_are_read_or_refused_with_an_error_of_ours(format: Format) -> None:
    chance = random.Random(7)
    value = {"a": [1, "x", (1, 2), {3}, b"abc", 2**70, -0.0, {1: 2}, {"$p": 1}, bytearray(b"q"), range(3)]}
    data = encode(value, format=format)[0].refs[0].data
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.choice(
                b'0123"{}[]:,.-e$vnpld\x00\xff\xc0\x90\xa1\xcb\xe9'
            )
        for call in readings(bytes(damaged), {}, format).values():
            try:
                call()
            except BranchpointError:
                pass


@BOTH
@pytest.mark.parametrize(
    "tree",
    [{"$x": 1}, {"a": 1, "$b": 2}, {"$": "tuple"}, {"$": "tuple", "n": 2, "v": []}, {"$": 5, "v": 1},
     {"v": 1, "$": "x"}, {"$d": [{"a": 1}, {"a": 2}]},
     {"$d": [{"$": "tuple", "v": []}]}, {"$": "nope", "n": 1, "v": 1}],
)  # fmt: skip
def test_what_reading_refuses_is_not_shown_either(tree: Any, format: Format) -> None:
    for whole in (tree, [tree], {"a": tree}):
        data = wire(whole, format)
        for name in ("decode", "plain", "transcode"):
            with pytest.raises(BranchpointError):
                readings(data, {}, format)[name]()


@pytest.mark.parametrize(
    "data",
    [b"\xd4\x01a", b"\xd6\xff\x00\x00\x00\x00", b"\x81\x01\x02", b"\x81\xc0\x02", b"\xc4\x01a", b"\x81\x91\x01\x02",
     b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", b"\x81\xc4\x01a\x01"],
)  # fmt: skip
def test_messagepack_that_no_value_is_written_with_is_not_shown(data: bytes) -> None:
    with pytest.raises(CorruptCheckpointError):
        plain(data, {}, format="msgpack")


def test_a_number_that_needs_a_tag_is_not_shown_without_one() -> None:
    with pytest.raises(CorruptCheckpointError):
        plain(b"18446744073709551616", {}, format="json")


@pytest.mark.parametrize(("data", "format"), [(b'{"a\xbd":1}', "json"), (b"\x81\xa1\xa1\x01", "msgpack")])
def test_a_key_that_is_no_text_is_damage(data: bytes, format: Format) -> None:
    with pytest.raises(CorruptCheckpointError):
        open_dict(data, {}, format=format)


@BOTH
def test_binary_that_looks_like_a_reference_leaves_no_trace_in_the_digest(format: Format) -> None:
    marker = {"json": b'{"$p":', "msgpack": b"\x81\xa2$p\xb6"}[format]
    for value in ([b"0" * 100 + marker], {"k": b"0" * 100 + marker}, (b"x" * 1100 + marker, 1)):
        ready, _ = encode(value, format=format)
        for wrap in (
            lambda item: {"a": {"b": {"c": [{"value": item, "to": ["x"]}]}}},
            lambda item: {"a": {"b": {"c": {"in": [item]}}}},
        ):
            given, _ = encode_state(wrap(ready), format=format)
            meant, _ = encode_state(wrap(value), format=format)
            assert given.digest == meant.digest


class Endless:
    """Registered with a codec that never ends."""


def endless(value: Any) -> Any:
    return endless(value)


@BOTH
def test_a_codec_that_never_ends_is_named_with_its_place(format: Format) -> None:
    with isolated_registry():
        register_state_type(Endless, type_id="test.endless", encoder=endless, decoder=endless)
        with pytest.raises(
            UnsupportedValueError, match=r"at x\.a\[0\] .*encoder of 'test\.endless' never ends"
        ):
            encode({"a": [Endless()]}, format=format, path="x")
        data = wire({"a": [{"$": "test.endless", "v": 1}]}, format)
        with pytest.raises(
            CorruptCheckpointError, match=r"at x\.a\[0\] .*decoder of 'test\.endless' never ends"
        ):
            decode(data, {}, format=format, path="x")


@BOTH
def test_a_codec_of_ones_own_works_wherever_the_caller_stands(format: Format) -> None:
    def down(levels: int) -> Any:
        return [down(levels - 1)] if levels else Endless()

    def encoder(value: Any) -> Any:
        return down(100) and 1

    def decoder(payload: Any) -> Any:
        return down(100) and Endless()

    with isolated_registry():
        register_state_type(Endless, type_id="test.endless", encoder=encoder, decoder=decoder)

        def work(frames: int) -> Any:
            if frames:
                return work(frames - 1)
            encoded, _ = encode([Endless()], format=format)
            return decode(encoded.data, {}, format=format)

        frame, used = sys._getframe(), 0
        while frame is not None:
            frame, used = frame.f_back, used + 1  # type: ignore[assignment]
        assert type(work(sys.getrecursionlimit() - used - 80)[0]) is Endless


def test_text_of_bytes_is_base64_in_one_form_only() -> None:
    data = b'{"a":{"$":"bytes","v":"YQ=="}}'
    assert decode(data, {}, format="json") == {"a": base64.b64decode("YQ==")}
    for wrong in (b"YQ", b"YR==", b"Y Q==", b"!"):
        calls = readings(data.replace(b"YQ==", wrong), {}, "json")
        for name in ("decode", "transcode"):
            with pytest.raises(CorruptCheckpointError):
                calls[name]()
        assert calls["plain"]() == {"a": {"$": "bytes", "v": wrong.decode()}}  # for a person to see
