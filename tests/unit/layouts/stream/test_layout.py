"""The checkpoints of one stream, asked as any layout is."""

from __future__ import annotations

import pickle
import tracemalloc
from datetime import timedelta

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs, WrapperBlobs
from airflow_provider_checkpoint.exceptions import (
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
    StoreUnavailableError,
)
from airflow_provider_checkpoint.layouts import Named, Role
from airflow_provider_checkpoint.layouts.stream import StreamLayout, StreamStore
from airflow_provider_checkpoint.layouts.stream._names import digest_key, state_key
from airflow_provider_checkpoint.model import Artifact, CheckpointId, Depth, GenericPosition, Severity
from tests.unit.layouts.stream.making import NOON, VECTOR_STATES, state, vector

MIB = 1024 * 1024
C2 = CheckpointId(77)


class Counting(WrapperBlobs):
    """Counts what is read."""

    def __init__(self, inner):
        super().__init__(inner)
        self.reads = 0
        self.bytes_read = 0

    def read(self, key, *, start=0, length=None):
        data = super().read(key, start=start, length=length)
        self.reads += 1
        self.bytes_read += len(data)
        return data

    def stream(self, key, *, start=0, length=None):
        for piece in super().stream(key, start=start, length=length):
            self.bytes_read += len(piece)
            yield piece


@pytest.fixture
def blobs():
    return MemoryBlobs(clock=lambda: NOON)


@pytest.fixture
def layout(blobs):
    return StreamLayout(blobs)


def put(blobs, sequence, data):
    blobs.replace(state_key(sequence), data)


# -- finding -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_the_reference_is_read(blobs, layout):
    put(blobs, 77, vector("C2"))
    checkpoint = layout.load(C2)
    assert checkpoint.id == C2
    assert checkpoint.epoch == 77
    assert checkpoint.event_count == 77
    assert checkpoint.watermark == 1_700_000_000_000_000_000
    assert checkpoint.created == NOON
    assert checkpoint.sources == {"source-0": GenericPosition(connector_type="stream", offsets={"offset": "8192"})}
    assert checkpoint.source_names == ("source-0",)
    assert checkpoint.artifacts == (Artifact("checkpoint-00000000000000000077.ckpt", size=86),)
    assert checkpoint.size == 86
    assert pickle.loads(pickle.dumps(checkpoint)) == checkpoint


def test_a_digest_is_named_so_that_no_sweep_takes_it_for_an_orphan(blobs):
    store = StreamStore(blobs, 3)
    store.save(VECTOR_STATES["C2"])
    layout = store.layout("orders")
    checkpoint = layout.load(C2)
    assert [artifact.key for artifact in checkpoint.artifacts] == [state_key(77), digest_key(77)]
    assert {layout.named(artifact.key).checkpoint_id for artifact in checkpoint.artifacts} == {C2}


def test_the_age_of_a_file_that_the_store_does_not_tell_is_now(blobs):
    class Ageless(WrapperBlobs):
        def stat(self, key):
            info = super().stat(key)
            return None if info is None else type(info)(info.key, info.size, None, None)

    put(blobs, 77, vector("C2"))
    later = NOON + timedelta(days=1)
    assert StreamLayout(Ageless(blobs), clock=lambda: later).load(C2).created == later


def test_candidates_are_the_files_by_number_whatever_is_in_them(blobs, layout):
    for sequence in (10, 9, 2**64 - 1, 0):
        put(blobs, sequence, b"rubbish")
    blobs.create("checkpoint-9.ckpt", b"")
    blobs.create(digest_key(5), b"")
    blobs.create(f"trash/7/kept/{state_key(7)}", b"")
    assert layout.candidates() == [CheckpointId(sequence) for sequence in (0, 9, 10, 2**64 - 1)]


@pytest.mark.parametrize("text", ["0", "42", "00000000000000000042", str(2**64 - 1)])
def test_an_id_is_a_sequence(layout, text):
    assert layout.parse_id(text) == CheckpointId(int(text))


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", " 1", "x", str(2**64), "٤٢", "1" * 5000])
def test_what_cannot_be_a_sequence_is_no_id(layout, text):
    with pytest.raises(ConfigurationError, match="not the id"):
        layout.parse_id(text)


@pytest.mark.parametrize("value", [1, -1, 2**64, "0192a3b4-c5d6-7e8f-9a0b-1c2d3e4f5a6b"])
def test_a_checkpoint_that_is_not_there_is_not_found(layout, value):
    with pytest.raises(CheckpointNotFoundError, match=f"no checkpoint {value}"):
        layout.load(CheckpointId(value))


def test_there_is_no_pointer(blobs, layout):
    put(blobs, 77, vector("C2"))
    layout.move_pointer(C2)
    assert layout.read_pointer() is None
    assert [info.key for info in blobs.list()] == [state_key(77)]


# -- little is read ----------------------------------------------------------------------------------------------


