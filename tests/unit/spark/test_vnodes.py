"""The book of vnodes: what was written stays known, bases age, and old ones are replaced in time."""

from __future__ import annotations

from airflow_provider_checkpoint.layouts.partitioned import OperatorEntry, PartitionEntry
from airflow_provider_checkpoint.spark.vnodes import VnodeBook
from airflow_provider_checkpoint.writing.bases import BaseRules, SnapshotKind, Write

RULES = BaseRules(max_age=3, max_delta_share=0.5)


def entry(vnode: int, name: str, *, size: int = 100) -> PartitionEntry:
    return PartitionEntry(partition_id=vnode, is_delta=name.endswith("delta"), path=name, size_bytes=size)


def book_after(*epochs: dict[str, list[PartitionEntry]]) -> VnodeBook:
    book = VnodeBook({}, 0)
    for number, operators in enumerate(epochs, start=1):
        book = book.committed(number, {name: OperatorEntry.of(entries) for name, entries in operators.items()})
    return book


def write_of(book: VnodeBook, vnode: int) -> Write:
    return book.plans("op", RULES, SnapshotKind.CHECKPOINT)[vnode].write


def test_a_vnode_without_state_has_no_plan_and_nothing_to_carry():
    book = book_after()
    assert book.plans("op", RULES, SnapshotKind.CHECKPOINT) == {}
    assert book.carried("op", set()) == []


def test_a_touched_vnode_writes_a_delta_on_its_base_until_the_base_is_old():
    base = {"op": [entry(0, "a.snap")]}
    with_delta = {"op": [entry(0, "a.snap"), entry(0, "b.delta", size=10)]}
    assert write_of(book_after(base), 0) is Write.DELTA
    assert write_of(book_after(base, with_delta), 0) is Write.DELTA
    assert write_of(book_after(base, with_delta, with_delta), 0) is Write.FULL


def test_a_large_delta_is_replaced_by_a_new_base():
    book = book_after({"op": [entry(0, "a.snap"), entry(0, "b.delta", size=51)]})
    assert write_of(book, 0) is Write.FULL


def test_an_untouched_vnode_is_carried_with_snapshot_and_delta_until_its_base_is_old():
    base = {"op": [entry(0, "a.snap"), entry(0, "a.delta", size=1), entry(1, "c.snap")]}
    young = book_after(base)
    assert [each.path for each in young.carried("op", {1})] == ["a.snap", "a.delta"]
    assert young.outdated("op", {1}, RULES, SnapshotKind.CHECKPOINT) == []
    old = book_after(base, base, base)
    assert old.outdated("op", {1}, RULES, SnapshotKind.CHECKPOINT) == [0]


def test_a_full_checkpoint_or_savepoint_writes_every_vnode_whole():
    book = book_after({"op": [entry(0, "a.snap"), entry(1, "c.snap")]})
    for kind in (SnapshotKind.FULL_CHECKPOINT, SnapshotKind.SAVEPOINT):
        assert {plan.write for plan in book.plans("op", RULES, kind).values()} == {Write.FULL}
        assert book.outdated("op", {0}, RULES, kind) == [1]


def test_operators_do_not_mix():
    book = book_after({"op": [entry(0, "a.snap")], "other": [entry(0, "b.snap")]})
    assert [each.path for each in book.carried("other", set())] == ["b.snap"]
