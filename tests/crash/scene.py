"""A store with everything in it that a lifecycle must get right, and what must hold of it whatever died where."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_checkpoint.blobs import MemoryBlobs
from airflow_provider_checkpoint.blobs._protocol import BlobInfo, temporary_key
from airflow_provider_checkpoint.exceptions import NoRecoveryPointError
from airflow_provider_checkpoint.layouts._protocol import Role
from airflow_provider_checkpoint.lifecycle import trash
from airflow_provider_checkpoint.lifecycle.executor import Executor
from airflow_provider_checkpoint.lifecycle.facts import decision_key, look_at
from airflow_provider_checkpoint.lifecycle.records import add_pin, read_pins
from airflow_provider_checkpoint.lifecycle.recovery import Wish, choose
from airflow_provider_checkpoint.lifecycle.timelines import open_timeline
from airflow_provider_checkpoint.model import CheckpointId, Depth, Pin, Severity
from tests.crash.makers import DAY, PENDING, Clock, Draft, Maker

if TYPE_CHECKING:
    from airflow_provider_checkpoint.blobs import BlobStore
    from airflow_provider_checkpoint.layouts._protocol import Layout
    from airflow_provider_checkpoint.lifecycle.plans import PrunePlan


def clone(root: MemoryBlobs, clock: Clock) -> MemoryBlobs:
    """The same objects with the same ages in a store of their own."""
    copy = MemoryBlobs(clock=clock)
    copy._objects = dict(root._objects)
    return copy


@dataclass
class Scene:
    """A store, its clock, and its checkpoints by the part they play.

    ``first`` and ``base`` are whole by themselves; ``pinned`` builds on ``first``, ``other`` and ``newest`` build on
    ``base``, where the layout has such a thing. The commit of ``other`` was decided, though its sinks are not known to
    have published. The state of ``damaged`` is not what was written. ``undecided`` was never decided, so ``newest`` is
    the one to go back to. ``dead`` and ``alive`` have artifacts and no manifest: the writer of the one died days ago,
    that of the other is at work.
    """

    maker: Maker
    root: MemoryBlobs
    ids: dict[str, CheckpointId] = field(default_factory=dict)
    seen: set[CheckpointId] = field(default_factory=set)
    """Every id under which something was ever written."""
    broken: set[CheckpointId] = field(default_factory=set)
    """Checkpoints that cannot be restored, because somebody damaged them."""
    plan: PrunePlan | None = None

    @property
    def clock(self) -> Clock:
        return self.maker.clock

    @property
    def layout(self) -> Layout:
        return self.maker.layout(self.root)

    def layout_on(self, root: BlobStore) -> Layout:
        return self.maker.layout(root)

    def executor(self, root: BlobStore) -> Executor:
        return Executor(self.layout_on(root), by="test", clock=self.clock)

    def copy(self) -> Scene:
        return replace(self, root=clone(self.root, self.clock))

    def draft(self, name: str, **more: object) -> Draft:
        """Choose the id of the next checkpoint and remember it under a name."""
        self.ids[name] = self.maker.next_id(self.root)
        return Draft(self.ids[name], **more)

    def write(self, name: str, epoch: int, *, base: str | None = None, pending: bool = False) -> None:
        built_on = self.ids[base] if base is not None and self.maker.has_bases else None
        sinks = {"out": PENDING} if pending and self.maker.has_sinks else {}
        self.maker.write(self.root, self.draft(name, epoch=epoch, base=built_on, sinks=sinks))
        self.seen.add(self.ids[name])
        self.clock.advance(DAY)

    def decide(self, epoch: int) -> None:
        """As a writer does that dies before it has noted what its sinks did."""
        self.layout.blobs.create(decision_key(1, epoch), b"{}")

    def leave_behind(self, name: str, epoch: int) -> None:
        self.maker.write_artifacts(self.root, self.draft(name, epoch=epoch))
        self.seen.add(self.ids[name])

    def damage(self, name: str) -> None:
        """Change a byte of its own state, so that nothing but a digest tells."""
        blobs = self.layout.blobs
        key = self.layout.load(self.ids[name]).artifacts[0].key
        blobs.replace(key, blobs.read(key)[:-1] + b"?")
        self.broken.add(self.ids[name])


def full_scene(maker: Maker, *, leftovers: bool = True) -> Scene:
    scene = Scene(maker, MemoryBlobs(clock=maker.clock))
    open_timeline(scene.layout.blobs, start=None, has_checkpoints=False, writer="w1", now=scene.clock())
    scene.write("first", 1)
    scene.write("pinned", 2, base="first")
    scene.write("base", 3)
    scene.write("other", 4, base="base", pending=True)
    scene.decide(4)
    scene.write("damaged", 5)
    scene.damage("damaged")
    scene.write("newest", 6, base="base")
    if maker.has_sinks:
        scene.write("undecided", 7, pending=True)
    add_pin(
        scene.layout.blobs,
        Pin(name="keep", checkpoint_id=scene.ids["pinned"], owner="test", reason="wanted", created=scene.clock()),
    )
    if leftovers:
        scene.leave_behind("dead", 8)
        _put_temporary(scene)
        scene.clock.advance(3 * DAY)
        scene.leave_behind("alive", 9)
    return scene


def _put_temporary(scene: Scene) -> None:
    """What a writer to a disk leaves when it dies: no verb makes such a name."""
    blobs = scene.layout.blobs
    place = temporary_key("half")
    key = f"{blobs._prefix}{place}" if hasattr(blobs, "_prefix") else place
    scene.root._objects[key] = (b"half", BlobInfo(key, 4, scene.clock(), "1"))


# -- what is there -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """What a store is known to hold before something happens to it."""

    live: frozenset[CheckpointId]
    trashed: frozenset[CheckpointId]
    chosen: CheckpointId | None
    """The one to go back to."""
    pinned: frozenset[CheckpointId]
    young: dict[str, bytes]
    """Artifacts too young to be judged by anybody."""


def facts_of(scene: Scene) -> Facts:
    layout = scene.layout
    return Facts(
        live=frozenset(live_in(layout)),
        trashed=frozenset(entry.checkpoint_id for entry in trash_of(layout)),
        chosen=choice(scene),
        pinned=frozenset(pin.checkpoint_id for pin in read_pins(layout.blobs) if pin.holds(scene.clock())),
        young={
            info.key: layout.blobs.read(info.key)
            for info in layout.blobs.list()
            if layout.named(info.key).role is Role.ARTIFACT and scene.clock() - info.modified < timedelta(hours=1)
        },
    )


def choice(scene: Scene) -> CheckpointId | None:
    try:
        return choose(scene.layout, Wish(depth=Depth.RESTORE), now=scene.clock()).chosen
    except NoRecoveryPointError:
        return None


def live_in(layout: Layout) -> list[CheckpointId]:
    return [each for each in layout.candidates() if look_at(layout, each) is not None]


def trash_of(layout: Layout) -> list[trash.TrashEntry]:
    """What was pruned, and neither put back nor removed for good."""
    live = live_in(layout)
    entries = [trash.read_entry(layout.blobs, each) for each in trash.trashed_ids(layout) if each not in live]
    return [entry for entry in entries if entry is not None and entry.purged is None]


def is_whole(layout: Layout, checkpoint_id: CheckpointId) -> bool:
    """Whether a restore would succeed. In this thread, because it is asked very often of very small checkpoints."""
    examined = layout.examine(checkpoint_id)
    issues = list(examined.issues)
    if examined.checkpoint is not None:
        issues += [issue for check in layout.checks(examined.checkpoint, Depth.RESTORE) for issue in check.run()]
    return all(issue.severity is not Severity.ERROR for issue in issues)


def listing(scene: Scene) -> dict[str, bytes]:
    """Every object but records of what was done when and by whom."""
    blobs = scene.layout.blobs
    found = {info.key: blobs.read(info.key) for info in blobs.list(temporary=None)}
    return {
        key: b"" if key.endswith("/entry.json") else body
        for key, body in found.items()
        # An object that tested the store when the process died goes like any other litter, once it is old.
        if not key.startswith(("audit/", "ledger/")) and not key.endswith(".probe")
    }


# -- what must hold ----------------------------------------------------------------------------------------------


def assert_safe(
    scene: Scene,
    before: Facts,
    *,
    new: frozenset[CheckpointId] = frozenset(),
    expired: frozenset[CheckpointId] = frozenset(),
    broken: frozenset[CheckpointId] = frozenset(),
) -> None:
    """Whatever was interrupted: nothing is lost that was not meant to go, and nothing is half there.

    :param new: ids that the step may have brought into being.
    :param expired: ids in the trash that the step may have removed for good.
    :param broken: ids that need not be whole, besides those that the scene knows of.
    """
    layout = scene.layout
    live = live_in(layout)
    broken = broken | scene.broken
    waiting = {entry.checkpoint_id: entry for entry in trash_of(layout)}

    assert set(live) <= before.live | before.trashed | new
    for each in live:
        assert each in broken or is_whole(layout, each), f"{each} is live and not whole"
    for each in before.live | before.trashed - expired:
        assert each in live or each in waiting, f"{each} is lost"
    for each in before.pinned | {before.chosen}:
        assert each in live, f"{each} had to stay"
    _assert_pointer(layout, live)
    for key, body in before.young.items():
        assert layout.blobs.read(key) == body, f"{key} is young and was touched"
    for each, entry in waiting.items():
        if not (each in expired and _purge_has_begun(layout, entry)):
            _assert_can_come_back(scene, each, whole=each not in broken)
    if scene.maker.gives_ids:
        assert scene.maker.next_id(clone(scene.root, scene.clock)) > max(scene.seen.union(live)), "an id is reused"


def _assert_pointer(layout: Layout, live: list[CheckpointId]) -> None:
    pointer = layout.read_pointer()
    assert pointer is None or pointer in live, f"the pointer names {pointer}, which is not there"


def _purge_has_begun(layout: Layout, entry: trash.TrashEntry) -> bool:
    marks = [trash.kept_key(entry.checkpoint_id, key) for key in entry.keys]
    gone = [key for key in marks if layout.blobs.stat(key) is None]
    return bool(gone) or layout.blobs.stat(trash.purging_key(entry.checkpoint_id)) is not None


def _assert_can_come_back(scene: Scene, checkpoint_id: CheckpointId, *, whole: bool) -> None:
    copy = scene.copy()
    copy.executor(copy.root).undelete(checkpoint_id)
    assert checkpoint_id in live_in(copy.layout)
    assert is_whole(copy.layout, checkpoint_id) or not whole, f"{checkpoint_id} came back and is not whole"
