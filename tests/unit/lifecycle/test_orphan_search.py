"""Searching a store for orphans: nothing that is needed, or may be needed, is ever among them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import BlobInfo, LocalBlobs, MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.blobs._protocol import temporary_key
from airflow_provider_checkpoint.blobs.faulty import Fault, FaultyBlobs
from airflow_provider_checkpoint.exceptions import CorruptManifestError, NoEvidenceError, StoreUnavailableError
from airflow_provider_checkpoint.layouts._protocol import Examination
from airflow_provider_checkpoint.lifecycle import trash
from airflow_provider_checkpoint.lifecycle.orphans import gather_evidence, plan_orphans
from airflow_provider_checkpoint.lifecycle.plans import OrphanDecision, OrphanPlan
from airflow_provider_checkpoint.lifecycle.safety import Safety
from airflow_provider_checkpoint.lifecycle.trash import TrashEntry, put_into_trash
from airflow_provider_checkpoint.model import Artifact, CheckpointId
from tests.unit.lifecycle.tiny_layout import START, TinyLayout, artifact_key, checkpoint, manifest_key, tiny

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_checkpoint.blobs import BlobStore

NOW = START + timedelta(days=30)
HOUR = timedelta(hours=1)


def aged(*numbers: int) -> TinyLayout:
    """Checkpoints whose objects were all written a month ago."""
    return tiny(MemoryBlobs(clock=lambda: START), *numbers)


def deletions(layout: TinyLayout, safety: Safety | None = None) -> list[str]:
    plan = plan_orphans(layout, now=NOW, safety=safety or Safety())
    return sorted(item.path for item in plan.deletions)


def put_away(layout: TinyLayout, number: int) -> None:
    """Prune one checkpoint, whatever a policy would say."""
    value = layout.load(CheckpointId(number))
    put_into_trash(
        layout.blobs,
        TrashEntry(
            checkpoint_id=value.id,
            trashed=NOW,
            by="test",
            run="r",
            reasons=("because",),
            keys=tuple(layout.manifest_keys(value.id)),
            artifacts=tuple(artifact.key for artifact in value.artifacts),
        ),
    )


# -- what is found -----------------------------------------------------------------------------------------------


def test_a_clean_store_has_no_orphans():
    plan = plan_orphans(aged(1, 2, 3), now=NOW)
    assert plan.deletions == ()
    assert plan.counts == {OrphanDecision.KEEP_ACTIVE: 7}
    assert plan.artifacts_seen == 3
    assert (plan.question, plan.truncated, plan.bytes) == ("", False, 0)


def test_what_no_manifest_names_is_found_with_its_size_and_reason():
    layout = aged(1, 2)
    layout.write_artifact(1, "lost", b"four")
    plan = plan_orphans(layout, now=NOW)
    (item,) = plan.deletions
    assert (item.path, item.bytes, item.reasons) == (artifact_key(1, "lost"), 4, ("no manifest names it",))
    assert item.version is not None
    assert plan.bytes == 4
    assert plan.cutoff == NOW - timedelta(hours=24)


def test_a_folder_that_was_never_committed_is_litter_once_it_is_old():
    layout = aged(1)
    layout.write_artifact(2, "state")
    assert deletions(layout) == [artifact_key(2, "state")]


def test_half_written_objects_of_every_folder_are_found():
    layout = aged(1)
    litter = [temporary_key(key) for key in (artifact_key(1, "state"), "pins/release.json", "latest")]
    for key in litter:
        # No verb writes such a name: it is what a writer leaves that dies.
        layout.blobs._objects[key] = (b"half", BlobInfo(key, 4, START, "1"))
    assert deletions(layout) == sorted(litter)


def test_records_pointers_manifests_and_strangers_stay():
    layout = aged(1)
    for key in ("notes.txt", "checkpoints/README", "trash/x/y", "pins/a.json", "ledger/1/x", "audit/x.json"):
        layout.blobs.create(key, b"?")
    assert deletions(layout) == []


def test_a_shared_artifact_stays_as_long_as_anything_names_it():
    layout = aged(1)
    shared = layout.load(CheckpointId(1)).artifacts
    layout.save(2, artifacts=shared)
    layout.blobs.delete([manifest_key(1)])
    assert deletions(layout) == []
    layout.blobs.delete([manifest_key(2)])
    layout.save(3)
    assert deletions(layout) == [artifact_key(1, "state"), artifact_key(2, "state")]


def test_what_a_trashed_checkpoint_needs_stays_also_in_the_folder_of_another():
    layout = aged(1)
    shared = layout.load(CheckpointId(1)).artifacts
    layout.save(2, artifacts=shared)
    layout.save(3)
    layout.blobs.delete([manifest_key(1)])
    put_away(layout, 2)
    assert deletions(layout) == []


def test_an_unreadable_manifest_protects_what_was_made_before_it_and_no_more():
    layout = aged(1, 2, 3, 4)
    for number in (1, 3, 4):
        layout.write_artifact(number, "lost")
    layout.blobs.replace(manifest_key(3), b"{")
    assert deletions(layout) == [artifact_key(4, "lost")]


def test_a_manifest_with_an_error_that_can_be_read_still_names_its_artifacts():
    layout = aged(1)
    layout.save(2, epoch=-1)
    assert deletions(layout) == []


@pytest.mark.parametrize("age", [timedelta(0), timedelta(minutes=59)])
def test_nothing_young_is_touched_whatever_is_asked(age: timedelta):
    layout = tiny(MemoryBlobs(clock=lambda: NOW - age), 1)
    layout.write_artifact(1, "lost")
    plan = plan_orphans(layout, now=NOW, safety=Safety(orphan_age=timedelta(0), uncommitted_age=timedelta(0)))
    assert plan.deletions == ()
    assert plan.counts[OrphanDecision.DEFER] == 1


# -- without evidence --------------------------------------------------------------------------------------------


def lose_manifests(layout: TinyLayout) -> None:
    layout.blobs.delete([manifest_key(number) for number in (1, 2)])


def spoil_manifests(layout: TinyLayout) -> None:
    for number in (1, 2):
        layout.blobs.replace(manifest_key(number), b"{")


def trash_one_and_lose_the_other(layout: TinyLayout) -> None:
    put_away(layout, 1)
    layout.blobs.delete([manifest_key(2)])


@pytest.mark.parametrize("accident", [lose_manifests, spoil_manifests, trash_one_and_lose_the_other])
def test_artifacts_without_one_live_readable_manifest_mean_stop(accident: Callable[[TinyLayout], None]):
    layout = aged(1, 2)
    accident(layout)
    with pytest.raises(NoEvidenceError, match="2 artifacts but not one readable manifest"):
        plan_orphans(layout, now=NOW)


def test_an_empty_store_is_no_accident():
    assert plan_orphans(TinyLayout(MemoryBlobs()), now=NOW).items == ()


def test_a_trash_entry_that_cannot_be_read_stops_the_search_because_it_may_name_anything():
    layout = aged(1, 2)
    put_away(layout, 1)
    layout.blobs.replace(trash.entry_key(CheckpointId(1)), b"{")
    with pytest.raises(CorruptManifestError):
        plan_orphans(layout, now=NOW)


@pytest.mark.parametrize(
    ("verb", "match"),
    [("list", ""), ("list", "checkpoints"), ("read", "manifest.json"), ("list", "trash"), ("read", "trash")],
)
def test_a_store_that_does_not_answer_stops_the_search(verb: str, match: str):
    blobs = FaultyBlobs(MemoryBlobs(clock=lambda: START))
    layout = tiny(blobs, 1, 2, 3)
    put_away(layout, 1)
    blobs.inject(Fault.FAIL, verb=verb, match=match)
    with pytest.raises(StoreUnavailableError):
        plan_orphans(layout, now=NOW)


# -- while others write ------------------------------------------------------------------------------------------


class Interrupted(WrapperBlobs):
    """Lets something happen just before a call, once."""

    def __init__(self, inner: BlobStore, verb: str, match: str, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._when = (verb, match)
        self._act: Callable[[], object] | None = act

    def _call(self, verb: str, key: str) -> None:
        if self._act is not None and verb == self._when[0] and self._when[1] in key:
            act, self._act = self._act, None
            act()

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        self._call("list", folder)
        yield from super().list(folder, temporary=temporary)
        self._call("listed", folder or "all")

    def folders(self, folder: str = "", *, start: str = "") -> Iterator[str]:
        self._call("folders", folder)
        yield from super().folders(folder, start=start)
        self._call("foldered", folder)

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        self._call("read", key)
        return super().read(key, start=start, length=length)


def interrupted(layout: TinyLayout, verb: str, match: str, act: Callable[[], object]) -> TinyLayout:
    return TinyLayout(Interrupted(layout.blobs, verb, match, act))


MOMENTS = [
    pytest.param("listed", "all", id="after the objects were listed"),
    pytest.param("list", "trash", id="before the trash"),
    pytest.param("listed", "trash", id="after the trash"),
    pytest.param("list", "checkpoints", id="before the manifests are listed"),
    pytest.param("listed", "checkpoints", id="after the manifests are listed"),
    pytest.param("read", "manifest", id="while manifests are read"),
]


@pytest.mark.parametrize(("verb", "match"), MOMENTS[:4])
def test_a_checkpoint_committed_between_the_listing_and_the_manifests_is_never_orphaned(verb: str, match: str):
    """Its artifacts are old: it took its writer a month. Only the order of reading protects them."""
    layout = aged(1)
    slow = checkpoint(2, artifacts=(layout.write_artifact(2, "state"),))
    assert deletions(interrupted(layout, verb, match, lambda: layout.commit(slow))) == []


@pytest.mark.parametrize(("verb", "match"), MOMENTS)
def test_a_checkpoint_that_is_undeleted_meanwhile_is_never_orphaned(verb: str, match: str):
    layout = aged(1, 2, 3)
    layout.save(4, artifacts=layout.load(CheckpointId(2)).artifacts)
    layout.blobs.delete([manifest_key(2)])
    put_away(layout, 4)
    seen = interrupted(layout, verb, match, lambda: trash.undelete(layout.blobs, CheckpointId(4)))
    assert deletions(seen) == []
    assert layout.load(CheckpointId(4))


@pytest.mark.parametrize(("verb", "match"), MOMENTS)
def test_a_checkpoint_that_is_pruned_meanwhile_is_never_orphaned(verb: str, match: str):
    layout = aged(1, 2, 3)
    assert deletions(interrupted(layout, verb, match, lambda: put_away(layout, 2))) == []
    assert CheckpointId(2) not in [each for each in layout.candidates() if layout.examine(each).checkpoint]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_is_committed_or_trashed_no_orphan_is_named_by_it(data: st.DataObject):
    layout = aged(0)
    for number in range(1, data.draw(st.integers(2, 8))):
        earlier = [artifact for each in layout.candidates() for artifact in _artifacts(layout, each)]
        shared = data.draw(st.lists(st.sampled_from(earlier), max_size=2, unique=True)) if earlier else []
        layout.save(number, artifacts=tuple(shared))
        match data.draw(st.sampled_from(["live", "live", "trashed", "lost", "litter"])):
            case "trashed":
                put_away(layout, number)
            case "lost":
                layout.blobs.delete([manifest_key(number)])
            case "litter":
                layout.write_artifact(number, "lost")
    needed = {artifact.key for each in layout.candidates() for artifact in _artifacts(layout, each)}
    in_trash = {entry.checkpoint_id: set(entry.artifacts) for entry in trash.read_trash(layout)}
    doomed = set(deletions(layout))
    assert not doomed & needed.union(*in_trash.values())
    artifacts = {info.key for info in layout.blobs.list("checkpoints") if not info.key.endswith("manifest.json")}
    left = artifacts - doomed - needed.union(*in_trash.values())
    assert all(layout.named(key).checkpoint_id in in_trash for key in left)


def _artifacts(layout: TinyLayout, checkpoint_id: CheckpointId) -> tuple[Artifact, ...]:
    found = layout.examine(checkpoint_id).checkpoint
    return () if found is None else found.artifacts


# -- plans -------------------------------------------------------------------------------------------------------


def test_a_plan_holds_everything_to_delete_and_a_few_examples_of_the_rest():
    layout = aged(*range(1, 31))
    for number in range(1, 9):
        layout.write_artifact(number, "lost")
        layout.blobs.create(f"strange-{number}", b"")
    plan = plan_orphans(layout, now=NOW)
    assert plan.counts == {
        OrphanDecision.DELETE: 8,
        OrphanDecision.KEEP_ACTIVE: 61,
        OrphanDecision.SKIP_UNKNOWN: 8,
    }
    assert [sum(item.action is decision for item in plan.items) for decision in plan.counts] == [
        count if decision is OrphanDecision.DELETE else 5 for decision, count in plan.counts.items()
    ]


def test_a_plan_that_would_not_end_is_cut_and_says_so():
    layout = aged(1)
    for number in range(7):
        layout.write_artifact(1, f"lost-{number}", b"12345")
    plan = plan_orphans(layout, now=NOW, safety=Safety(max_orphan_items=3))
    assert plan.truncated
    assert len(plan.deletions) == 3
    assert plan.bytes == 15
    assert plan.counts[OrphanDecision.DELETE] == 7


def test_a_plan_that_would_remove_most_of_the_store_asks_first():
    layout = aged(1)
    for number in range(11):
        layout.write_artifact(1, f"lost-{number}")
    assert "92% of all artifacts would be removed" in plan_orphans(layout, now=NOW).question


def test_files_whose_names_are_not_even_text_are_left_alone_and_shown(tmp_path: Path):
    layout = tiny(LocalBlobs(tmp_path), 1)
    folder = os.fsencode(tmp_path) + b"/checkpoints/000001/"
    for name in (b"\xff\xfe", b"new\nline", b"back\\slash", b".\xff." + b"0" * 32 + b".tmp"):
        with open(folder + name, "wb") as file:
            file.write(b"?")
        os.utime(folder + name, (1, 1))
    plan = plan_orphans(layout, now=NOW)
    assert plan.counts[OrphanDecision.SKIP_UNKNOWN] == 4
    assert plan.deletions == ()
    assert OrphanPlan.model_validate_json(plan.model_dump_json()) == plan
    assert "checkpoints/000001/\\udcff\\udcfe" in [item.path for item in plan.items]


# -- memory ------------------------------------------------------------------------------------------------------


class Endless(MemoryBlobs):
    """A store with a thousand artifacts for each checkpoint, which exist only in its listing."""

    def __init__(self, checkpoints: int) -> None:
        super().__init__(clock=lambda: START)
        self.checkpoints = checkpoints

    def list(self, folder: str = "", *, temporary: bool | None = False) -> Iterator[BlobInfo]:
        if folder:
            yield from super().list(folder, temporary=temporary)
            return
        for number in range(self.checkpoints):
            yield from (BlobInfo(key, 100, START, "v") for key in parts(number))


class Wide(TinyLayout):
    """A manifest for each of them, made up when it is asked for."""

    def candidates(self) -> list[CheckpointId]:
        return [CheckpointId(number) for number in range(self.blobs.checkpoints)]

    def examine(self, checkpoint_id: CheckpointId) -> Examination:
        number = int(checkpoint_id.value)
        return Examination(checkpoint(number, artifacts=tuple(Artifact(key, size=100) for key in parts(number))), [])


def parts(number: int) -> Iterator[str]:
    return (artifact_key(number, f"part-{part:06d}") for part in range(1000))


def growth() -> None:
    """Print how many bytes this process grows by when it searches 200,000 objects after having searched 1,000."""
    heights = []
    for checkpoints in (1, 200):
        plan = plan_orphans(Wide(Endless(checkpoints)), now=NOW)
        assert plan.counts == {OrphanDecision.KEEP_ACTIVE: checkpoints * 1000}
        heights.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    print((heights[1] - heights[0]) * (1 if sys.platform == "darwin" else 1024))


def test_two_hundred_thousand_objects_pass_through_little_memory():
    """Held as objects, they and the artifacts of their manifests would be more than 60 MB."""
    child = [sys.executable, "-c", f"from {__name__} import growth; growth()"]
    answer = subprocess.run(child, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert int(answer.stdout) < 40 * 1024 * 1024


def test_what_is_needed_is_known_of_every_artifact():
    evidence = gather_evidence(Wide(Endless(20)))
    assert len(evidence.needed) == 20_000
    assert all(key in evidence.needed for number in range(20) for key in parts(number))
    assert (evidence.manifests, evidence.newest) == (20, CheckpointId(19))
