"""Every legal id is a checkpoint of its own, and every other one is refused."""

from __future__ import annotations

import unicodedata

from branchpoint.errors import InvalidCallError
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import holds, refused, same
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, shared, small_state

_LEGAL = (
    "../../x", "/etc/x", "a/b", "a\\b", "..", ".", "C:\\x", "*", "[ab]", "?", "x' OR '1'='1", "%", "_", "-rf",
    " ", "a ", "a.", ".hidden", "con", "CON", "nul.txt", "a:b", "a:", ":a", "<a>", '"', "é", "e\u0301", "É", "ß",
    "ss", "ı", "I", "i", "\u212a", "k", "K", "a", "A", "aB", "Ab", "AB", "ab", "😀", "\u2028", "\u200b", "a|b",
    "{a}", "a#b", "$a", "a%2Fb", "a%252Fb", "%s", "0", "00", "null", "a" * 512, "é" * 512, "a" * 511,
)  # fmt: skip

_ILLEGAL = ("", "a\x00b", "a\nb", "\x1b[31m", "\x7f", "a" * 513, "a" * 5000, "\ud83d")


@clause("names", shows="C58 C59")
async def every_legal_id_is_its_own_checkpoint(place: Place) -> None:
    """Ids that differ in case, Unicode form, separators, wildcards or length never meet."""
    storage = await place.storage()
    for name in _LEGAL:
        await create(storage, name).commit_snapshot(small_state(0, name=name))
    listing = "list_checkpoints" in storage.capabilities
    left = set(_LEGAL)
    for name in _LEGAL:
        loaded = await storage.load(name)
        same(loaded.checkpoint_id, name)
        same(shared(loaded.head_snapshot), {"name": name})
    for name in _LEGAL:
        await storage.delete(name)
        left.discard(name)
        if listing and len(left) % 10 == 0:
            same([one.checkpoint_id for one in await storage.list_checkpoints()], sorted(left))
    for name in _LEGAL:
        await create(storage, name).commit_snapshot(small_state(0, again=name))  # and none is left of before


@clause("names", shows="C59")
async def an_illegal_id_is_refused_before_anything_happens(place: Place) -> None:
    """An id that no storage could keep raises InvalidCallError, from a storage as from a new checkpoint."""
    storage = await place.storage()
    for name in _ILLEGAL:
        with refused(InvalidCallError) as caught:
            create(storage, name)
        errors = [caught.error]
        for call in (storage.load, storage.delete, storage.load_head):
            with refused(InvalidCallError, what=f"{call.__name__}({name!r:.20})") as caught:
                await call(name)
            errors.append(caught.error)
        for error in errors:
            holds(
                not any(unicodedata.category(one).startswith("C") for one in str(error)),
                f"a control character is in the message {str(error)!r}",
            )
            holds(len(str(error)) < 300, "the message is as long as the id")
    if "list_checkpoints" in storage.capabilities:
        same(await storage.list_checkpoints(), [])
