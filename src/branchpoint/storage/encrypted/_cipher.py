"""One key for one checkpoint: it seals bytes, opens them, and gives parts their stored names.

The cipher is AES-256-GCM-SIV (RFC 8452). Sealing is a function of what is sealed and of what it is bound to:
sealing again gives the same bytes, as the contract of storages asks for parts, and what tells that a prune
has landed already. GCM would give its key away if two different texts met one nonce; GCM-SIV gives nothing
away, and only equal texts under equal bindings look equal, which they are here by name already.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b

import msgspec

from branchpoint.errors import StorageError

try:
    from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:  # pragma: no cover - the tests have it
    raise ImportError(
        "branchpoint.storage.encrypted needs `cryptography`: pip install 'branchpoint[encryption]'"
    ) from error

__all__ = ["SEAL_VERSION", "Cipher"]

SEAL_VERSION = 1

_LABEL = "branchpoint"


class Cipher:
    """What one secret key becomes for one checkpoint; other checkpoints and purposes have other keys.

    Raises:
        StorageError: This build of `cryptography` has no AES-GCM-SIV.
    """

    __slots__ = ("_aead", "_bound", "_naming")

    def __init__(self, secret: bytes, key_id: str, checkpoint_id: str, format: str) -> None:
        self._bound = (_LABEL, SEAL_VERSION, format, checkpoint_id, key_id)
        try:
            self._aead = AESGCMSIV(_derived(secret, "seal", checkpoint_id))
        except UnsupportedAlgorithm as error:  # pragma: no cover - depends on the build
            raise StorageError(
                "this build of `cryptography` has no AES-GCM-SIV: install its wheel, or build it with "
                "OpenSSL 3.2 or newer"
            ) from error
        self._naming = _derived(secret, "name", checkpoint_id)

    def seal(self, kind: str, name: str, plain: bytes) -> bytes:
        """Return sealed bytes that open only as this kind of record, under this name."""
        bound, nonce = self._binding(kind, name)
        return self._aead.encrypt(nonce, plain, bound)

    def open(self, kind: str, name: str, sealed: bytes) -> bytes | None:
        """Return what was sealed; None when it was another key, kind, name, checkpoint, or other bytes."""
        bound, nonce = self._binding(kind, name)
        try:
            return self._aead.decrypt(nonce, sealed, bound)
        except InvalidTag:
            return None

    def name(self, digest: str) -> str:
        """Return the stored name of a part: a keyed digest of its digest."""
        keyed = blake2b(digest.encode(), digest_size=16, key=self._naming).digest()
        return urlsafe_b64encode(keyed).rstrip(b"=").decode()

    def _binding(self, kind: str, name: str) -> tuple[bytes, bytes]:
        bound = msgspec.json.encode([*self._bound, kind, name])
        return bound, blake2b(bound, digest_size=12).digest()


def _derived(secret: bytes, purpose: str, checkpoint_id: str) -> bytes:
    info = msgspec.json.encode([_LABEL, SEAL_VERSION, purpose, checkpoint_id])
    return HKDF(SHA256(), 32, None, info).derive(secret)
