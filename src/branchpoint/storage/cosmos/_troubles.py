"""What goes wrong with the service, told as what to do about it."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any

from branchpoint.errors import BranchpointError, InvalidCallError, StorageError, quotable

__all__ = [
    "Unmet",
    "driver",
    "is_container_missing",
    "is_lost",
    "is_worth_waiting",
    "moment_of",
    "seconds_to_wait",
    "status_of",
    "told",
]

_CONDITIONS = frozenset({404, 409, 412})
_NO_CONTAINER = 1003
_BUSY = frozenset({429, 449})
_UNCERTAIN = frozenset({408, 410, 500, 502, 503, 504})


class Unmet(Exception):
    """What a write expected is not so: an item is there, or not there, or has another etag."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def driver() -> Any:
    """Return what is used of the SDK.

    Raises:
        ImportError: It is not installed.
    """
    try:
        import aiohttp
        from azure.core import MatchConditions
        from azure.core.exceptions import AzureError
        from azure.cosmos import PartitionKey, exceptions
        from azure.cosmos.aio import CosmosClient
    except ImportError as error:
        raise ImportError(
            "CosmosCheckpointStorage needs the packages azure-cosmos and aiohttp: pip install 'branchpoint[cosmos]'"
        ) from error
    return SimpleNamespace(
        AzureError=AzureError,
        ClientError=aiohttp.ClientError,
        Client=CosmosClient,
        HttpError=(exceptions.CosmosHttpResponseError, exceptions.CosmosBatchOperationError),
        NotModified=MatchConditions.IfNotModified,
        PartitionKey=PartitionKey,
    )


def status_of(error: BaseException) -> int | None:
    """Return the status that the service has answered with, of one operation where a batch failed by it."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def is_container_missing(error: BaseException) -> bool:
    """Say whether database or container are not there, where an item was asked for."""
    return status_of(error) == 404 and getattr(error, "sub_status", None) == _NO_CONTAINER


def is_condition(error: BaseException) -> bool:
    """Say whether a write found something else than it expected."""
    return status_of(error) in _CONDITIONS and not is_container_missing(error)


def is_worth_waiting(error: BaseException) -> bool:
    """Say whether the service asked for patience, where the SDK has not had it: inside of a batch."""
    return status_of(error) in _BUSY


def is_lost(error: BaseException) -> bool:
    """Say whether nobody knows what the service has done."""
    status = status_of(error)
    return status in _UNCERTAIN or status is None


def seconds_to_wait(error: BaseException, tries: int) -> float:
    """Return for how long the service wants to be left alone."""
    told_so = [
        one.get("retryAfterMilliseconds")
        for one in getattr(error, "operation_responses", None) or ()
        if isinstance(one, dict)
    ]
    told_so.append(_headers(error).get("x-ms-retry-after-ms"))
    waits = [float(one) / 1000 for one in told_so if one is not None and str(one).isdigit()]
    return max(waits, default=min(0.01 * 2**tries, 1.0))


def moment_of(headers: Any) -> float | None:
    """Return when the service answered, in whole seconds since 1970 by its own clock."""
    found = headers.get("Date") or headers.get("date")
    try:
        return parsedate_to_datetime(found).timestamp() if found else None
    except ValueError:
        return None


def moment_in(error: BaseException) -> float | None:
    """Return when the service refused something."""
    return moment_of(_headers(error))


def _headers(error: BaseException) -> Any:
    return getattr(error, "headers", None) or {}


_ADVICE = {
    400: "Mend what the service names",
    401: "Correct the key or the credential, and see that this machine's clock is right",
    403: (
        "Give this identity the role `Cosmos DB Built-in Data Contributor`, let this machine through the account's "
        "firewall, or make room, as the service names it; database and container are made by an administrator "
        "(`await storage.setup()` with the account's key does it)"
    ),
    413: "Store less in one value",
    429: "Raise the throughput of the container, or spread the work",
}


def told(error: Exception, doing: str, *, where: str) -> BranchpointError:
    """Return what a caller is told of an error of the SDK, which is to be its cause."""
    status = status_of(error)
    if status is None and isinstance(error, ValueError | TypeError):
        return InvalidCallError(
            f"{doing} failed: the SDK could not read endpoint, key or options ({type(error).__name__}). An endpoint "
            "looks like https://account.documents.azure.com:443/, a key is base64"
        )
    message = getattr(error, "http_error_message", None) or str(error)
    reason = quotable(" ".join(str(message).split()), 200) or type(error).__name__
    if status == 429:
        reason = (
            f"the service throttled it and the SDK gave up. It wants {seconds_to_wait(error, 0):.1f} seconds"
        )
    answered = "" if status is None else f"status {status}: "
    advice = _ADVICE.get(status or 0, "Check the service and the way to it")
    return StorageError(f"{doing} failed ({where}): {answered}{reason}. {advice}, then try again")
