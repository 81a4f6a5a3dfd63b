"""The keys of an encrypting storage: what they look like, how they are changed, and that none is ever shown."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import traceback

import pytest

from branchpoint.errors import CorruptCheckpointError, DataError, InvalidCallError
from branchpoint.storage import MemoryCheckpointStorage
from branchpoint.storage.encrypted import EncryptionKeys
from branchpoint.storage.encrypted._cipher import Cipher
from tests.sealing import NEW, OLD, OTHER, Stored, sealed
from tests.storages import create, grown, lineage, shared, state


@pytest.mark.parametrize(
    ("keys", "current", "match"),
    [
        ({}, None, "at least one"),
        (OLD, None, "is no bytes"),
        ({"k1": OLD[:31]}, None, "not 31 bytes"),
        ({"k1": OLD.hex()}, None, "not str"),
        ({"k1": bytearray(OLD)}, None, "not bytearray"),
        ({"": OLD}, None, "key id"),
        ({"k" * 65: OLD}, None, "key id"),
        ({"a.b": OLD}, None, "key id"),
        ({"é": OLD}, None, "key id"),
        ({1: OLD}, None, "key id"),
        ({"k1": OLD, "k2": OLD}, "k1", "the same"),
        ({"k1": OLD, "k2": NEW}, None, "`current` says"),
        ({"k1": OLD}, "k2", "current is one of"),
        # A key in the place of an id.
        ({OLD: "k1"}, None, "key id.*not bytes"),
        ({f"{OLD.hex()}==": NEW}, None, "key id.*text of 66"),
        ({"k1": OLD, "k2": NEW}, OLD, "current is one of.*not bytes"),
        ({"k1": OLD}, NEW.hex(), "current is one of.*text of 64"),
        ({"k1": OLD}, [OLD], "current is one of.*not list"),
    ],
)
def test_keys_of_another_form_are_refused_and_not_quoted(keys: object, current: object, match: str) -> None:
    with pytest.raises(InvalidCallError, match=match) as told:
        EncryptionKeys(keys, current=current)  # type: ignore[arg-type]
    assert_no_secret(str(told.value))


def test_keys_say_what_they_are_and_show_no_secret() -> None:
    keys = EncryptionKeys({"k1": OLD, "k2": NEW}, current="k2")
    assert (keys.current, keys.ids) == ("k2", {"k1", "k2"})
    assert EncryptionKeys({"only": OLD}).current == "only"
    storage = sealed(MemoryCheckpointStorage(), k1=OLD)
    assert_no_secret(repr(keys), repr(storage), str(vars(storage)))
    for dump in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled"):
            dump(keys)


def assert_no_secret(*texts: str) -> None:
    for text in texts:
        for key in (OLD, NEW, OTHER):
            assert repr(key)[2:30] not in text and key.hex()[:20] not in text


async def test_a_key_that_is_not_there_is_named_and_nothing_is_called_damaged() -> None:
    inner = MemoryCheckpointStorage()
    await grown(sealed(inner, k1=OLD))
    with pytest.raises(DataError, match=r"'order-17'.*key 'k1'.*add it to its keys") as told:
        await sealed(inner, k2=NEW).load("order-17")
    assert not isinstance(told.value, CorruptCheckpointError)


async def test_another_key_of_the_same_id_opens_nothing() -> None:
    inner = MemoryCheckpointStorage()
    checkpoint = await grown(sealed(inner, k1=OLD))
    with pytest.raises(CorruptCheckpointError, match=r"'order-17'.*'k1'.*another key of this id") as told:
        await sealed(inner, k1=NEW).load("order-17")
    assert_no_secret("".join(traceback.format_exception(told.value)))
    # It is found too by who adds to it without having loaded it.
    checkpoint.storage_token = None
    checkpoint._history.storage = sealed(inner, k1=NEW)
    with pytest.raises(CorruptCheckpointError):
        await checkpoint.commit_snapshot(state(3))
    assert len((await sealed(inner, k1=OLD).load("order-17")).snapshots) == 3


async def test_after_a_rotation_old_commits_are_read_and_new_ones_have_the_new_key() -> None:
    inner = MemoryCheckpointStorage()
    await grown(sealed(inner, k1=OLD))
    old = set(inner._kept["order-17"].parts.values())
    both = await sealed(inner, k1=OLD, k2=NEW).load("order-17")
    await both.commit_snapshot(state(3, n="new", text="x" * 500))
    stored = Stored(inner)
    assert [stored.manifest(place).requests[0][:5] for place in range(4)] == ["1.k1."] * 3 + ["1.k2."]
    new = set(inner._kept["order-17"].parts.values()) - old
    assert new and all(part.startswith(b'"1.k2.') for part in new)
    loaded = await sealed(inner, k1=OLD, k2=NEW).load("order-17")
    assert [shared(one)["n"] for one in loaded.snapshots] == [0, 1, 2, "new"]
    for alone in ({"k1": OLD}, {"k2": NEW}):
        with pytest.raises(DataError, match="was not given"):
            await sealed(inner, **alone).load("order-17")


async def test_after_a_rotation_equal_parts_keep_their_names_and_a_prune_finds_them() -> None:
    inner = MemoryCheckpointStorage()
    long = "x" * 500
    await create(sealed(inner, k1=OLD)).commit_snapshot(state(0, n=0, long=long))
    both = sealed(inner, k1=OLD, k2=NEW)
    checkpoint = await both.load("order-17")
    names = inner._kept["order-17"].parts.keys()
    await checkpoint.commit_snapshot(state(1, n=1, long=long))
    await checkpoint.commit_snapshot(state(2, n=2, long=long))
    assert names <= inner._kept["order-17"].parts.keys()
    await checkpoint.prune()
    loaded = await both.load("order-17")
    assert lineage(loaded) == lineage(checkpoint)
    assert shared(loaded.head_snapshot) == {"n": 2, "long": long}
    assert len(inner._kept["order-17"].parts) == len(loaded.head_snapshot.parts())  # type: ignore[union-attr]


async def test_parts_are_fetched_by_the_names_of_any_key() -> None:
    inner = MemoryCheckpointStorage(lazy_over=0)
    for n, keys in enumerate(({"k1": OLD}, {"k1": OLD, "k2": NEW})):
        checkpoint = create(sealed(inner, **keys), f"id-{n}")
        await checkpoint.commit_snapshot(state(0, text="a" * 500))
        await checkpoint.commit_snapshot(state(1, text="b" * 500))
        loaded = await sealed(inner, k1=OLD, k2=NEW).load(f"id-{n}")
        assert not loaded.snapshots[0].is_loaded
        assert shared(await loaded.load_snapshot(loaded.snapshots[0].snapshot_id)) == {"text": "a" * 500}


async def test_a_fork_is_sealed_anew_so_that_an_old_key_can_go() -> None:
    inner = MemoryCheckpointStorage()
    await grown(sealed(inner, k1=OLD))
    both = await sealed(inner, k1=OLD, k2=NEW).load("order-17")
    await both.fork(checkpoint_id="order-17-b")
    await sealed(inner, k2=NEW).delete("order-17")
    loaded = await sealed(inner, k2=NEW).load("order-17-b")
    assert shared(loaded.head_snapshot) == {"n": 2}


def test_each_purpose_checkpoint_and_key_has_keys_of_its_own() -> None:
    ciphers = [
        Cipher(secret, key_id, checkpoint_id, format)
        for secret in (OLD, NEW)
        for key_id in ("k1", "k2")
        for checkpoint_id in ("a", "b")
        for format in ("json", "msgpack")
    ]
    for mine in ciphers:
        closed = mine.seal("part", "name", b"text")
        assert [other for other in ciphers if other.open("part", "name", closed) is not None] == [mine]
        assert mine.open("part", "names", closed) is mine.open("manifest", "name", closed) is None
        assert mine.open("part", "name", b"") is mine.open("part", "name", closed[:16]) is None
    assert len({cipher.name("digest") for cipher in ciphers}) == 4  # by secret and checkpoint


def test_a_program_without_cryptography_is_told_what_to_install() -> None:
    probe = (
        "import sys; sys.modules['cryptography'] = None; import branchpoint\n"
        "try:\n    import branchpoint.storage.encrypted\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'branchpoint[encryption]'" in done.stdout
