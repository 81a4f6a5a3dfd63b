"""Stored bytes as wire trees: parts resolved, cut lists and dicts put together again.

Nothing here knows a live type. Bytes are taken only if they are canonical: if msgspec would write
the tree it read with the same bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from branchpoint.codec._flaw import Flaw
from branchpoint.codec._format import Notation

__all__ = ["load", "mentioned", "nodes_of", "plain_tree", "reachable_parts", "reference_in", "resolve"]


def load(notation: Notation, data: bytes) -> Any:
    """Decode one piece of bytes and check that it is canonical.

    Raises:
        Flaw: It is not.
    """
    try:
        tree = notation.decode(data)
        again = notation.encode(tree)
    except (msgspec.DecodeError, UnicodeError, TypeError, ValueError, OverflowError) as error:
        raise Flaw(f"this is no {notation.name} ({error})") from None
    if again != data:
        raise Flaw(
            "the bytes are not the ones that this value is written with (spacing, repeated keys or the like)"
        )
    return tree


def reference_in(tree: Any) -> str | None:
    """The digest, if a tree is a reference to a part."""
    if type(tree) is dict and "$p" in tree:
        digest = tree["$p"]
        if len(tree) != 1 or type(digest) is not str:
            raise Flaw("a reference to a part has another shape")
        return digest
    return None


def resolve(notation: Notation, digest: str, parts: Mapping[str, bytes]) -> Any:
    """Load the part of a digest."""
    data = parts.get(digest)
    if data is None:
        raise Flaw(f"the part {digest} is missing")
    return load(notation, data)


def nodes_of(notation: Notation, tree: Any, mapping: bool, parts: Mapping[str, bytes]) -> Iterator[Any]:
    """The leaves of a cut list (`{"$l": ...}`) or dict (`{"$d": ...}`), from left to right."""
    name = "$d" if mapping else "$l"
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        digest = reference_in(node)
        if digest is not None:
            node = resolve(notation, digest, parts)
        if type(node) is dict and name in node:
            below = node[name]
            if len(node) != 1 or type(below) is not list or not below:
                raise Flaw("a node of a cut value has another shape")
            waiting.extend(reversed(below))
        elif type(node) is (dict if mapping else list):
            yield node
        else:
            raise Flaw("a node of a cut value is of another kind")


def mentioned(tree: Any) -> Iterator[str]:
    """The digests that a tree mentions, in order; a digest may come twice."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if type(node) is dict:
            digest = reference_in(node)
            if digest is not None:
                yield digest
            else:
                waiting.extend(reversed(node.values()))
        elif type(node) is list:
            waiting.extend(reversed(node))


def reachable_parts(notation: Notation, roots: Iterable[str], parts: Mapping[str, bytes]) -> set[str]:
    """The digests of the roots and of everything under them."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        digest = waiting.pop()
        if digest in found:
            continue
        data = parts.get(digest)
        if data is None:
            raise Flaw(f"the part {digest} is missing")
        found.add(digest)
        if notation.marker in data:
            waiting.extend(mentioned(load(notation, data)))
    return found


def plain_tree(notation: Notation, tree: Any, parts: Mapping[str, bytes]) -> Any:
    """A wire tree with references and cuts resolved, as JSON has it; tags stay."""
    kind = type(tree)
    if kind is list:
        return [plain_tree(notation, item, parts) for item in tree]
    if kind is bytes:
        return base64.b64encode(tree).decode("ascii")
    if kind is not dict:
        return tree
    digest = reference_in(tree)
    if digest is not None:
        return plain_tree(notation, resolve(notation, digest, parts), parts)
    if "$l" in tree:
        leaves = nodes_of(notation, tree, False, parts)
        return [plain_tree(notation, item, parts) for leaf in leaves for item in leaf]
    if "$d" in tree:
        leaves = nodes_of(notation, tree, True, parts)
        return {key: plain_tree(notation, item, parts) for leaf in leaves for key, item in leaf.items()}
    return {key: plain_tree(notation, item, parts) for key, item in tree.items()}
