"""A process of its own that watches itself while it reads what was forged.

It registers a few types, as a program would, and reads every journal of a folder in every way, twice:
the first time imports what an error needs. Then a hook that the interpreter calls for every import,
compilation, execution, new process and unpickled name writes down what it is told.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pydantic

from branchpoint import codec, register_state_type
from branchpoint.checkpoint import Checkpoint
from branchpoint.errors import BranchpointError, CheckpointNotFoundError
from branchpoint.storage import FileCheckpointStorage
from tests.hostile.forge import all_reads, check_told

WATCHED = {
    "import", "exec", "compile", "code.__new__", "function.__new__", "marshal.load", "marshal.loads",
    "pickle.find_class", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn",
    "os.startfile", "subprocess.Popen", "ctypes.dlopen", "ctypes.dlsym", "ctypes.call_function",
    "socket.connect", "socket.getaddrinfo", "urllib.Request", "shutil.rmtree", "os.remove", "os.rmdir",
    "os.rename", "os.chmod", "os.chown", "os.symlink", "os.link", "os.mkdir", "os.putenv", "os.kill",
    "webbrowser.open", "tempfile.mkstemp", "builtins.input", "builtins.breakpoint", "object.__delattr__",
    "sys._getframe", "pty.spawn", "glob.glob", "mmap.__new__", "sqlite3.connect", }  # fmt: skip
"""What reading never does."""

T = TypeVar("T")
called: list[str] = []
"""What a class of this program was made to do."""


@register_state_type("hostile.order")
@dataclasses.dataclass
class Order:
    number: int
    items: list[Any] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        called.append("Order.__post_init__")

    def __setattr__(self, name: str, value: Any) -> None:
        called.append(f"Order.__setattr__ {name}")
        object.__setattr__(self, name, value)

    @property
    def secret(self) -> str:
        return "secret"

    @secret.setter
    def secret(self, value: Any) -> None:
        called.append("Order.secret")


@register_state_type("hostile.slotted")
@dataclasses.dataclass(slots=True)
class Slotted:
    number: int = 0


@register_state_type("hostile.item")
class Item(msgspec.Struct):
    sku: str
    data: Any = None

    def __post_init__(self) -> None:
        called.append("Item.__post_init__")


@register_state_type("hostile.pair")
class Pair(NamedTuple):
    left: Any
    right: Any = None


@register_state_type("hostile.mode")
class Mode(enum.Enum):
    ON = "on"

    def explode(self) -> None:
        called.append("Mode.explode")

    @classmethod
    def _missing_(cls, value: object) -> None:
        called.append("Mode._missing_")


@register_state_type("hostile.right")
class Right(enum.Flag):
    READ = 1
    WRITE = 2


@register_state_type("hostile.box")
class Box(pydantic.BaseModel, Generic[T]):
    content: T

    @pydantic.field_validator("content")
    @classmethod
    def validated(cls, value: Any) -> Any:
        called.append("Box.validated")
        return value

    def model_post_init(self, context: Any) -> None:
        called.append("Box.model_post_init")


class Custom:
    def __init__(self, payload: Any) -> None:
        self.payload = payload


def _decoded(payload: Any) -> Custom:
    if type(payload) is not str:
        raise ValueError(f"a text is expected, not {payload!r}")
    return Custom(payload)


register_state_type(Custom, type_id="hostile.custom", encoder=lambda value: value.payload, decoder=_decoded)


class Unregistered:
    """Exists, and is not for data to name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        called.append("Unregistered.__init__")


class Finder:
    """Stands in front of everything that finds modules, and writes down what is looked for."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self.told = told

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        self.told(name)


async def watch(folder: str, format: Any, ids: list[str]) -> dict[str, Any]:
    """Read all these checkpoints twice, and say what was seen the second time and what each gave."""
    seen: list[list[str]] = []
    watching = False

    def hook(event: str, arguments: Any) -> None:
        if watching and event in WATCHED:
            seen.append([event, repr(arguments)[:300]])

    def looked_for(name: str) -> None:
        if watching:
            seen.append(["find_spec", name])

    sys.addaudithook(hook)
    sys.meta_path.insert(0, Finder(looked_for))  # type: ignore[arg-type]
    modules = set(sys.modules)
    gave: dict[str, list[str]] = {}
    for turn in range(2):
        watching = turn == 1
        if watching:
            modules = set(sys.modules)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            await FileCheckpointStorage(Path(folder), serialization_format=format).list_checkpoints()
        for checkpoint_id in ids:
            gave[checkpoint_id] = await _read(folder, format, checkpoint_id)
    watching = False
    return {
        "seen": seen,
        "imported": sorted(set(sys.modules) - modules),
        "pickle": "pickle" in sys.modules,
        "called": called,
        "gave": gave,
    }


async def _read(folder: str, format: Any, checkpoint_id: str) -> list[str]:
    """Read one checkpoint in every way; the names of the errors, of the load or of `state` the first."""
    storage = FileCheckpointStorage(Path(folder), serialization_format=format)
    try:
        await storage.load_head(checkpoint_id)
    except BranchpointError as error:
        assert not isinstance(error, CheckpointNotFoundError), checkpoint_id
        check_told(error)
    try:
        checkpoint: Checkpoint = await storage.load(checkpoint_id)
    except BranchpointError as error:
        check_told(error)
        return [type(error).__name__, str(error)]
    head = checkpoint.head_snapshot
    assert head is not None
    await all_reads(checkpoint)
    for request in checkpoint.pending_requests:
        for text in (request.request_type, request.response_type):
            try:
                codec.parse_type_expression(text)
            except BranchpointError as error:
                check_told(error)
    try:
        head.state  # noqa: B018
    except BranchpointError as error:
        check_told(error)
        return [type(error).__name__, str(error)]
    return ["nothing", ""]
