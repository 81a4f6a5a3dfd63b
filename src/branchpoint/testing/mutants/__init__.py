"""Storages that are each broken in one way, and the clause of the contract that finds it.

They prove that the contract can fail: `validate(lambda: VaultPlace(mutant.storage))` reports `mutant.killed_by` as
failed for each of them, and nothing as failed for `VaultPlace()`, whose storage is the honest one they are made of.
"""

from __future__ import annotations

from dataclasses import dataclass

from branchpoint.testing.mutants import _broken
from branchpoint.testing.mutants._honest import HonestStorage, Vault, VaultPlace

__all__ = ["HonestStorage", "MUTANTS", "Mutant", "Vault", "VaultPlace"]


@dataclass(frozen=True)
class Mutant:
    """A broken storage.

    Attributes:
        name: What is wrong with it.
        storage: Its class.
        killed_by: The name of the clause that finds it, whatever else finds it too.
    """

    name: str
    storage: type[HonestStorage]
    killed_by: str


MUTANTS = (
    Mutant("alias on load", _broken.AliasOnLoad, "isolation.every_load_is_a_checkpoint_of_its_own"),
    Mutant("lossy types", _broken.LossyTypes, "fidelity.values_come_back_as_they_were"),
    Mutant(
        "torn commit visible",
        _broken.TornCommitVisible,
        "interrupting.a_reader_sees_a_commit_whole_or_not_at_all",
    ),
    Mutant(
        "torn by a cancellation",
        _broken.TornByACancellation,
        "interrupting.a_commit_that_is_cut_inside_is_whole_or_absent",
    ),
    Mutant(
        "no head check",
        _broken.NoHeadCheck,
        "winning.a_stale_writer_conflicts_and_nothing_of_it_is_persisted",
    ),
    Mutant(
        "head check without a transaction",
        _broken.HeadCheckOutsideTheTransaction,
        "winning.of_two_writers_exactly_one_wins_every_round",
    ),
    Mutant("incomplete delete", _broken.IncompleteDelete, "leftovers.a_delete_leaves_nothing"),
    Mutant(
        "nothing durable", _broken.NothingDurable, "keeping.what_was_committed_outlives_the_storage_object"
    ),
    Mutant("ids that collide", _broken.CollidingIds, "names.every_legal_id_is_its_own_checkpoint"),
    Mutant(
        "conflict reported for its own write",
        _broken.ConflictForItsOwnWrite,
        "replies.a_lost_reply_to_a_commit_is_no_conflict",
    ),
    Mutant("prune that forgets a branch", _broken.ForgetfulPrune, "pruning.branches_that_are_kept_stay"),
    Mutant(
        "prune without a generation",
        _broken.PruneWithoutGeneration,
        "pruning.a_commit_that_has_not_seen_a_prune_conflicts",
    ),
    Mutant(
        "lease without fencing",
        _broken.LeaseWithoutFencing,
        "leasing.an_expired_lease_passes_on_and_its_holder_is_fenced",
    ),
    Mutant(
        "older head in silence",
        _broken.OlderHeadInSilence,
        "leftovers.a_loss_is_reported_and_never_an_older_head",
    ),
    Mutant("ordered by id", _broken.OrderedById, "clocks.writers_with_wrong_clocks_keep_their_order"),
)
"""All of them."""
