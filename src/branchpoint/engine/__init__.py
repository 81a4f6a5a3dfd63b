"""One ephemeral run: what is happening."""

from branchpoint.engine._channel import Channel
from branchpoint.engine._driver import Finished, Runner
from branchpoint.engine._request import ABSENT, Absent, RunRequest
from branchpoint.engine._stopping import ended, stop

__all__ = ["ABSENT", "Absent", "Channel", "Finished", "RunRequest", "Runner", "ended", "stop"]
