"""Time zones that are kept: fixed offsets, and zones that this machine finds again by their key."""

from __future__ import annotations

import datetime
import functools
import os
import re
import sys
import zoneinfo
from typing import Any, Final

__all__ = ["fixed_zone", "is_zone_key", "zone_flaw", "zone_is_here"]

_KEY: Final = re.compile(r"[A-Za-z0-9_+-]{1,64}(?:/[A-Za-z0-9_+-]{1,64}){0,7}")


def is_zone_key(text: str) -> bool:
    """Whether a text can be the key of a time zone; no such text leads out of a folder of zones."""
    return _KEY.fullmatch(text) is not None


def zone_is_here(key: str) -> bool:
    """Whether this machine has a zone of this key.

    Asked before `ZoneInfo(key)`, which for a key that is in no folder imports a module of that name from the
    package tzdata; here the package is asked once for the list of its zones.
    """
    if any(os.path.isfile(os.path.join(folder, key)) for folder in zoneinfo.TZPATH):
        return True
    return key in _listed()


@functools.lru_cache(maxsize=1)
def _listed() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def fixed_zone(zone: Any) -> Any:
    """The `datetime.timezone` for a zone that pydantic read from text; any other zone as it is.

    pydantic has a class of its own for "+02:00" and says nothing else with it. It is never imported here.
    """
    pydantic_core = sys.modules.get("pydantic_core")
    if pydantic_core is not None and type(zone) is getattr(pydantic_core, "TzInfo", None):
        return datetime.timezone(zone.utcoffset(None))
    return zone


def zone_flaw(zone: Any) -> str | None:
    """Why a zone cannot be kept, or None."""
    if type(zone) is datetime.timezone:
        return None
    if type(zone) is not zoneinfo.ZoneInfo:
        kind = type(zone)
        return (
            f"its time zone is a {kind.__module__}.{kind.__qualname__}; only datetime.timezone and a "
            f"zoneinfo.ZoneInfo with a key can be kept"
        )
    key: str | None = zone.key  # None for a zone read from a file
    if key is None:
        return "a ZoneInfo without a key cannot be found again"
    try:
        zone.__reduce__()
    except Exception:  # how a ZoneInfo says that it came from a file
        return (
            f"the ZoneInfo {key!r} was read from a file, so its key may mean another zone or none when it "
            f"is loaded; use zoneinfo.ZoneInfo({key!r})"
        )
    return None
