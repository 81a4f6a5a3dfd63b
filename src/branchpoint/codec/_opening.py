"""Opening stored containers one level deep, children left encoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from branchpoint.codec._flaw import Flaw
from branchpoint.codec._format import Notation
from branchpoint.codec._parts import Encoded, Part
from branchpoint.codec._source import Source, leaves_of, load, mentioned, reference_in

__all__ = ["encoded_of", "entries_of", "items_of"]


def encoded_of(notation: Notation, data: bytes, parts: Mapping[str, bytes]) -> Encoded:
    """Stored bytes as an `Encoded`, with the stored parts they mention at hand."""
    digest = notation.referred(data)
    if digest is not None and (stored := parts.get(digest)) is not None:
        return Encoded(data, (Part(digest, stored),), True)
    if notation.marker not in data:
        return Encoded(data)
    digests = dict.fromkeys(mentioned(load(notation, data)))
    refs = tuple(Part(digest, parts[digest]) for digest in digests if digest in parts)
    return Encoded(data, refs, bool(digests))


def items_of(source: Source, data: bytes) -> list[bytes]:
    """The encodings of the items of a stored list."""
    kind = _split(source.notation, _landed(source, data))
    if isinstance(kind, list):
        return kind
    if set(kind) != {"$l"}:
        raise Flaw("a list is expected here")
    return [item for leaf in _leaves(source, kind, "$l") for item in leaf]


def entries_of(source: Source, data: bytes) -> dict[str, bytes]:
    """The keys and the encodings of the values of a stored dict whose keys are text."""
    kind = _split(source.notation, _landed(source, data))
    if isinstance(kind, list):
        raise Flaw("a dict is expected here")
    if "$d" in kind:
        joined: dict[str, bytes] = {}
        count = 0
        for leaf in _leaves(source, kind, "$d"):
            joined.update(_plain(leaf))
            count += len(leaf)
        if len(joined) != count:
            raise Flaw("a key comes twice in a cut dict")
        return joined
    if "$" in kind:
        return _tagged(source, kind)
    return _plain(kind)


def _plain(entries: dict[str, bytes]) -> dict[str, bytes]:
    if any(key[:1] == "$" for key in entries):
        raise Flaw("a plain dict has text keys that do not begin with '$'")
    return entries


def _tagged(source: Source, kind: dict[str, bytes]) -> dict[str, bytes]:
    """A dict whose keys are text, some of which begin with `$`."""
    if tuple(kind) != ("$", "v") or load(source.notation, kind["$"]) != "dict":
        raise Flaw("a dict is expected here")
    found: dict[str, bytes] = {}
    pairs = items_of(source, kind["v"])
    for pair in pairs:
        both = items_of(source, pair)
        key = load(source.notation, _landed(source, both[0])) if len(both) == 2 else None
        if type(key) is not str:
            raise Flaw("a dict with text keys is expected here")
        found[key] = both[1]
    if len(found) != len(pairs):
        raise Flaw("a key comes twice")
    if all(key[:1] != "$" for key in found):
        raise Flaw("a dict with plain keys is written without a tag")
    return found


def _landed(source: Source, data: bytes) -> bytes:
    """The data itself, or that of the part it refers to."""
    digest = source.notation.referred(data)
    if digest is not None and digest in source.parts:
        return source.bytes_of(digest)
    if len(data) > 64 or source.notation.marker not in data:
        return data
    digest = reference_in(load(source.notation, data))
    return data if digest is None else source.bytes_of(digest)


def _split(notation: Notation, data: bytes) -> list[bytes] | dict[str, bytes]:
    result: Any
    try:
        result = list(map(bytes, notation.split_list(data)))
        again = notation.join_list(result)
    except msgspec.DecodeError:
        try:
            result = {key: bytes(item) for key, item in notation.split_dict(data).items()}
        except (msgspec.DecodeError, UnicodeError) as error:
            raise Flaw(f"a list or a dict is expected here ({error})") from None
        again = notation.join_dict([notation.entry(key, item) for key, item in result.items()])
    if again != data:
        raise Flaw(
            "the bytes are not the ones that this value is written with (spacing, repeated keys or the like)"
        )
    return result  # type: ignore[no-any-return]


def _leaves(source: Source, root: dict[str, bytes], name: Literal["$l", "$d"]) -> Iterator[Any]:
    notation = source.notation

    def opened(node: Any) -> tuple[bool, Any]:
        if node is root:
            inner: Any = root
        else:
            data = _landed(source, node)
            within = notation.within(name, data)
            inner = _split(notation, data) if within is None else {name: within}
        if isinstance(inner, dict) and name in inner:
            below = _split(notation, inner[name])
            if len(inner) != 1 or not isinstance(below, list) or not below:
                raise Flaw("a node of a cut value has another shape")
            return True, below
        if not isinstance(inner, dict if name == "$d" else list):
            raise Flaw("a node of a cut value is of another kind")
        return False, inner

    return leaves_of(root, opened)