def test_a_small_checkpoint_is_read_once(blobs):
    put(blobs, 77, vector("C2"))
    counting = Counting(blobs)
    StreamLayout(counting).load(C2)
    assert (counting.reads, counting.bytes_read) == (1, 86)


def test_a_large_state_is_not_read_to_load_its_checkpoint(blobs):
    large = {"a": bytes(20 * MIB), "b": bytes(20 * MIB), "c": bytes(8 * MIB)}
    put(blobs, 1, state(1, operators=large, sources={"s": 5}).encode())
    counting = Counting(blobs)
    checkpoint = StreamLayout(counting).load(CheckpointId(1))
    assert checkpoint.sources["s"].offsets == {"offset": "5"}
    assert counting.reads == 4
    assert counting.bytes_read < MIB


def test_trimming_does_not_read_what_was_just_saved(blobs):
    counting = Counting(blobs)
    store = StreamStore(counting, 1)
    for sequence in range(3):
        store.save(state(sequence, operators={"a": bytes(MIB)}))
    assert (counting.reads, counting.bytes_read) == (0, 0)


def test_many_operators_do_not_cost_a_request_each(blobs):
    many = {f"operator-{number:05}": bytes(100_000) for number in range(600)}
    put(blobs, 1, state(1, operators=many).encode())
    counting = Counting(blobs)
    StreamLayout(counting).load(CheckpointId(1))
    assert counting.reads < 60


def test_a_name_across_the_edge_of_a_window_is_read_whole(blobs):
    names = {"n" * length: 1 for length in range(60_000, 66_000, 977)}
    put(blobs, 1, state(1, operators={"o": bytes(1000)}, sources=names).encode())
    assert set(StreamLayout(blobs).load(CheckpointId(1)).sources) == set(names)


def test_no_field_is_lost_wherever_the_edge_of_a_window_falls(blobs):
    for size in range(64 * 1024 - 140, 64 * 1024):
        put(blobs, 1, state(1, operators={"first": bytes(size), "second": b"x"}, sources={"s": 2**63, "t": 7}).encode())
        checkpoint = StreamLayout(blobs).load(CheckpointId(1))
        assert [checkpoint.sources[name].offsets["offset"] for name in ("s", "t")] == [str(2**63), "7"]


def test_a_file_that_is_replaced_by_a_shorter_one_meanwhile_is_not_called_corrupt(blobs):
    class Stale(WrapperBlobs):
        def stat(self, key):
            info = super().stat(key)
            return None if info is None else type(info)(info.key, info.size + 10, info.modified, info.version)

    put(blobs, 77, vector("C2"))
    with pytest.raises(StoreUnavailableError, match="86 of 96 bytes"):
        StreamLayout(Stale(blobs)).load(C2)


def test_a_file_that_goes_while_it_is_read_is_not_found(blobs):
    class Vanishing(WrapperBlobs):
        def stat(self, key):
            info = super().stat(key)
            self._inner.delete([key])
            return info

    for ask in (lambda layout: layout.load(C2), lambda layout: layout.restore("orders", 77)):
        put(blobs, 77, vector("C2"))
        with pytest.raises(CheckpointNotFoundError):
            ask(StreamLayout(Vanishing(blobs)))


# -- proving -----------------------------------------------------------------------------------------------------


def test_a_sound_checkpoint_is_examined_without_a_word(blobs, layout):
    put(blobs, 77, vector("C2"))
    examination = layout.examine(C2)
    assert examination.checkpoint == layout.load(C2)
    assert examination.issues == []


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (None, "manifest_missing", "no checkpoint 77"),
        (b"", "manifest_corrupt", "byte 0 of 0: expected the header"),
        (vector("C2")[:-1], "manifest_corrupt", "checkpoint-00000000000000000077.ckpt: byte 78 of 85: "),
        (vector("C2") + b"x", "manifest_corrupt", "expected the end"),
        (vector("C1"), "manifest_corrupt", "the state inside is of sequence 42"),
    ],
    ids=["missing", "empty", "cut", "left over", "of another"],
)
def test_a_missing_or_malformed_checkpoint_is_an_issue_not_an_exception(blobs, layout, data, code, words):
    if data is not None:
        put(blobs, 77, data)
    examination = layout.examine(C2)
    assert examination.checkpoint is None
    (issue,) = examination.issues
    assert (issue.severity, issue.code) == (Severity.ERROR, code)
    assert words in issue.message


def test_a_malformed_checkpoint_is_a_corrupt_manifest_to_load(blobs, layout):
    put(blobs, 77, vector("C2")[:50])
    with pytest.raises(CorruptManifestError, match="byte 45 of 50: expected the operator state"):
        layout.load(C2)


