"""Time zones that are kept: fixed offsets, and zones that this machine finds again by their key."""

from __future__ import annotations

import datetime
import sys
import zoneinfo
from typing import Any

__all__ = ["fixed_zone", "zone_flaw"]


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
