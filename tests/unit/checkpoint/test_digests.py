"""A set of digests in little memory answers as a set does."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from branchpoint import codec
from branchpoint.checkpoint._digests import NO_DIGESTS, Digests

DIGESTS = st.integers(0, 60).map(lambda n: codec.digest(b"%d" % n)) | st.text(
    "ab-_0", min_size=1, max_size=64
)


@given(st.lists(DIGESTS), DIGESTS)
def test_it_holds_what_it_was_given_and_nothing_else(given_digests: list[str], other: str) -> None:
    found = Digests(given_digests)
    assert sorted(found) == sorted(set(given_digests))
    assert len(found) == len(set(given_digests))
    assert (other in found) == (other in given_digests)
    assert all(digest in found for digest in given_digests)


def test_what_is_no_digest_is_not_in_it() -> None:
    found = Digests([codec.digest(b"a")])
    for other in ("", "A", "é" * 22, codec.digest(b"a") + "A", codec.digest(b"a")[:-1], 7, None):
        assert other not in found
        assert other not in NO_DIGESTS