def test_a_lenient_layout_takes_what_the_reference_takes(blobs):
    put(blobs, 77, vector("C2")[:63])
    assert StreamLayout(blobs).examine(C2).checkpoint is None
    lenient = StreamLayout(blobs, lenient=True)
    assert lenient.load(C2).sources == {}
    for depth in Depth:
        assert codes(lenient, lenient.load(C2), depth) in ([], ["digest_missing"])


def codes(layout, checkpoint, depth):
    return [issue.code for check in layout.checks(checkpoint, depth) for issue in check.run()]


def flip(data: bytes) -> bytes:
    """One bit inside the operator's state, which no structure shows."""
    place = data.index(b"state_data")
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


def nothing(blobs):
    pass


def lose_digest(blobs):
    blobs.delete([digest_key(77)])


def garble_digest(blobs):
    blobs.replace(digest_key(77), b"not a digest")


def change_digest(blobs):
    blobs.replace(digest_key(77), b"0" * 64)


def change_state(blobs):
    put(blobs, 77, flip(vector("C2")))


def change_state_and_lose_digest(blobs):
    change_state(blobs)
    lose_digest(blobs)


def cut_state(blobs):
    put(blobs, 77, vector("C2")[:-1])


def lose_state(blobs):
    blobs.delete([state_key(77)])


def swap_state(blobs):
    put(blobs, 77, vector("C1"))


# What happens to a saved checkpoint after it was loaded: issues at presence, at content and restore.
DAMAGE = {
    nothing: ([], []),
    lose_digest: ([], ["digest_missing"]),
    garble_digest: ([], ["digest_missing"]),
    change_digest: ([], ["checksum_mismatch"]),
    change_state: ([], ["checksum_mismatch"]),
    # Nothing is promised here: the format alone cannot tell.
    change_state_and_lose_digest: ([], ["digest_missing"]),
    cut_state: (["size_mismatch"], ["artifact_corrupt"]),
    lose_state: (["artifact_missing"], ["artifact_missing"]),
    swap_state: (["size_mismatch"], ["artifact_corrupt"]),
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_each_depth_finds_what_it_promises(blobs, damage):
    store = StreamStore(blobs, 3)
    store.save(VECTOR_STATES["C2"])
    layout = store.layout("orders")
    checkpoint = layout.load(C2)
    damage(layout.blobs)
    present, deep = DAMAGE[damage]
    assert codes(layout, checkpoint, Depth.STRUCTURE) == []
    assert codes(layout, checkpoint, Depth.PRESENCE) == present
    assert codes(layout, checkpoint, Depth.CONTENT) == deep
    assert codes(layout, checkpoint, Depth.RESTORE) == deep


def test_a_missing_digest_is_only_a_warning(blobs, layout):
    put(blobs, 77, vector("C2"))
    (check,) = layout.checks(layout.load(C2), Depth.CONTENT)
    (issue,) = check.run()
    assert issue.severity is Severity.WARNING


def test_checks_say_what_they_will_read(blobs, layout):
    put(blobs, 77, vector("C2"))
    checkpoint = layout.load(C2)
    costs = {depth: [(check.subject, check.cost) for check in layout.checks(checkpoint, depth)] for depth in Depth}
    assert costs == {
        Depth.STRUCTURE: [],
        Depth.PRESENCE: [(state_key(77), 0)],
        Depth.CONTENT: [(state_key(77), 86)],
        Depth.RESTORE: [(state_key(77), 86)],
    }


def test_content_is_proven_in_constant_memory(tmp_path):
    store = StreamStore(LocalBlobs(tmp_path), 3)
    store.save(state(1, operators={"a": bytes(32 * MIB)}))
    layout = store.layout("orders")
    (check,) = layout.checks(layout.load(CheckpointId(1)), Depth.CONTENT)
    tracemalloc.start()
    try:
        assert check.run() == []
        assert tracemalloc.get_traced_memory()[1] < 6 * MIB
    finally:
        tracemalloc.stop()


# -- removing ----------------------------------------------------------------------------------------------------


def test_the_file_is_its_own_manifest(layout):
    assert layout.manifest_keys(C2) == [state_key(77)]


@pytest.mark.parametrize(
    ("key", "named"),
    [
        (state_key(77), Named(Role.MANIFEST, C2)),
        (digest_key(77), Named(Role.ARTIFACT, C2)),
        (f"{state_key(77)}.tmp", Named(Role.ARTIFACT, C2)),
        ("checkpoint-77.ckpt", Named(Role.UNKNOWN)),
        (f"checkpoint-{2**64}.ckpt", Named(Role.UNKNOWN)),
        (f"other/{state_key(77)}", Named(Role.UNKNOWN)),
        ("pins/a.json", Named(Role.HOUSEKEEPING)),
        (f"trash/77/kept/{state_key(77)}", Named(Role.HOUSEKEEPING)),
        ("trash", Named(Role.UNKNOWN)),
        ("notes.txt", Named(Role.UNKNOWN)),
    ],
)
def test_what_a_name_says(layout, key, named):
    assert layout.named(key) == named
