"""The two notations of one wire tree: JSON and MessagePack, down to the bytes.

The encoder joins encodings of children into that of their parent, so both notations offer the same
few ways of joining; everything below a child is msgspec's work.
"""

from __future__ import annotations

import re
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
        encode_with: The same for a tree with other objects in it, and what turns these into bytes.
        decode: Bytes -> wire tree.
        split_list: Bytes of a list -> the bytes of its items.
        split_dict: Bytes of a dict -> key -> the bytes of its value.
        item_cost: The least number of bytes that an item of a list takes.
        entry_cost: The least number of bytes that an entry of a dict takes beside its key.
        marker: Stands in every encoding that mentions a part, seldom in others.
        texts: The first bytes that every encoding of a text over some bytes has one of, and no other.
    """

    name: Format
    encode: Callable[[Any], bytes]
    encode_with: Callable[[Any, Callable[[Any], msgspec.Raw]], bytes]
    decode: Callable[[bytes], Any]
    split_list: Callable[[bytes], list[msgspec.Raw]]
    split_dict: Callable[[bytes], dict[str, msgspec.Raw]]
    item_cost: int
    entry_cost: int
    marker: bytes
    texts: frozenset[bytes]

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
    def within(self, key: Literal["$l", "$d"], data: bytes) -> bytes | None:
        """What stands in a dict of this one entry; None where the first key is another.

        Of damaged bytes, and where more entries follow, something that is no value.
        """

    @abstractmethod
    def reference(self, digest: str) -> bytes:
        """A reference to a part."""

    @abstractmethod
    def referred(self, data: bytes) -> str | None:
        """The digest in bytes that are a reference, and nothing else; of damaged bytes a text that names none."""

    def references_in(self, data: bytes) -> list[str] | None:
        """The digests that some bytes mention, where that can be told without decoding them."""
        return None

    def tag(self, head: dict[str, Any], payload: bytes) -> bytes:
        """A tag (`{"$": id}` and maybe `"n"`) around an encoded payload."""
        return self.encode({**head, "v": msgspec.Raw(payload)})


class _Json(Notation):
    name: Format = "json"
    item_cost = 2
    entry_cost = 5
    marker = b'{"$p":'
    texts = frozenset({b'"'})

    def __init__(self) -> None:
        self.encode = msgspec.json.Encoder().encode
        self.encode_with = lambda tree, hook: msgspec.json.encode(tree, enc_hook=hook)
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

    def within(self, key: Literal["$l", "$d"], data: bytes) -> bytes | None:
        head = _JSON_HEADS[key]
        return data[len(head) : -1] if data.startswith(head) and data.endswith(b"}") else None

    def reference(self, digest: str) -> bytes:
        return b'{"$p":"' + digest.encode() + b'"}'

    def referred(self, data: bytes) -> str | None:
        if len(data) == 31 and data.startswith(b'{"$p":"') and data.endswith(b'"}'):
            return data[7:29].decode("latin-1")
        return None

    def references_in(self, data: bytes) -> list[str] | None:
        # No text holds the marker: the quotes in a text are escaped.
        found = _REFERENCE.findall(data)
        return [digest.decode() for digest in found] if len(found) == data.count(self.marker) else None


class _Msgpack(Notation):
    name: Format = "msgpack"
    item_cost = 1
    entry_cost = 2
    marker = b"\x81\xa2$p\xb6"
    texts = frozenset({b"\xd9", b"\xda", b"\xdb"})

    def __init__(self) -> None:
        self.encode = msgspec.msgpack.Encoder().encode
        self.encode_with = lambda tree, hook: msgspec.msgpack.encode(tree, enc_hook=hook)
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

    def within(self, key: Literal["$l", "$d"], data: bytes) -> bytes | None:
        head = _MSGPACK_HEADS[key]
        return data[len(head) :] if data.startswith(head) else None

    def reference(self, digest: str) -> bytes:
        return b"\x81\xa2$p\xb6" + digest.encode()

    def referred(self, data: bytes) -> str | None:
        return data[5:].decode("latin-1") if len(data) == 27 and data.startswith(self.marker) else None


_JSON_HEADS: Final = {"$l": b'{"$l":', "$d": b'{"$d":'}
_MSGPACK_HEADS: Final = {"$l": b"\x81\xa2$l", "$d": b"\x81\xa2$d"}
_REFERENCE: Final = re.compile(rb'\{"\$p":"([A-Za-z0-9_-]{22})"\}')


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
