"""Time zones that are kept, and those that could not be found again."""

from __future__ import annotations

import datetime
import io
import struct
import zoneinfo
from collections.abc import Iterator
from typing import Any

import pydantic
import pydantic_core
import pytest

from branchpoint.codec import Format, decode, encode, fingerprint, new_parts, register_state_type
from branchpoint.errors import UnsupportedValueError
from tests.unit.codec import value_kinds as kinds

BOTH = pytest.mark.parametrize("format", ["json", "msgpack"])


class Alarm(pydantic.BaseModel):
    at: datetime.time


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with kinds.registered():
        register_state_type(kinds.Event, type_id="test.event")
        register_state_type(Alarm, type_id="test.alarm")
        yield


def kept(value: Any, format: Format) -> Any:
    encoded, _ = encode(value, format=format)
    return decode(encoded.data, new_parts(encoded, ()), format=format)


@BOTH
@pytest.mark.parametrize("offset", ["Z", "+02:00", "-23:59", "+05:30"])
def test_a_moment_that_pydantic_read_from_text_is_kept_as_a_fixed_offset(offset: str, format: Format) -> None:
    for model, text in ((kinds.Event, f"2024-01-02T03:04:05{offset}"), (Alarm, f"03:04:05{offset}")):
        value: Any = model.model_validate_json(f'{{"at": "{text}"}}')
        assert type(value.at.tzinfo) is pydantic_core.TzInfo
        found = kept(value, format)
        assert found == value
        assert type(found.at.tzinfo) is datetime.timezone
        assert found.at.utcoffset() == value.at.utcoffset()
        assert fingerprint(found) == fingerprint(value)
        assert encode(found, format=format)[0].data == encode(value, format=format)[0].data


@BOTH
def test_such_a_moment_in_a_fold_is_kept(format: Format) -> None:
    value = datetime.datetime(2024, 1, 1, fold=1, tzinfo=pydantic_core.TzInfo(7200))
    found = kept(value, format)
    assert (found, found.fold, found.tzinfo) == (value, 1, datetime.timezone(datetime.timedelta(hours=2)))


@BOTH
@pytest.mark.parametrize("key", ["My/Zone", "UTC"])
def test_a_zone_that_was_read_from_a_file_is_refused_when_it_is_encoded(key: str, format: Format) -> None:
    data = (
        b"TZif"
        + bytes(16)
        + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
        + struct.pack(">lbb", 3600, 0, 0)
        + b"ONE\0"
    )
    zone = zoneinfo.ZoneInfo.from_file(io.BytesIO(data), key=key)
    for value in (zone, datetime.datetime(2024, 1, 1, tzinfo=zone), datetime.time(1, tzinfo=zone)):
        with pytest.raises(UnsupportedValueError, match=rf"at a\[0\] .*{key}.*read from a file"):
            encode({"a": [value]}, format=format)
    assert kept(zoneinfo.ZoneInfo.no_cache("UTC"), format).key == "UTC"
