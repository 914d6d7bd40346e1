"""Stores that lie, refuse, or hold what no writer of ours wrote: a clear report, and nothing lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.exceptions import (
    CheckpointError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.lifecycle import trash
from airflow_provider_checkpoint.lifecycle.orphans import plan_orphans
from airflow_provider_checkpoint.lifecycle.plans import PrunePlan
from airflow_provider_checkpoint.lifecycle.pruning import plan_prune, plan_sweep
from airflow_provider_checkpoint.lifecycle.records import pin_key
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.retention import RetentionPolicy
from airflow_provider_checkpoint.lifecycle.timelines import timeline_key
from airflow_provider_checkpoint.lifecycle.validation import validate, validate_many
from airflow_provider_checkpoint.model import CheckpointId, Depth
from tests.crash.makers import DAY, Clock, PartitionedMaker, SidecarMaker, StreamMaker
from tests.crash.scene import assert_safe, facts_of, full_scene, is_whole, listing, live_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_checkpoint.layouts._protocol import Layout
    from tests.crash.scene import Scene

KEEP_ONE = RetentionPolicy(keep_last=1)


# -- hostile manifests -------------------------------------------------------------------------------------------

PATHS = {
    "path upwards": "../../../etc/passwd",
    "path from the root": "/etc/passwd",
    "another store": "s3://elsewhere/state.snap",
    "a manifest as state": "{newest}/manifest.json",
    "the pointer as state": "_latest",
    "a pin as state": "pins/keep.json",
    "the trash as state": "trash/x/entry.json",
    "control characters": "{own}/operators/win\x00dow\n/partition-0.snap",
    "state of another operator": "{newest}/operators/other/partition-0.snap",
}


def partitioned_manifest(own: CheckpointId, newest: CheckpointId, **changes: Any) -> bytes:
    entry = {"partition_id": 0, "is_delta": False, "path": f"{own}/operators/window/partition-0.snap", "size_bytes": 1}
    path = changes.pop("path", None)
    if path is not None:
        entry["path"] = path.replace("{own}", str(own)).replace("{newest}", str(newest))
    entry |= {key: changes.pop(key) for key in list(changes) if key in entry}
    values = {"version": 2, "checkpoint_id": str(own), "epoch": 10, "timestamp_ms": 1_772_000_000_000}
    return json.dumps(values | {"operators": {"window": {"partitions": [entry]}}} | changes).encode()


def sidecar_manifest(own: CheckpointId, newest: CheckpointId, **changes: Any) -> bytes:
    values = {"version": 1, "checkpoint_id": own.value, "epoch": 10, "timestamp_ms": 1_772_000_000_000}
    return json.dumps(values | {"vnode_count": 256} | changes).encode()


def external(offset: int, length: int) -> dict[str, Any]:
    return {"op": {"external": True, "external_offset": offset, "external_length": length}}


#: Any manifest that makes no sense, by the layout that would read it.
HOSTILE: list[Any] = [
    *(
        pytest.param(
            PartitionedMaker, lambda own, newest, path=path: partitioned_manifest(own, newest, path=path), id=name
        )
        for name, path in PATHS.items()
    ),
    *(
        pytest.param(PartitionedMaker, lambda own, newest, c=c: partitioned_manifest(own, newest, **c), id=f"p {c}")
        for c in (
            {"size_bytes": 2**63},
            {"size_bytes": 2**64},
            {"size_bytes": -1},
            {"partition_id": 2**40},
            {"epoch": 2**64},
            {"epoch": -1},
            {"version": 3},
            {"timeline": 0},
            {"operators": {"w": {"partitions": "all of them"}}},
        )
    ),
    *(
        pytest.param(SidecarMaker, lambda own, newest, c=c: sidecar_manifest(own, newest, **c), id=f"s {c}")
        for c in (
            {"operator_states": external(0, 2**63)},
            {"operator_states": external(2**63, 2**63)},
            {"operator_states": external(-1, 5)},
            {"operator_states": {"op": {"state_b64": "***"}}},
            {"operator_states": {"win\x00dow\n": {"external": True, "external_length": 2**40}}},
            {"epoch": 2**70},
            {"version": 2},
            {"checkpoint_id": 1},
        )
    ),
    *(
        pytest.param(maker, lambda own, newest, body=body: body, id=f"{name}-{maker.name}")
        for maker in (SidecarMaker, PartitionedMaker, StreamMaker)
        for name, body in {
            "nothing": b"",
            "deep": b'{"a":' * 100_000,
            "deep and closed": b"[" * 100_000 + b"]" * 100_000,
            "a key twice": b'{"version": 1, "version": 2}',
            "no number": b'{"version": 1e999}',
            "not text": b"\xff\xfe\x00" * 20,
            "a list": b"[1, 2, 3]",
        }.items()
    ),
]


def manifest_place(scene: Scene, checkpoint_id: CheckpointId) -> str:
    """Where a manifest of an id would lie, whether one is there or not."""
    newest = scene.ids["newest"]
    return scene.layout.manifest_keys(newest)[-1].replace(
        *((f"{newest.value:06d}", f"{checkpoint_id.value:06d}"))
        if isinstance(newest.value, int)
        else (str(newest), str(checkpoint_id))
    )


@pytest.mark.parametrize(("maker", "body"), HOSTILE)
def test_a_hostile_manifest_among_good_ones_stops_nobody_and_takes_nothing_with_it(maker, body):
    scene = full_scene(maker(Clock()))
    before = facts_of(scene)
    intruder = scene.maker.next_id(scene.root)
    blobs = scene.layout.blobs
    blobs.create(manifest_place(scene, intruder), body(intruder, scene.ids["newest"]))
    assert intruder in scene.layout.candidates()
    scene.clock.advance(DAY)
    layout = scene.layout

    assert not validate(layout, intruder, Depth.RESTORE).valid
    assert choose(layout, Wish(depth=Depth.RESTORE), now=scene.clock()).chosen == scene.ids["newest"]
    validate_many(layout, layout.candidates(), Depth.CONTENT, now=scene.clock)
    executor = scene.executor(scene.root)
    executor.prune(plan_prune(layout, KEEP_ONE, now=scene.clock(), depth=Depth.CONTENT))
    assert_safe(scene, before, new=frozenset({intruder}), broken=frozenset({intruder}))
    assert intruder not in live_in(layout)

    scene.clock.advance(2 * DAY)
    executor.sweep(plan_sweep(layout, now=scene.clock()))
    executor.remove_orphans(plan_orphans(layout, now=scene.clock()), confirmed=True)
    assert all(is_whole(layout, each) for each in live_in(layout))
    assert {scene.ids["pinned"], scene.ids["newest"]} <= set(live_in(layout))
    assert blobs.stat(pin_key("keep")) is not None
    assert layout.read_pointer() in (None, scene.ids["newest"])


@pytest.mark.stress
def test_a_manifest_of_a_million_entries_is_judged_like_any_other():
    scene = full_scene(SidecarMaker(Clock()), leftovers=False)
    entries = ",".join(f'"op{number}":{{}}' for number in range(10**6))
    body = (
        sidecar_manifest(CheckpointId(8), CheckpointId(6))[:-1] + b', "operator_states": {' + entries.encode() + b"}}"
    )
    scene.root.create("manifests/manifest-000008.json", body)
    scene.clock.advance(DAY)
    plan = plan_prune(scene.layout, KEEP_ONE, now=scene.clock())
    assert plan.newest_restorable == CheckpointId(8)


def test_a_checkpoint_of_very_many_artifacts_can_be_read_again_once_it_is_in_the_trash():
    layout = PartitionedMaker(Clock()).layout(MemoryBlobs())
    owner = layout.next_id()
    entry = trash.TrashEntry(
        checkpoint_id=owner,
        trashed=Clock()(),
        by="test",
        run="r",
        reasons=("old",),
        keys=(f"{owner}/manifest.json",),
        artifacts=tuple(f"{owner}/operators/window/partition-{number}.snap" for number in range(250_000)),
    )
    layout.blobs.create(entry.keys[0], b"manifest")
    trash.put_into_trash(layout.blobs, entry)
    assert next(trash.read_trash(layout)) == entry


# -- hostile records ---------------------------------------------------------------------------------------------

RECORDS = {
    "trash entry": ("trash/{dead}/entry.json", ("sweep", "orphans")),
    "trash entry of a live one": ("trash/{other}/entry.json", ("orphans",)),
    "pin": ("pins/new.json", ("prune", "sweep")),
    "timeline": (timeline_key(2), ("prune", "sweep", "recover")),
}
GARBAGE = {
    "nothing": b"",
    "torn": b'{"checkpoint_id": ',
    "deep": b'{"a":' * 100_000,
    "a key twice": b'{"number": 2, "number": 3}',
    "another shape": b'{"number": "two", "keys": 5}',
    "not text": b"\xff\xfe",
}


def verbs(layout: Layout, now: Any) -> dict[str, Callable[[], object]]:
    return {
        "prune": lambda: plan_prune(layout, KEEP_ONE, now=now),
        "sweep": lambda: plan_sweep(layout, now=now),
        "orphans": lambda: plan_orphans(layout, now=now),
        "recover": lambda: choose(layout, Wish(), now=now),
    }


@pytest.mark.parametrize("maker", [SidecarMaker, PartitionedMaker], ids=lambda maker: maker.name)
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("record", RECORDS)
def test_a_record_that_cannot_be_read_stops_whoever_would_have_to_heed_it(record, garbage, maker):
    scene = full_scene(maker(Clock()))
    key, stopped = RECORDS[record]
    scene.root.create(key.format_map(scene.ids), GARBAGE[garbage])
    before = listing(scene)
    for verb, act in verbs(scene.layout, scene.clock()).items():
        if verb in stopped:
            with pytest.raises(CorruptManifestError):
                act()
        else:
            act()
    assert listing(scene) == before


def hostile_entry(scene: Scene, **changes: Any) -> trash.TrashEntry:
    values = {
        "checkpoint_id": scene.maker.next_id(scene.root),
        "trashed": scene.clock() - 3 * DAY,
        "by": "somebody",
        "run": "r",
        "reasons": ("none",),
        "keys": (),
        "artifacts": (),
    }
    return trash.TrashEntry(**(values | changes))


@pytest.mark.parametrize("maker", [SidecarMaker, PartitionedMaker, StreamMaker], ids=lambda maker: maker.name)
def test_a_trash_entry_that_names_what_is_no_artifact_of_its_takes_none_of_it(maker):
    scene = full_scene(maker(Clock()))
    layout = scene.layout
    everything = [info.key for info in layout.blobs.list()]
    entry = hostile_entry(scene, artifacts=(*everything, "../outside", "/etc/passwd"), keys=("nowhere/manifest",))
    layout.blobs.create(trash.entry_key(entry.checkpoint_id), entry.model_dump_json().encode())
    scene.clock.advance(3 * DAY)
    scene.executor(scene.root).sweep(plan_sweep(layout, now=scene.clock()))
    left = {info.key for info in layout.blobs.list()}
    needed = {artifact.key for each in live_in(layout) for artifact in layout.load(each).artifacts}
    gone = set(everything) - left
    assert not gone & needed
    assert {str(layout.named(key).role) for key in gone} <= {"artifact"}


@pytest.mark.parametrize("maker", [SidecarMaker, PartitionedMaker], ids=lambda maker: maker.name)
@pytest.mark.parametrize("key", ["pins/forged.json", "timelines/timeline-000099.json", "_latest2", "a/b"])
def test_a_trash_entry_cannot_put_anything_back_but_a_manifest_of_its_own(maker, key):
    scene = full_scene(maker(Clock()))
    blobs = scene.layout.blobs
    entry = hostile_entry(scene, keys=(key,))
    blobs.create(trash.entry_key(entry.checkpoint_id), entry.model_dump_json().encode())
    blobs.create(trash.kept_key(entry.checkpoint_id, key), b"forged")
    with pytest.raises(CorruptManifestError):
        scene.executor(scene.root).undelete(entry.checkpoint_id)
    assert blobs.stat(key) is None


@pytest.mark.parametrize("maker", [SidecarMaker, PartitionedMaker], ids=lambda maker: maker.name)
def test_a_prune_plan_that_was_tampered_with_moves_nothing_but_the_manifests_it_speaks_of(maker):
    scene = full_scene(maker(Clock()))
    plan = plan_prune(scene.layout, KEEP_ONE, now=scene.clock(), depth=Depth.CONTENT)
    item = plan.removed[0]
    item = item.model_copy(update={"keys": (pin_key("keep"), *item.keys)})
    forged = PrunePlan.model_validate_json(plan.model_copy(update={"items": (item,)}).model_dump_json())
    report = scene.executor(scene.root).prune(forged)
    assert [outcome.done for outcome in report.outcomes] == [False]
    assert scene.layout.blobs.stat(pin_key("keep")) is not None
    assert scene.ids["newest"] in live_in(scene.layout)


def test_every_error_of_a_hostile_store_is_of_our_tree_and_says_what_it_is_about():
    for garbage in GARBAGE.values():
        scene = full_scene(PartitionedMaker(Clock()))
        scene.root.create(f"trash/{scene.ids['dead']}/entry.json", garbage)
        with pytest.raises(CheckpointError) as caught:
            plan_sweep(scene.layout, now=scene.clock())
        assert str(scene.ids["dead"]) in str(caught.value)
