"""Checkpoints sealed before they reach a storage: AES-256-GCM-SIV around any other backend.

Needs the extra `encryption`. What is sealed, bound to what, and what still shows is said in
docs/reference/snapshot-format.md.
"""

from __future__ import annotations

from branchpoint.storage.encrypted._keys import EncryptionKeys
from branchpoint.storage.encrypted._storage import EncryptedCheckpointStorage

__all__ = ["EncryptedCheckpointStorage", "EncryptionKeys"]
