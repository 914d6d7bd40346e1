"""From an address to a layout: recognised, or an error that says what was looked for and what to type."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest

from airflow_provider_checkpoint.blobs import LocalBlobs, open_blobs
from airflow_provider_checkpoint.blobs.faulty import FaultyBlobs
from airflow_provider_checkpoint.exceptions import ConfigurationError
from airflow_provider_checkpoint.layouts import Layout, open_store, pipelines, require_its_own
from airflow_provider_checkpoint.layouts._recognise import SIGNS, look
from airflow_provider_checkpoint.layouts.partitioned import CheckpointManifestV2, PartitionedLayout
from airflow_provider_checkpoint.layouts.sidecar import SidecarLayout
from airflow_provider_checkpoint.layouts.stream import CheckpointState, StreamCheckpointId, StreamLayout, StreamStore
from airflow_provider_checkpoint.layouts.structured_streaming import StructuredStreamingLayout
from airflow_provider_checkpoint.model import CheckpointId

UUID7 = "0192a3b4-c5d6-7e8f-9a0b-1c2d3e4f5a6b"
STREAM = "checkpoint-00000000000000000077.ckpt"

_numbers = count()


@pytest.fixture(params=["memory", "file"])
def uri(request, tmp_path):
    return f"memory://open-{next(_numbers)}" if request.param == "memory" else (tmp_path / "store").as_uri()


def fill(uri, *keys):
    """Put objects there by hand, as any other program may have done."""
    for key in keys:
        if uri.startswith("file:"):
            path = Path(uri.removeprefix("file://"), key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"{}")
        else:
            open_blobs(uri).create(key, b"{}")


RECOGNISED = {
    "sidecar": ("manifests/manifest-000001.json", SidecarLayout),
    "sidecar, pointer": ("manifests/latest.json", SidecarLayout),
    "sidecar, only state": ("checkpoints/state-000001.bin", SidecarLayout),
    "sidecar, legacy": ("checkpoints/checkpoint_000001/manifest.json", SidecarLayout),
    "sidecar, legacy pointer": ("checkpoints/latest.txt", SidecarLayout),
    "partitioned": (f"{UUID7}/manifest.json", PartitionedLayout),
    "partitioned, uncommitted": (f"{UUID7}/operators/o/partition-0.snap", PartitionedLayout),
    "partitioned, pointer": ("_latest", PartitionedLayout),
    "stream": (STREAM, StreamLayout),
}


@pytest.mark.parametrize("case", RECOGNISED)
@pytest.mark.parametrize("pipeline", [None, "orders", "team/orders"])
def test_a_layout_is_recognised_from_what_is_there(uri, case, pipeline):
    key, kind = RECOGNISED[case]
    fill(uri, key if pipeline is None else f"{pipeline}/{key}")
    layout = open_store(uri, pipeline=pipeline)
    assert type(layout) is kind
    assert [info.key for info in layout.blobs.list()] == [key]


@pytest.mark.parametrize("case", RECOGNISED)
def test_records_of_the_lifecycle_do_not_disturb(uri, case):
    key, kind = RECOGNISED[case]
    fill(uri, *(f"audit/{number}.json" for number in range(1200)), "pins/a.json", f"trash/1/kept/{STREAM}", key)
    assert type(open_store(uri)) is kind


def test_few_calls_are_made(tmp_path):
    blobs = LocalBlobs(tmp_path)
    for number in range(5):
        blobs.create(f"manifests/manifest-{number:06}.json", b"{}")
        blobs.create(f"checkpoints/state-{number:06}.bin", b"{}")
    faulty = FaultyBlobs(blobs)
    assert look(faulty).layouts == {"sidecar": look(blobs).layouts["sidecar"]}
    assert sum(faulty.calls.values()) <= 5


def test_what_each_layout_writes_is_recognised_as_its_own(uri):
    sidecar = open_store(uri, layout="sidecar", pipeline="orders")
    sidecar.save_operator_states(sidecar.new_manifest(1, epoch=1), {"o": b"state"})
    partitioned = open_store(uri, layout="partitioned", pipeline="clicks")
    new = partitioned.next_id()
    partitioned.save_manifest(CheckpointManifestV2(checkpoint_id=new, epoch=1, timestamp_ms=1))
    assert open_store(uri, pipeline="orders").candidates() == [CheckpointId(1)]
    assert open_store(uri, pipeline="clicks").candidates() == [new]
    assert pipelines(uri) == ["clicks", "orders"]


def test_what_a_stream_writes_is_recognised_and_read_by_its_name(uri):
    state = CheckpointState(StreamCheckpointId("a/b", 5, datetime.now(UTC)))
    StreamStore(open_blobs(uri), 3).save(state)
    for layout in (open_store(uri, pipeline="a/b"), open_store(uri, layout="stream", pipeline="a/b")):
        assert layout.load(CheckpointId(5)).epoch == 5
        # The address of a layout can be written down and opened again.
        if uri.startswith("file:"):
            assert open_store(layout.blobs.uri).candidates() == [CheckpointId(5)]


# -- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [[], ["audit/1.json"]])
@pytest.mark.parametrize("pipeline", [None, "orders", "a/b"])
def test_an_empty_folder_asks_for_the_layout(uri, keys, pipeline):
    fill(uri, *(f"{pipeline}/{key}" if pipeline else key for key in keys))
    with pytest.raises(ConfigurationError, match=r"(?s)nothing is there.*sidecar, partitioned, stream") as caught:
        open_store(uri, pipeline=pipeline)
    assert (pipeline or "") in caught.value.subject


def test_unknown_content_is_told_with_what_was_looked_for(uri):
    fill(uri, "notes.txt", "data/x/part-0.parquet", *(f"file-{number}" for number in range(20)))
    with pytest.raises(ConfigurationError) as caught:
        open_store(uri)
    assert "data/, " in caught.value.message
    assert "and 14 more" in caught.value.message
    for name, signs in SIGNS.items():
        assert f"{name}: {signs}" in caught.value.hint


@pytest.mark.parametrize(
    "keys",
    [
        ["manifests/manifest-000001.json", STREAM],
        ["manifests/manifest-000001.json", f"{UUID7}/manifest.json"],
        ["_latest", STREAM],
        ["offsets/0", "commits/0", STREAM],
    ],
)
def test_two_layouts_in_one_folder_are_named(uri, keys):
    fill(uri, *keys)
    with pytest.raises(ConfigurationError, match="two layouts in one folder") as caught:
        open_store(uri)
    assert sum(f"{name} (" in caught.value.message for name in SIGNS) == 2
    assert type(open_store(uri, layout="stream")) is StreamLayout


@pytest.mark.parametrize("keys", [["offsets/0", "commits/0", "metadata"], ["offsets/0", "metadata"]])
@pytest.mark.parametrize("pipeline", [None, "clicks"])
def test_a_checkpoint_directory_of_spark_is_recognised(uri, keys, pipeline):
    fill(uri, *(key if pipeline is None else f"{pipeline}/{key}" for key in keys))
    assert type(open_store(uri, pipeline=pipeline)) is StructuredStreamingLayout
    assert type(open_store(uri, layout="structured_streaming", pipeline=pipeline)) is StructuredStreamingLayout


def test_a_checkpoint_directory_of_spark_cannot_be_a_whole_bucket():
    with pytest.raises(ConfigurationError, match="whole bucket or disk"):
        open_store("s3://bucket", layout="structured_streaming")


def test_a_root_of_pipelines_says_which_there_are(uri):
    fill(uri, f"orders/{UUID7}/manifest.json", f"a%2Fb/{STREAM}", "logs/today.txt")
    with pytest.raises(ConfigurationError, match="no checkpoints here, but pipelines below") as caught:
        open_store(uri)
    assert caught.value.hint == "Say which (--pipeline): a/b, orders."


def test_a_pipeline_that_is_a_folder_and_a_stream_is_not_guessed(uri):
    fill(uri, "a/b/_latest", f"a%2Fb/{STREAM}")
    with pytest.raises(ConfigurationError, match="two stores for the pipeline 'a/b'"):
        open_store(uri, pipeline="a/b")
    assert type(open_store(uri, layout="stream", pipeline="a/b")) is StreamLayout
    assert type(open_store(uri, layout="partitioned", pipeline="a/b")) is PartitionedLayout


def test_a_stream_is_called_by_its_name_and_only_else_by_its_folder(uri):
    fill(uri, f"a%2Fb/{STREAM}")
    assert [info.key for info in open_store(uri, pipeline="a%2Fb").blobs.list()] == [STREAM]
    other = STREAM.replace("77", "78")
    fill(uri, f"a%252Fb/{other}")
    assert [info.key for info in open_store(uri, pipeline="a%2Fb").blobs.list()] == [other]


def test_a_folder_of_something_else_does_not_hide_a_stream_of_its_name(uri):
    fill(uri, "a/b/notes.txt", f"a%2Fb/{STREAM}")
    assert type(open_store(uri, pipeline="a/b")) is StreamLayout


@pytest.mark.parametrize("pipeline", ["", "..", "../other", "/etc", "a//b", "a\\b"])
@pytest.mark.parametrize("layout", ["sidecar", "partitioned"])
def test_a_pipeline_that_leads_elsewhere_is_refused(uri, layout, pipeline):
    with pytest.raises(ConfigurationError, match="not the name of a pipeline"):
        open_store(uri, layout=layout, pipeline=pipeline)


def test_any_name_but_an_empty_one_may_be_a_stream(uri):
    layout = open_store(uri, layout="stream", pipeline="../other")
    assert layout.blobs.uri.startswith(open_blobs(uri).uri)
    layout.blobs.create("x", b"")
    assert [info.key for info in open_blobs(uri).list()] == ["%2E%2E%2Fother/x"]
    for name in ("stream", "auto"):
        with pytest.raises(ConfigurationError, match="empty"):
            open_store(uri, layout=name, pipeline="")


def test_a_long_path_is_a_folder_though_no_stream(uri):
    pipeline = "/".join(["long-name-of-a-folder"] * 12)
    fill(uri, f"{pipeline}/_latest")
    assert type(open_store(uri, pipeline=pipeline)) is PartitionedLayout


@pytest.mark.parametrize("name", ["", "Sidecar", "parquet"])
def test_an_unknown_layout_is_refused(uri, name):
    for ask in (open_store, pipelines):
        with pytest.raises(ConfigurationError, match=r"(?s)unknown layout.*auto, sidecar, partitioned, stream"):
            ask(uri, layout=name)


# -- options -----------------------------------------------------------------------------------------------------


def test_a_named_layout_opens_a_new_store(uri):
    for name, kind in (("sidecar", SidecarLayout), ("partitioned", PartitionedLayout), ("stream", StreamLayout)):
        layout = open_store(uri, layout=name, pipeline="new")
        assert type(layout) is kind
        assert layout.candidates() == []


def test_options_reach_the_layout(uri):
    fill(uri, STREAM)
    open_blobs(uri).replace(STREAM, b"\x4d" + bytes(29))
    assert open_store(uri).examine(CheckpointId(77)).checkpoint is None
    assert open_store(uri, lenient=True).examine(CheckpointId(77)).checkpoint is not None


@pytest.mark.parametrize("layout", ["sidecar", "partitioned"])
@pytest.mark.parametrize(("expected", "codes"), [({}, []), ({"vnode_count": 256}, ["vnode_count_mismatch"])])
def test_vnodes_are_compared_only_with_a_count_that_was_given(uri, layout, expected, codes):
    store = open_store(uri, layout=layout)
    if layout == "sidecar":
        new = CheckpointId(store.save(store.new_manifest(1, epoch=1).changed(vnode_count=128)).checkpoint_id)
    else:
        new = store.next_id()
        store.save_manifest(CheckpointManifestV2(checkpoint_id=new, epoch=1, timestamp_ms=1, vnode_count=128))
    assert [issue.code for issue in open_store(uri, **expected).examine(new).issues] == codes


def test_an_option_that_a_layout_does_not_have_is_named_with_those_it_has(uri):
    with pytest.raises(ConfigurationError, match=r"(?s)the layout stream does not take.*'depth'.*lenient, clock"):
        open_store(uri, layout="stream", depth=3)


def test_options_of_the_store_are_checked(uri):
    with pytest.raises(ConfigurationError, match="storage option 'colour'"):
        open_store(uri, layout="stream", options={"colour": "red"})


# -- pipelines ---------------------------------------------------------------------------------------------------


def test_pipelines_are_the_folders_in_which_checkpoints_are_recognised(uri):
    fill(
        uri,
        "orders/manifests/manifest-000001.json",
        f"clicks/{UUID7}/manifest.json",
        f"a%2Fb/{STREAM}",
        "native/offsets/0",
        "native/commits/0",
        "logs/today.txt",
        "readme.md",
    )
    assert pipelines(uri) == ["a/b", "clicks", "native", "orders"]
    assert pipelines(uri, layout="stream") == ["a/b"]
    assert pipelines(uri, layout="sidecar") == ["orders"]
    for name in ("a/b", "clicks", "orders"):
        assert isinstance(open_store(uri, pipeline=name), Layout)


@pytest.mark.parametrize("keys", [[], ["manifests/manifest-000001.json"], [f"{UUID7}/manifest.json"], [STREAM]])
def test_an_empty_root_and_a_store_itself_have_no_pipelines(uri, keys):
    fill(uri, *keys)
    assert pipelines(uri) == []


def test_a_folder_whose_name_no_pipeline_can_have_is_passed_over(tmp_path):
    uri = tmp_path.as_uri()
    fill(uri, "odd\\name/_latest", f"{'x' * 220}/_latest", "orders/_latest")
    assert pipelines(uri) == ["orders"]
    with pytest.raises(ConfigurationError, match="pipelines below"):
        open_store(uri)


def test_folders_named_by_other_uuids_are_pipelines_not_checkpoints(uri):
    job = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"
    fill(uri, f"{job}/manifests/manifest-000001.json")
    assert pipelines(uri) == [job]


# -- imports -----------------------------------------------------------------------------------------------------


def test_importing_the_layouts_imports_no_format_and_nothing_heavy():
    code = (
        "import sys; import airflow_provider_checkpoint.layouts as layouts;"
        "assert {'open_store', 'pipelines', 'Layout', 'Role', 'Named', 'Check', 'Examination'} <= set(dir(layouts));"
        "names = ['airflow', 'pyspark', 'obstore', 'fsspec', 'airflow_provider_checkpoint.layouts.stream'];"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- a layout that somebody names --------------------------------------------------------------------------------


@pytest.mark.parametrize("named", SIGNS)
@pytest.mark.parametrize("case", RECOGNISED)
def test_a_layout_that_is_not_what_is_there_is_refused_with_the_one_that_is(uri, case, named):
    key, kind = RECOGNISED[case]
    fill(uri, key, "audit/1.json")
    layout = open_store(uri, layout=named)
    if type(layout) is kind:
        require_its_own(layout)
        return
    right = open_store(uri).name
    with pytest.raises(ConfigurationError, match=f"this looks like {right} ") as caught:
        require_its_own(layout)
    assert caught.value.hint == f"Pass --layout {right}."


@pytest.mark.parametrize("named", SIGNS)
def test_a_store_of_pipelines_is_not_taken_for_an_empty_one(uri, named):
    fill(uri, f"orders/{UUID7}/manifest.json", f"clicks/{STREAM}")
    with pytest.raises(ConfigurationError, match="pipelines below") as caught:
        require_its_own(open_store(uri, layout=named))
    assert caught.value.hint == "Say which (--pipeline): clicks, orders."


#: What may stand beside checkpoints before there are any, or after all of them were pruned.
NEW = {
    "nothing": (),
    "records": ("audit/1.json", "pins/a.json", "timelines/timeline-000001.json", f"trash/1/kept/{STREAM}"),
    "other files": ("photo.jpg", "notes/today.txt"),
    "a directory of Spark without offsets": ("commits/0", "metadata"),
}


@pytest.mark.parametrize("named", SIGNS)
@pytest.mark.parametrize("case", NEW)
def test_a_new_store_may_have_any_layout(uri, case, named):
    fill(uri, *NEW[case])
    require_its_own(open_store(uri, layout=named))


@pytest.mark.parametrize("kind", [SidecarLayout, PartitionedLayout, StreamLayout])
def test_an_empty_store_costs_one_listing(tmp_path, kind):
    faulty = FaultyBlobs(LocalBlobs(tmp_path))
    require_its_own(kind(faulty))
    assert dict(faulty.calls) == {"list": 1}


def test_both_of_two_layouts_may_be_named(uri):
    fill(uri, RECOGNISED["sidecar"][0], STREAM)
    for named in ("sidecar", "stream"):
        require_its_own(open_store(uri, layout=named))
    with pytest.raises(ConfigurationError) as caught:
        require_its_own(open_store(uri, layout="partitioned"))
    assert caught.value.hint == "Pass --layout sidecar or --layout stream."
