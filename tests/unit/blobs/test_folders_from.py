"""Folders from a name on, on S3 servers of many kinds: where the short cut does not work, the answer is the same."""

from __future__ import annotations

import threading
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import pytest

from airflow_provider_checkpoint.blobs import open_blobs

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS = [f"{number:04}" for number in range(0, 2600, 2)]
#: One folder holds more than a page, the others one object each; and an object lies between the folders.
KEYS = [
    "0001",
    *(f"{name}/manifest.json" for name in FOLDERS),
    *(f"1000/operators/{number:04}.snap" for number in range(2500)),
    "1000/operators/\u00fc\U0001f600.snap",
    "trash/1000/entry.json",
]
STARTS = ["0000", "0999", "2598", "trash", "zzzz"]


class Kind(Enum):
    ORDINARY = "as S3 does it"
    SHORT_PAGES = "pages shorter than they may be, as S3 sends them too"
    DEAF = "lists from the beginning wherever it is told to start"
    REFUSING = "does not know start-after"
    UNSORTED = "as a directory bucket does it"


class Bucket(BaseHTTPRequestHandler):
    """Answers listings of one bucket, and nothing else."""

    kind: Kind
    listings: int
    endpoint: str

    def do_GET(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        type(self).listings += 1
        if self.kind is Kind.REFUSING and "start-after" in asked:
            self._answer(400, "<Error><Code>InvalidArgument</Code><Message>start-after</Message></Error>")
            return
        self._answer(200, _listing(asked, self.kind))

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _listing(asked: dict[str, str], kind: Kind) -> str:
    prefix = asked.get("prefix", "")
    keys = [key.removeprefix(prefix) for key in sorted(KEYS) if key.startswith(prefix)]
    if "delimiter" in asked:
        keys = sorted({key.partition("/")[0] + "/" for key in keys if "/" in key})
    elif kind is not Kind.DEAF:
        keys = [key for key in keys if prefix + key > asked.get("start-after", "")]
    if kind is Kind.UNSORTED:
        keys = keys[::-1]
    begin = int(asked.get("continuation-token", 0))
    end = begin + (300 if kind is Kind.SHORT_PAGES else 1000)
    more = end < len(keys)
    token = f"<NextContinuationToken>{end}</NextContinuationToken>" if more else ""
    shown = "".join(
        f"<CommonPrefixes><Prefix>{escape(prefix + key)}</Prefix></CommonPrefixes>"
        if "delimiter" in asked
        else f"<Contents><Key>{escape(prefix + key)}</Key><LastModified>2026-11-15T12:00:00.000Z</LastModified>"
        f"<ETag>&quot;1&quot;</ETag><Size>1</Size></Contents>"
        for key in keys[begin:end]
    )
    truncated = "true" if more else "false"
    return f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{token}{shown}</ListBucketResult>"


@pytest.fixture(params=Kind)
def bucket(request: pytest.FixtureRequest) -> Iterator[type[Bucket]]:
    made = type("OneBucket", (Bucket,), {"kind": request.param, "listings": 0})
    server = ThreadingHTTPServer(("127.0.0.1", 0), made)
    made.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("start", STARTS)
def test_the_folders_from_a_name_on_are_all_found_in_order(bucket, start):
    options = {"endpoint_url": bucket.endpoint, "region": "us-east-1", "anonymous": True, "max_retries": 0}
    found = list(open_blobs("s3://checkpoints", options).folders(start=start))
    assert found == [name for name in [*FOLDERS, "trash"] if name >= start]
    assert bucket.listings <= 12
