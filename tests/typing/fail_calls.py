"""Calls that must not type check: what the design left out, and plain mistakes."""

from branchpoint import (
    Checkpoint,
    CheckpointSnapshot,
    CheckpointStorage,
    Executor,
    MemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunResult,
    add_instrument,
    handler,
    state,
)


class Sender(Executor):
    count: int = state(0)
    wrong: int = state("zero")  # E

    @handler
    async def on_word(self, word: str, ctx: WorkflowContext[str, int]) -> None:
        await ctx.send_message(1)  # E
        await ctx.yield_output("one")  # E
        self.count = "one"  # E
        ctx.no_such_method()  # E


async def storage_belongs_to_the_checkpoint(workflow: Workflow, storage: CheckpointStorage) -> None:
    sender = Sender(id="sender")
    WorkflowBuilder(start_executor=sender, checkpoint_storage=storage)  # E
    await workflow.run("a", checkpoint_storage=storage)  # E
    await workflow.run("a", checkpoint_id="one")  # E
    await storage.save("one")  # E
    await storage.get_latest(workflow_name="words")  # E
    await storage.list_checkpoint_ids()  # E


async def wrong_arguments(workflow: Workflow, checkpoint: Checkpoint) -> None:
    await workflow.run("a", checkpoint="one")  # E
    await workflow.run(responses=["yes"], checkpoint=checkpoint)  # E
    await workflow.run("a", max_supersteps="1")  # E
    result: WorkflowRunResult = workflow.run("a", stream=True)  # E
    print(result)
    checkpoint.restart_from(3)  # E
    MemoryCheckpointStorage("./runs")  # E


def snapshots_cannot_be_written(checkpoint: Checkpoint, snapshot: CheckpointSnapshot) -> None:
    checkpoint.head_snapshot_id = "x"  # E
    checkpoint.snapshots = []  # E
    checkpoint.checkpoint_id = "x"  # E
    snapshot.snapshot_id = "x"  # E
    snapshot.state = {}  # E


class Quiet:
    def around(self, kind: str) -> None: ...


def instruments_have_a_method_around() -> None:
    add_instrument(print)  # E
    add_instrument(Quiet())  # E
