"""Opening stored containers one level deep, children left encoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from branchpoint.codec._flaw import Flaw
from branchpoint.codec._format import Notation
from branchpoint.codec._parts import Encoded, Part
from branchpoint.codec._wiretree import load, mentioned, reference_in

__all__ = ["encoded_of", "entries_of", "items_of"]


def encoded_of(notation: Notation, data: bytes, parts: Mapping[str, bytes]) -> Encoded:
    """Stored bytes as an `Encoded`, with the stored parts they mention at hand."""
    if notation.marker not in data:
        return Encoded(data)
    digests = dict.fromkeys(mentioned(load(notation, data)))
    refs = tuple(Part(digest, parts[digest]) for digest in digests if digest in parts)
    return Encoded(data, refs, bool(digests))


def items_of(notation: Notation, data: bytes, parts: Mapping[str, bytes]) -> list[bytes]:
    """The encodings of the items of a stored list."""
    data = _landed(notation, data, parts)
    kind = _split(notation, data)
    if isinstance(kind, list):
        return kind
    if set(kind) != {"$l"}:
        raise Flaw("a list is expected here")
    return [item for leaf in _leaves(notation, kind["$l"], "$l", parts) for item in leaf]


def entries_of(notation: Notation, data: bytes, parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """The keys and the encodings of the values of a stored dict whose keys are text."""
    data = _landed(notation, data, parts)
    kind = _split(notation, data)
    if isinstance(kind, list):
        raise Flaw("a dict is expected here")
    if "$d" in kind:
        joined: dict[str, bytes] = {}
        count = 0
        for leaf in _leaves(notation, kind["$d"], "$d", parts):
            joined.update(leaf)
            count += len(leaf)
        if len(joined) != count:
            raise Flaw("a key comes twice in a cut dict")
        return joined
    if "$" in kind:
        return _tagged(notation, kind, parts)
    return kind


def _tagged(notation: Notation, kind: dict[str, bytes], parts: Mapping[str, bytes]) -> dict[str, bytes]:
    """A dict whose keys are text, some of which begin with `$`."""
    if tuple(kind) != ("$", "v") or notation.decode(kind["$"]) != "dict":
        raise Flaw("a dict is expected here")
    found: dict[str, bytes] = {}
    for pair in items_of(notation, kind["v"], parts):
        both = items_of(notation, pair, parts)
        key = load(notation, both[0]) if len(both) == 2 else None
        digest = reference_in(key)
        if digest is not None:
            key = load(notation, _landed(notation, both[0], parts))
        if type(key) is not str:
            raise Flaw("a dict with text keys is expected here")
        found[key] = both[1]
    return found


def _landed(notation: Notation, data: bytes, parts: Mapping[str, bytes]) -> bytes:
    """The data itself, or that of the part it refers to."""
    if len(data) > 64 or notation.marker not in data:
        return data
    digest = reference_in(load(notation, data))
    if digest is None:
        return data
    try:
        return parts[digest]
    except KeyError:
        raise Flaw(f"the part {digest} is missing") from None


def _split(notation: Notation, data: bytes) -> list[bytes] | dict[str, bytes]:
    try:
        items = [bytes(item) for item in notation.split_list(data)]
        again = notation.join_list(items)
        result: Any = items
    except msgspec.DecodeError:
        try:
            result = {key: bytes(item) for key, item in notation.split_dict(data).items()}
        except msgspec.DecodeError as error:
            raise Flaw(f"a list or a dict is expected here ({error})") from None
        again = notation.join_dict([notation.entry(key, item) for key, item in result.items()])
    if again != data:
        raise Flaw(
            "the bytes are not the ones that this value is written with (spacing, repeated keys or the like)"
        )
    return result  # type: ignore[no-any-return]


def _leaves(notation: Notation, below: bytes, name: str, parts: Mapping[str, bytes]) -> list[Any]:
    leaves: list[Any] = []
    nodes = _split(notation, below)
    if not isinstance(nodes, list):
        raise Flaw("a node of a cut value has another shape")
    for node in nodes:
        inner = _split(notation, _landed(notation, node, parts))
        if isinstance(inner, dict) and name in inner:
            leaves.extend(_leaves(notation, inner[name], name, parts))
        elif isinstance(inner, dict if name == "$d" else list):
            leaves.append(inner)
        else:
            raise Flaw("a node of a cut value is of another kind")
    return leaves
