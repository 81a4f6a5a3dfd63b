"""Checkpoints in Azure Cosmos DB; needs the extra `cosmos`, which brings `azure-cosmos` and `aiohttp`.

What is stored of a checkpoint are the items of one logical partition.

- The *head* item holds everything that commits compare: head, generation, lease. It also holds the header and
  the newest manifest, so one point read is enough to resume, and a listing reads nothing else.
- A *snapshot* item holds a manifest, its number in commit order, and the parts that came with it.
- A *parts* item holds parts that found no room in the snapshot's item.

Why this is safe:

A commit is one transactional batch: the head item is replaced if its etag is the one that was read, the
snapshot's item is created. So a snapshot's item is there exactly when its commit has landed.

Parts that do not fit into the batch go ahead of it. Such an item names the *attempt* it belongs to, and is shown
only when a snapshot's item names that attempt too, or when it is marked as landed itself.

Every first commit begins a *life*, of which all items bear the name, and which the head item names. Before
anything goes ahead of a first commit, a head item without a head is made: it begins the life. A life that the
head item does not name any more is over for good, since a commit of it would have to find the head item as it
was. So who deletes removes the head item first, then lists, then reads the head item again, and removes what is
of another life than it names then. A commit under way finds its head item gone and lands nothing.

A prune is one replacement of the head item: new header, new generation, and the numbers that stay. From then on
the other snapshots are not shown. What goes ahead of a commit names the generation it was made in: a commit of
an earlier one can not land any more, so a prune removes what its own generation does not cover, and leaves alone
what is of this one or a later. Removing comes after and may be repeated by anybody. Before a snapshot's item goes,
what went ahead of it and stays is marked as landed; what is not marked is removed only with the etag it had when
it was listed, at which time the snapshot's item was not there. When all of it is gone, the numbers go as well.
"""

from __future__ import annotations

from branchpoint.storage.cosmos._storage import CosmosCheckpointStorage

__all__ = ["CosmosCheckpointStorage"]
