"""Pins, the ledger of proofs and the audit trail, on the store."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_checkpoint.blobs import LocalBlobs, MemoryBlobs
from airflow_provider_checkpoint.blobs.faulty import FaultyBlobs
from airflow_provider_checkpoint.exceptions import (
    CheckpointConflictError,
    CheckpointError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptManifestError,
)
from airflow_provider_checkpoint.lifecycle.records import (
    AuditRun,
    Proof,
    add_pin,
    add_proof,
    parse_stamp,
    pin_key,
    proof_of,
    read_audit,
    read_ledger,
    read_pins,
    read_proof,
    remove_pin,
    stamp,
)
from airflow_provider_checkpoint.model import CheckpointId, Depth, Issue, Pin
from tests.unit.lifecycle.tiny_layout import START, TinyLayout

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_checkpoint.blobs import BlobStore

HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "local"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return MemoryBlobs() if request.param == "memory" else LocalBlobs(tmp_path)


def pin(name: str = "release", number: int = 7, **facts: Any) -> Pin:
    usual = {"owner": "ana", "reason": "before the migration", "created": START}
    return Pin(name=name, checkpoint_id=CheckpointId(number), **(usual | facts))


# -- pins --------------------------------------------------------------------------------------------------------


def test_a_pin_is_set_read_and_removed(blobs: BlobStore):
    add_pin(blobs, pin("b", 2, expires=START + HOUR))
    add_pin(blobs, pin("a", 1))
    assert read_pins(blobs) == [pin("a", 1), pin("b", 2, expires=START + HOUR)]
    assert remove_pin(blobs, "a") == pin("a", 1)
    assert read_pins(blobs) == [pin("b", 2, expires=START + HOUR)]


ODD_NAMES = [
    "release 2026/11 (final)", "..", ".", "a.json", "../../escape", "a\\b", "a\nb", "%2E", "ünïcödé 🚀", "a\0b",
    "CON", "-", "~", " ", "x" * 150,
]  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_pin_may_have_any_name_and_stays_in_its_folder(blobs: BlobStore, name: str):
    add_pin(blobs, pin(name))
    assert [each.name for each in read_pins(blobs)] == [name]
    assert all(info.key.count("/") == 1 and info.key.startswith("pins/") for info in blobs.list())
    remove_pin(blobs, name)
    assert list(blobs.list()) == []


@given(st.lists(st.text(min_size=1, max_size=12).filter(lambda name: not _half(name)), unique=True, max_size=8))
def test_different_names_are_different_pins(names: list[str]):
    assert len({pin_key(name) for name in names}) == len(names)


def _half(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


@pytest.mark.parametrize("name", ["", "x" * 151, "." * 100, "ü" * 100, "🚀" * 20, "\ud800"])
def test_a_name_that_cannot_be_kept_is_refused(name: str):
    with pytest.raises(ConfigurationError, match="a pin needs a name"):
        pin_key(name)


def test_a_pin_does_not_move_to_another_checkpoint_by_itself(blobs: BlobStore):
    add_pin(blobs, pin(number=7))
    with pytest.raises(CheckpointConflictError, match="'release' is on checkpoint 7") as caught:
        add_pin(blobs, pin(number=8))
    assert caught.value.hint is not None
    assert "unpin release" in caught.value.hint
    assert read_pins(blobs) == [pin(number=7)]


def test_setting_the_same_pin_again_is_a_success(blobs: BlobStore):
    add_pin(blobs, pin())
    add_pin(blobs, pin())
    add_pin(blobs, pin(created=START + HOUR, owner="bob", reason="again"))
    assert read_pins(blobs) == [pin()]


@pytest.mark.parametrize(
    ("first", "second", "holds_until"),
    [
        pytest.param(None, START + HOUR, None, id="without an end stays so"),
        pytest.param(START + HOUR, None, None, id="an end is lifted"),
        pytest.param(START + HOUR, START + 2 * HOUR, START + 2 * HOUR, id="a later end"),
        pytest.param(START + 2 * HOUR, START + HOUR, START + 2 * HOUR, id="an earlier end does not shorten it"),
        pytest.param(START - HOUR, START + HOUR, START + HOUR, id="an expired one holds again"),
    ],
)
def test_a_pin_set_again_holds_at_least_as_long_as_asked(
    blobs: BlobStore, first: datetime | None, second: datetime | None, holds_until: datetime | None
):
    """Whoever asks for a pin without an end must not be left with one that ends tomorrow."""
    add_pin(blobs, pin(expires=first))
    add_pin(blobs, pin(expires=second, owner="bob"))
    assert read_pins(blobs) == [pin(expires=holds_until)]


def test_of_two_that_prolong_a_pin_at_once_the_longer_wins():
    inner = MemoryBlobs()
    add_pin(inner, pin(expires=START + HOUR))

    class Overtaken(FaultyBlobs):
        def replace(self, key: str, body: bytes, *, expected: str | None = None) -> str | None:
            if not self.calls["replace"]:
                add_pin(inner, pin(expires=START + 3 * HOUR))
            return super().replace(key, body, expected=expected)

    add_pin(Overtaken(inner), pin(expires=START + 2 * HOUR))
    assert read_pins(inner) == [pin(expires=START + 3 * HOUR)]


def test_a_pin_that_is_removed_while_it_is_set_again_is_set():
    inner = MemoryBlobs()
    add_pin(inner, pin(expires=START))

    class Removed(FaultyBlobs):
        def stat(self, key: str) -> Any:
            inner.delete([key])
            return super().stat(key)

    add_pin(Removed(inner), pin(owner="bob"))
    assert read_pins(inner) == [pin(owner="bob")]


def test_removing_a_pin_that_is_not_there_names_those_that_are(blobs: BlobStore):
    with pytest.raises(CheckpointNotFoundError) as caught:
        remove_pin(blobs, "x")
    assert caught.value.hint == "Pins here: none."
    add_pin(blobs, pin("release"))
    with pytest.raises(CheckpointNotFoundError) as caught:
        remove_pin(blobs, "relaese")
    assert caught.value.hint == "Pins here: release."


@pytest.mark.parametrize(
    ("expires", "holds"),
    [(None, True), (START + HOUR, True), (START, False), (START - HOUR, False)],
)
def test_a_pin_holds_until_it_expires(expires: datetime | None, *, holds: bool):
    assert pin(expires=expires).holds(START) is holds


def test_an_expired_pin_is_still_there_to_be_seen(blobs: BlobStore):
    add_pin(blobs, pin(expires=START - HOUR))
    assert len(read_pins(blobs)) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"name": "x"}',
        b"\xff",
        b"[" * 100_000,
        pin().model_dump_json().replace("+00:00", "").replace("00Z", "00").encode(),
        json.dumps({**json.loads(pin().model_dump_json()), "checkpoint_id": 1.5}).encode(),
    ],
    ids=["empty", "cut", "list", "incomplete", "not text", "deep", "no zone", "no id"],
)
def test_an_unreadable_pin_stops_whoever_asks_because_it_may_protect_anything(blobs: BlobStore, body: bytes):
    add_pin(blobs, pin("fine"))
    blobs.create("pins/odd.json", body)
    with pytest.raises(CorruptManifestError) as caught:
        read_pins(blobs)
    assert caught.value.subject == "pins/odd.json"


def test_other_files_among_the_pins_are_passed_over(blobs: BlobStore):
    add_pin(blobs, pin())
    blobs.create("pins/README.txt", b"what these are for")
    assert read_pins(blobs) == [pin()]


def test_ids_of_both_kinds_survive(blobs: BlobStore):
    text = Pin(name="t", checkpoint_id=CheckpointId("0192a3b4"), owner="", reason="", created=START)
    number = pin("n", 2**64 - 1)
    digits = Pin(name="d", checkpoint_id=CheckpointId("7"), owner="", reason="", created=START)
    for each in (text, number, digits):
        add_pin(blobs, each)
    assert read_pins(blobs) == [digits, number, text]


# -- the ledger --------------------------------------------------------------------------------------------------


def proof(number: int = 7, depth: Depth = Depth.CONTENT, *, hours: int = 0, valid: bool = True) -> Proof:
    issues = [] if valid else [Issue.error("checksum_mismatch", "state: wrong")]
    return proof_of(CheckpointId(number), depth, issues, START + hours * HOUR)


def ledger(blobs: BlobStore) -> dict[int | str, tuple[Depth, bool, datetime]]:
    found = read_ledger(blobs, TinyLayout(blobs))
    return {each.value: (proof.depth, proof.valid, proof.proven) for each, proof in found.items()}


def test_the_ledger_is_one_listing_and_no_reads():
    inner = MemoryBlobs()
    for number in range(50):
        add_proof(inner, proof(number, hours=number))
    blobs = FaultyBlobs(inner)
    assert len(ledger(blobs)) == 50
    assert dict(blobs.calls) == {"list": 1}


def test_the_latest_proof_of_each_checkpoint_counts(blobs: BlobStore):
    add_proof(blobs, proof(7, hours=0, valid=False))
    add_proof(blobs, proof(7, hours=2))
    add_proof(blobs, proof(8, Depth.PRESENCE, hours=1, valid=False))
    assert ledger(blobs) == {
        7: (Depth.CONTENT, True, START + 2 * HOUR),
        8: (Depth.PRESENCE, False, START + HOUR),
    }


def test_a_newer_proof_drops_those_it_replaces(blobs: BlobStore):
    for hours in range(5):
        add_proof(blobs, proof(hours=hours))
    add_proof(blobs, proof(8))
    assert len(list(blobs.list("ledger/7"))) == 1
    assert len(list(blobs.list("ledger/8"))) == 1


SHALLOW, DEEP = Depth.PRESENCE, Depth.CONTENT


@pytest.mark.parametrize(
    ("earlier", "later", "counts"),
    [
        pytest.param((SHALLOW, True), (DEEP, True), "later", id="deeper"),
        pytest.param((SHALLOW, False), (DEEP, True), "later", id="deeper, mended"),
        pytest.param((DEEP, True), (DEEP, False), "later", id="as deep, broken since"),
        pytest.param((DEEP, False), (DEEP, True), "later", id="as deep, mended"),
        pytest.param((DEEP, True), (SHALLOW, False), "later", id="broken so badly that a shallow look shows it"),
        pytest.param((DEEP, False), (SHALLOW, False), "later", id="still broken"),
        pytest.param((DEEP, False), (SHALLOW, True), "earlier", id="a shallow look does not see what was wrong"),
        pytest.param((DEEP, True), (SHALLOW, True), "earlier", id="a shallow look does not undo a deep proof"),
    ],
)
def test_a_look_replaces_an_earlier_one_if_it_was_as_deep_or_found_something_wrong(
    blobs: BlobStore, earlier: tuple[Depth, bool], later: tuple[Depth, bool], counts: str
):
    for hours, (depth, valid) in enumerate((earlier, later)):
        add_proof(blobs, proof(depth=depth, hours=hours, valid=valid))
    expected = {"earlier": (*earlier, START), "later": (*later, START + HOUR)}[counts]
    assert ledger(blobs) == {7: expected}
    found = read_proof(blobs, CheckpointId(7))
    assert found is not None
    assert (found.depth, found.valid, found.proven) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(Depth), st.booleans()), min_size=1, max_size=12), st.randoms())
def test_the_ledger_stays_small_and_tells_the_same_in_whatever_order_it_is_listed(
    looks: list[tuple[Depth, bool]], random: Any
):
    blobs = MemoryBlobs()
    everything = MemoryBlobs()
    for hours, (depth, valid) in enumerate(looks):
        add_proof(blobs, proof(depth=depth, hours=hours, valid=valid))
        fresh = MemoryBlobs()
        add_proof(fresh, proof(depth=depth, hours=hours, valid=valid))
        (info,) = fresh.list()
        everything.create(info.key, fresh.read(info.key))
    shuffled = MemoryBlobs()
    for info in random.sample(list(everything.list()), len(looks)):
        shuffled.create(info.key, everything.read(info.key))
    assert len(list(blobs.list())) <= len(Depth)
    assert ledger(blobs) == ledger(everything) == ledger(shuffled)


def test_a_proof_says_what_was_found(blobs: BlobStore):
    add_proof(blobs, proof(valid=False))
    assert read_proof(blobs, CheckpointId(7)) == proof(valid=False)
    assert read_proof(blobs, CheckpointId(8)) is None


def test_only_errors_make_a_proof_invalid():
    warned = proof_of(CheckpointId(1), Depth.CONTENT, [Issue.warning("no_artifacts", "names no artifact")], START)
    assert warned.valid
    assert not proof(valid=False).valid


@pytest.mark.parametrize(
    "name",
    [
        "ledger/7/20261399T999999.000000Z-content-valid.json",
        "ledger/7/00000000T000000.000000Z-content-valid.json",
        "ledger/7/\u0968\u0966\u0968\u096c1115T120000.000000Z-content-valid.json",
        "ledger/7/20261115T120000.000000Z-guess-valid.json",
        "ledger/7/20261115T120000.000000Z-content-maybe.json",
        "ledger/seven/20261115T120000.000000Z-content-invalid.json",
        "ledger/%FF/20261115T120000.000000Z-content-invalid.json",
        "ledger/7/deep/20261115T120000.000000Z-content-invalid.json",
        "ledger/README",
    ],
)
def test_a_name_that_we_would_not_write_says_nothing(blobs: BlobStore, name: str):
    blobs.create(name, b"?")
    assert ledger(blobs) == {}
    add_proof(blobs, proof())
    assert ledger(blobs) == {7: (Depth.CONTENT, True, START)}
    assert blobs.stat(name) is not None


@given(st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31), timezones=st.sampled_from([UTC, timezone(HOUR)])))  # noqa: DTZ001 - hypothesis adds the zone
def test_a_time_in_a_name_reads_back_as_the_same_moment(moment: datetime):
    assert parse_stamp(stamp(moment)) == moment


@given(st.lists(st.datetimes(datetime(1000, 1, 1), timezones=st.just(UTC))))  # noqa: DTZ001 - hypothesis adds the zone
def test_times_in_names_sort_as_times(moments: list[datetime]):
    assert sorted(moments, key=stamp) == sorted(moments)


# -- the audit trail ---------------------------------------------------------------------------------------------


def test_a_run_leaves_two_records_newest_first(blobs: BlobStore):
    first = AuditRun(blobs, "prune", by="ana", now=START)
    first.started(START, {"items": [1]})
    second = AuditRun(blobs, "sweep", by="bob", now=START + HOUR)
    second.started(START + HOUR, {})
    # The first run ends last; it still belongs to its beginning.
    second.finished(START + 2 * HOUR, {"done": 1})
    first.finished(START + 3 * HOUR, {"done": 1})
    found = list(read_audit(blobs))
    assert [(each.verb, each.phase, each.by) for each in found] == [
        ("sweep", "finished", "bob"),
        ("sweep", "started", "bob"),
        ("prune", "finished", "ana"),
        ("prune", "started", "ana"),
    ]
    assert found[3].details == {"items": [1]}
    assert first.run != second.run
    assert [each.run for each in found] == [second.run, second.run, first.run, first.run]


def test_a_run_that_was_interrupted_is_one_record(blobs: BlobStore):
    AuditRun(blobs, "prune", by="ana", now=START).started(START, {})
    assert [each.phase for each in read_audit(blobs)] == ["started"]


def test_the_newest_records_are_read_first_and_no_more_than_asked():
    inner = MemoryBlobs()
    for hours in range(20):
        AuditRun(inner, "prune", by="ana", now=START + hours * HOUR).started(START + hours * HOUR, {"hours": hours})
    blobs = FaultyBlobs(inner)
    assert [each.details["hours"] for each in read_audit(blobs, limit=3)] == [19, 18, 17]
    assert blobs.calls["read"] == 3
    assert list(read_audit(blobs, limit=0)) == []


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"\xff", b'{"run": 1}', b"[" * 100_000])
def test_an_unreadable_audit_record_is_passed_over(blobs: BlobStore, body: bytes):
    AuditRun(blobs, "prune", by="ana", now=START).started(START, {})
    blobs.create("audit/99999999T000000.000000Z-x-prune-a-started.json", body)
    blobs.create("audit/notes.txt", b"?")
    assert [each.verb for each in read_audit(blobs)] == ["prune"]


# -- hostile records ---------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.sampled_from(["pins/x.json", "audit/x.json", "ledger/7/x.json"]), st.binary(max_size=120))
def test_no_bytes_in_a_record_make_anything_but_a_typed_error(key: str, body: bytes):
    blobs = MemoryBlobs()
    blobs.create(key, body)
    for read in (read_pins, lambda blobs: list(read_audit(blobs)), ledger):
        with contextlib.suppress(CheckpointError):
            read(blobs)
