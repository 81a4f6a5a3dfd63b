"""The checkpoint: one logical execution, owned by the caller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from branchpoint import clock, codec
from branchpoint.checkpoint import _reading
from branchpoint.checkpoint._abandoning import abandoned_state, last_completed, unfinished_head
from branchpoint.checkpoint._commit import commit_state, land, watched
from branchpoint.checkpoint._contract import CheckpointStorage, Lease, refuse_stale
from branchpoint.checkpoint._history import History
from branchpoint.checkpoint._hold import Guard, Hold
from branchpoint.checkpoint._manifest import FORMAT_VERSION, Header, Manifest, Origin
from branchpoint.checkpoint._naming import named
from branchpoint.checkpoint._plain import (
    check_id,
    copy_labels,
    copy_metadata,
    copy_plain,
    copy_signature,
    require_text,
)
from branchpoint.checkpoint._pruning import Keep, prune
from branchpoint.checkpoint._restoring import fetch, fetch_lineage, rebuild
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.checkpoint._state import Summary
from branchpoint.checkpoint._view import CheckpointView
from branchpoint.errors import CheckpointNotFoundError, GraphMismatchError, InvalidCallError
from branchpoint.events import instruments
from branchpoint.ids import new_id

__all__ = ["Checkpoint"]

Explain = Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[str]]


class Checkpoint(CheckpointView):
    """One logical execution and its whole lifecycle: a graph of snapshots and two heads.

    The *selected* head (`head_snapshot_id`) is what the next run restores from and the parent of
    the next snapshot. The *stored* head (`stored_head_snapshot_id`) is what this object last saw
    in storage, and what storage compares at the next commit.

    Made by `workflow.create_checkpoint(...)` or by `await storage.load(id)`; one run at a time uses it.
    Reading is allowed at any time and from any thread.
    """

    def __init__(self, history: History, *, storage_token: Any = None) -> None:
        super().__init__(history)
        self._guard = Guard(history.header.checkpoint_id)
        #: A slot for the backend, for instance for its etag; nothing else reads it.
        self.storage_token = storage_token

    @classmethod
    def create(
        cls,
        *,
        workflow_name: str,
        graph_signature_hash: str,
        signature: Mapping[str, Any],
        checkpoint_id: str | None = None,
        checkpoint_storage: CheckpointStorage | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Checkpoint:
        """Return a new, empty checkpoint; nothing is stored before its first commit.

        Raises:
            InvalidCallError: The id is one that no backend could keep, the metadata is not text to text,
                name, hash or signature are not text and plain JSON, or a storage was given for a
                workflow without a name.
        """
        if checkpoint_storage is not None and not workflow_name:
            raise InvalidCallError(
                "An unnamed workflow cannot have a stored checkpoint: its name could not match after a restart. "
                "Build it with WorkflowBuilder(name=...)."
            )
        header = Header(
            format_version=FORMAT_VERSION,
            checkpoint_id=new_id() if checkpoint_id is None else check_id(checkpoint_id),
            workflow_name=require_text(workflow_name, "workflow_name"),
            graph_signature_hash=require_text(graph_signature_hash, "graph_signature_hash"),
            signature=copy_signature(signature),
            metadata=copy_labels(metadata),
            created_at=clock.now(),
        )
        return cls(History(header=header, storage=checkpoint_storage))

    @classmethod
    def restore(
        cls,
        *,
        header: Header,
        manifests: Sequence[Manifest],
        head_snapshot_id: str,
        parts: Mapping[str, bytes],
        checkpoint_storage: CheckpointStorage | None,
        storage_token: Any = None,
        unloaded: Collection[str] = (),
        left: Collection[str] = (),
        lazy_over: int | None = None,
        sealed: bool = False,
    ) -> Checkpoint:
        """Rebuild a checkpoint from what a backend stored; this is how `load` ends.

        Checks bucket names, lineage and digests, in this order, and decodes no value. Parts that no
        snapshot needs are left-overs of interrupted writes and are dropped.

        A backend with `load_parts` may be lazy in two ways: read everything and give `lazy_over`, or
        read less and say so with `unloaded` and `left`.

        Args:
            header: From `decode_header`.
            manifests: From `decode_manifest`, in commit order.
            head_snapshot_id: The stored head.
            parts: Digest to bytes; needs no copy, it is not kept.
            checkpoint_storage: The storage that later commits go to.
            storage_token: Kept for the backend.
            unloaded: Ids of snapshots whose parts were left in storage (`load_parts` fetches them);
                the head is never among them.
            left: Digests of the parts that were left in storage and that these snapshots need; a
                commit does not write them again.
            lazy_over: Keep at most so many bytes of parts: all that the head needs, whatever its size,
                and then the newest other snapshots as far as they fit. What is left behind was
                checked like the rest. None keeps everything.
            sealed: The backend has proven by checksums of its own that these parts are whole, and are those
                of commits that landed, with none left over. Then digests are not computed again, and
                only the head is checked to have all its parts; another snapshot that lacks one says so
                when it is read.

        Raises:
            CorruptCheckpointError: What was stored is damaged; the message names the checkpoint, and
                the snapshot where it is one that is damaged.
        """
        history = rebuild(
            header=header,
            manifests=manifests,
            head_snapshot_id=head_snapshot_id,
            parts=parts,
            storage=checkpoint_storage,
            unloaded=unloaded,
            left=left,
            lazy_over=lazy_over,
            sealed=sealed,
        )
        return cls(history, storage_token=storage_token)

    # Using it.

    def hold(self, owner: str) -> Hold:
        """Take the checkpoint for one run, in words that tell others what holds it.

        Raises:
            CheckpointInUseError: Something holds it; raised at once, from any thread.
        """
        return Hold(self, self._guard, self._guard.take(owner))

    async def take_hold(self, owner: str, *, grace: float) -> Hold:
        """Like `hold`, but wait up to `grace` seconds for a holder that is only cleaning up.

        Raises:
            CheckpointInUseError: Something holds it and is at work, or cleans up for too long.
        """
        return Hold(self, self._guard, await self._guard.take_when_closed(owner, grace))

    @property
    def in_use_by(self) -> str | None:
        """What holds the checkpoint, in words; None when it is free."""
        return self._guard.owner

    @property
    def lease(self) -> Lease | None:
        """The lease under which the run that holds it commits, for storages to compare; None without one."""
        return self._guard.lease

    def verify_graph(
        self,
        *,
        workflow_name: str,
        graph_signature_hash: str,
        signature: Mapping[str, Any],
        explain: Explain | None = None,
    ) -> None:
        """Check that a workflow is the one this checkpoint was made by; changes nothing.

        Args:
            explain: Says how two signatures differ, old one first.

        Raises:
            GraphMismatchError: It is another; the message names what differs.
        """
        made_by = self._history.header
        head = self.head_snapshot
        expected = made_by.graph_signature_hash if head is None else head.graph_signature_hash
        if made_by.workflow_name == workflow_name and expected == graph_signature_hash:
            return
        differences: list[str] = []
        named = False
        if explain is not None:
            try:
                differences += explain(copy_plain(made_by.signature), signature)
                named = made_by.signature.get("name") != signature.get("name")  # it said so then
            except Exception:  # it expects what a graph writes, and this was stored
                differences.append("what is stored of its signature has another shape")
        if made_by.workflow_name != workflow_name and not named:
            differences.insert(
                0, f"the workflow was named {made_by.workflow_name!r} and is named {workflow_name!r}"
            )
        raise GraphMismatchError(
            f"checkpoint {self.checkpoint_id!r} was made by another graph: "
            f"{'; '.join(differences) or 'their signatures differ'}. "
            "It was left as it is; run it with the workflow that made it, or create a new checkpoint"
        )

    def restart_from(self, snapshot_id: str | None) -> None:
        """Select the snapshot that the next run restores from and continues. In memory; nothing is deleted.

        None selects the empty start: the next input becomes a second root. When a lazy storage left the
        snapshot's state behind, the next run fetches it.

        Raises:
            SnapshotNotFoundError: The snapshot does not belong to this checkpoint; nothing changed.
            SnapshotNotLoadedError: It may be one that a lazy storage left behind: `await load_lineage()`.
            CheckpointInUseError: A run is active.
        """
        with self.hold("restart_from()"):
            self._history.selected = (
                None if snapshot_id is None else self.get_snapshot(snapshot_id).snapshot_id
            )

    async def check_head(self) -> None:
        """Compare the stored head with the one this object last saw; a run does so before its first handler.

        Raises:
            CheckpointConflictError: Another writer moved or pruned it, deleted the checkpoint, or
                stored one under this id.
        """
        if self._history.storage is None:
            return
        try:
            stored = await self._history.storage.load_head(self.checkpoint_id)
        except CheckpointNotFoundError:
            stored = None
        refuse_stale(
            self.checkpoint_id,
            expected_head_snapshot_id=self._history.stored,
            generation=self._history.header.generation,
            stored=stored,
        )

    async def load_snapshot(self, snapshot_id: str) -> CheckpointSnapshot:
        """Return a snapshot whose state is in memory, fetching it when a lazy storage left it behind.

        Raises:
            SnapshotNotFoundError: This checkpoint holds none of that id.
            CheckpointConflictError: Another writer pruned or replaced the checkpoint, and the parts went.
            CheckpointNotFoundError: It was deleted from storage.
            CorruptCheckpointError: Storage no longer has all its parts, or one is damaged.
            StorageError: Storage failed.
        """
        if snapshot_id not in self._history:
            await self.load_lineage()
        snapshot = self.get_snapshot(snapshot_id)
        if not snapshot.is_loaded:
            await fetch(self._history, snapshot)
        return snapshot

    async def load_lineage(self) -> None:
        """Learn of every retained snapshot, when a lazy storage left older ones behind; states stay there.

        Needed before `snapshots`, `ancestors`, `events`, `restart_from` and `get_snapshot` speak of those;
        `run()`, `load_snapshot`, `fork`, `abandon` and `prune` fetch by themselves. Once all are
        known this does nothing.

        Raises:
            CheckpointConflictError: Another writer pruned or replaced the checkpoint; `refresh()`.
            CheckpointNotFoundError: It was deleted from storage.
            CorruptCheckpointError: The stored lineage is damaged.
            StorageError: Storage failed.
        """
        await fetch_lineage(self._history)

    # Changing it.

    async def commit_snapshot(
        self, state: Mapping[str, Any] | None = None, metadata: Mapping[str, Any] | None = None
    ) -> CheckpointSnapshot:
        """Commit a snapshot as a child of the selected head, and advance both heads to it.

        With `state` this edits the past: boundary `edited`, and the status follows what is pending in
        it. Its whole shape is checked here; that it speaks of executors and edges that the graph has
        is checked when it runs. Without `state`, it commits the selected head's state again (boundary
        `restarted`), which stores a `restart_from` alone. The metadata of the selected head is carried
        on, with `metadata` over it.

        When it raises, nothing changed: both heads and the history are as before, and the checkpoint
        can be used again. When it is cancelled it first waits until storage has answered, so memory and
        storage agree.

        Raises:
            InvalidCallError: Something in the state has another shape than a run could take (the message
                has its path), the metadata is not plain JSON of at most 16 KiB, or there is no head to
                commit again.
            CheckpointInUseError: A run or another commit is using the checkpoint.
            CheckpointConflictError: Another writer moved the stored head; nothing was persisted.
            EncodingError: The state holds a value that cannot be kept; the message has its path.
            StorageError: Storage failed.
        """
        given = copy_metadata(metadata)
        with self.hold("commit_snapshot()") as hold:
            head = self.head_snapshot
            carried = head.manifest.metadata if head is not None else {}
            return await hold.commit_snapshot(state, {**carried, **given})

    async def _commit(
        self,
        hold: Hold,
        *,
        state: Mapping[str, Any] | None,
        metadata: Mapping[str, Any] | None,
        summary: Summary | None,
        trace: str | None,
    ) -> CheckpointSnapshot:
        """Commit for a hold of this checkpoint; the public call and every run come through here."""
        if hold.left_lease is not None:
            await hold.end_left_lease()
        commit = commit_state(
            self, self._history, hold, state=state, metadata=metadata, summary=summary, trace=trace
        )
        if instruments:
            commit = watched(self._history, commit, summary=summary, again=state is None)
        return await commit

    async def abandon(self, reason: str | None = None) -> CheckpointSnapshot:
        """Give up unfinished work: commit the last completed boundary's state as child of the selected head.

        Nothing is pending afterwards and the next message starts the next turn. The abandoned work
        stays selectable. The input that is given up counts as accepted: a redelivery of it does not
        act again. Open requests are given up too.

        Args:
            reason: Kept as `metadata["reason"]` of the new snapshot (boundary `abandoned`).

        Raises:
            InvalidCallError: There is no unfinished work, or a prune removed a part of the way back to
                the last completed boundary.
            CheckpointInUseError: A run is using the checkpoint.
            CheckpointConflictError: Another writer moved the stored head.
        """
        given = {} if reason is None else copy_metadata({"reason": reason})
        with self.hold("abandon()") as hold:
            head = unfinished_head(self._history)
            await self.load_lineage()
            completed = last_completed(self._history, head)
            for snapshot in (head, completed):
                if snapshot is not None:
                    await self.load_snapshot(snapshot.snapshot_id)
            state = abandoned_state(head, completed)
            summary = Summary("abandoned", "idle", head.superstep, head.input_id)
            return await hold.commit_snapshot(state, {**head.manifest.metadata, **given}, summary=summary)

    async def prune(self, keep: Keep = ()) -> list[CheckpointSnapshot]:
        """Remove every snapshot that is not kept, for good, and return those removed.

        The selected and the stored head always stay. A kept snapshot goes on naming its pruned parent,
        and `ancestors` steps over the gap. Nothing is ever removed without this call. Snapshot objects
        that you still hold stay readable, if their state was in memory.

        Args:
            keep: Ids of snapshots to keep, or a function that says whether to keep one.

        Raises:
            SnapshotNotFoundError: `keep` names a snapshot that is not here; nothing was removed.
            CheckpointInUseError: A run is using the checkpoint.
            CheckpointConflictError: Another writer moved the stored head; nothing was removed.
            StorageError: The storage cannot prune, or failed.
        """
        with self.hold("prune()") as hold:
            await hold.end_left_lease()
            await self.load_lineage()
            return await prune(self, self._history, hold, keep)

    async def fork(
        self,
        snapshot_id: str | None = None,
        checkpoint_id: str | None = None,
        checkpoint_storage: CheckpointStorage | None = None,
    ) -> Checkpoint:
        """Return an independent checkpoint that begins with one snapshot's state, for branches side by side.

        Its root snapshot has no parent, boundary `forked`, and says in `forked_from` where it came from.
        It is committed when this returns. Allowed while a run holds this checkpoint.

        Args:
            snapshot_id: Where to fork; by default the selected head.
            checkpoint_id: Id of the new checkpoint; by default a fresh one.
            checkpoint_storage: Its storage; by default the same as this checkpoint's.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
            CheckpointConflictError: The id is already in storage.
        """
        chosen = self._history.selected if snapshot_id is None else snapshot_id
        if chosen is None:
            raise InvalidCallError(
                f"checkpoint {self.checkpoint_id!r} is at its empty start, which cannot be forked; "
                "name a snapshot"
            )
        source = await self.load_snapshot(chosen)
        forked = Checkpoint.create(
            checkpoint_id=checkpoint_id,
            workflow_name=self._history.header.workflow_name,
            graph_signature_hash=source.graph_signature_hash,
            signature=self._history.header.signature,
            checkpoint_storage=self._history.storage if checkpoint_storage is None else checkpoint_storage,
            metadata=self._history.header.metadata,
        )
        root, new = source.root, source.parts()
        if forked.format != self.format:
            with named(source.described):
                (part,) = codec.transcode(root, new, source=self.format, target=forked.format)
            root, new = part.digest, codec.new_parts(part, ())
        summary = _reading.summary_again(source, "forked")
        with forked.hold("fork()") as hold:
            commit = land(
                forked,
                forked._history,
                hold,
                root=root,
                new=new,
                summary=summary,
                metadata=source.manifest.metadata,
                parent=None,
                forked_from=Origin(self.checkpoint_id, source.snapshot_id),
            )
            if instruments:
                commit = watched(forked._history, commit, summary=summary, again=True)
            await commit
        return forked

    async def refresh(self) -> None:
        """Read the lineage from storage again and set both heads to the stored one.

        What to do after a conflict, and what settles a commit whose outcome is unknown. Without storage
        it selects the last committed snapshot.

        Raises:
            CheckpointNotFoundError: It was deleted from storage; this object is unchanged.
            CheckpointInUseError: A run is using the checkpoint.
        """
        with self.hold("refresh()"):
            if self._history.storage is None:
                self._history.selected = self._history.stored
                return
            try:
                stored = await self._history.storage.load(self.checkpoint_id)
            except CheckpointNotFoundError:
                if self._history.stored is None:
                    self._history.selected = None
                    return  # nothing was ever stored, and nothing is
                raise
            self._history.adopt(stored._history)
            self.storage_token = stored.storage_token

    def __copy__(self) -> NoReturn:
        raise TypeError(
            "a checkpoint is one logical execution and is not copied; `await checkpoint.fork()` branches it"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.__copy__()
