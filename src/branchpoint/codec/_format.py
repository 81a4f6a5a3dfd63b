"""The two notations of one wire tree: JSON and MessagePack, down to the bytes.

The encoder joins encodings of children into that of their parent, so both notations offer the same
few ways of joining; everything below a child is msgspec's work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

__all__ = ["JSON", "MSGPACK", "Format", "Notation", "notation"]

Format = Literal["json", "msgpack"]


class Notation(ABC):
    """One notation.

    Attributes:
        name: "json" or "msgpack".
        encode: Wire tree -> bytes.
        decode: Bytes -> wire tree.
        split_list: Bytes of a list -> the bytes of its items.
        split_dict: Bytes of a dict -> key -> the bytes of its value.
        item_cost: The least number of bytes that an item of a list takes.
        entry_cost: The least number of bytes that an entry of a dict takes beside its key.
        marker: Stands in every encoding that mentions a part, seldom in others.
    """

    name: Format
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    split_list: Callable[[bytes], list[msgspec.Raw]]
    split_dict: Callable[[bytes], dict[str, msgspec.Raw]]
    item_cost: int
    entry_cost: int
    marker: bytes

    @abstractmethod
    def join_list(self, items: Sequence[bytes]) -> bytes:
        """The list of these encoded items."""

    @abstractmethod
    def join_dict(self, entries: Sequence[bytes]) -> bytes:
        """The dict of these encoded entries."""

    @abstractmethod
    def entry(self, key: str, data: bytes) -> bytes:
        """One entry of a dict."""

    @abstractmethod
    def single(self, key: str, data: bytes) -> bytes:
        """A dict of one entry whose key needs no escape."""

    @abstractmethod
    def reference(self, digest: str) -> bytes:
        """A reference to a part."""

    def tag(self, head: dict[str, Any], payload: bytes) -> bytes:
        """A tag (`{"$": id}` and maybe `"n"`) around an encoded payload."""
        return self.encode({**head, "v": msgspec.Raw(payload)})


class _Json(Notation):
    name: Format = "json"
    item_cost = 2
    entry_cost = 5
    marker = b'{"$p":'

    def __init__(self) -> None:
        self.encode = msgspec.json.Encoder().encode
        self.decode = msgspec.json.Decoder().decode
        self.split_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
        self.split_dict = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

    def join_list(self, items: Sequence[bytes]) -> bytes:
        return b"[" + b",".join(items) + b"]"

    def join_dict(self, entries: Sequence[bytes]) -> bytes:
        return b"{" + b",".join(entries) + b"}"

    def entry(self, key: str, data: bytes) -> bytes:
        return self.encode(key) + b":" + data

    def single(self, key: str, data: bytes) -> bytes:
        return b'{"' + key.encode() + b'":' + data + b"}"

    def reference(self, digest: str) -> bytes:
        return b'{"$p":"' + digest.encode() + b'"}'


class _Msgpack(Notation):
    name: Format = "msgpack"
    item_cost = 1
    entry_cost = 2
    marker = b"\x81\xa2$p\xb6"

    def __init__(self) -> None:
        self.encode = msgspec.msgpack.Encoder().encode
        self.decode = msgspec.msgpack.Decoder().decode
        self.split_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
        self.split_dict = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode

    def join_list(self, items: Sequence[bytes]) -> bytes:
        return _head(len(items), 0x90, 0xDC) + b"".join(items)

    def join_dict(self, entries: Sequence[bytes]) -> bytes:
        return _head(len(entries), 0x80, 0xDE) + b"".join(entries)

    def entry(self, key: str, data: bytes) -> bytes:
        return self.encode(key) + data

    def single(self, key: str, data: bytes) -> bytes:
        return b"\x81" + bytes([0xA0 | len(key)]) + key.encode() + data

    def reference(self, digest: str) -> bytes:
        return b"\x81\xa2$p\xb6" + digest.encode()


def _head(count: int, small: int, large: int) -> bytes:
    if count < 16:
        return bytes([small | count])
    if count < 1 << 16:
        return bytes([large]) + count.to_bytes(2, "big")
    return bytes([large + 1]) + count.to_bytes(4, "big")


JSON: Final = _Json()
MSGPACK: Final = _Msgpack()


def notation(format: Format) -> Notation:
    """Return the notation of a format.

    Raises:
        ValueError: There is no such format.
    """
    if format == "json":
        return JSON
    if format == "msgpack":
        return MSGPACK
    raise ValueError(f"the format is 'json' or 'msgpack', not {format!r}")
