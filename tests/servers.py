"""Real storage servers on loopback: SeaweedFS (S3), rclone (S3 without conditions) and Azurite (Azure).

A server is started when the first test asks for it and shared by all processes of the test run. Each runs under a
keeper, a small process that ends the server when the run asks for it, and also when the run itself was killed.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import hmac
import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from dataclasses import asdict, dataclass
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REPOSITORY = Path(__file__).resolve().parent.parent
AZURITE = REPOSITORY / ".tools" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
BUCKET = "checkpoints"
START_SECONDS = 90


class ServerError(RuntimeError):
    """A server could not be started; the text says what is missing or what it wrote last."""


@dataclass(frozen=True, slots=True)
class S3Server:
    endpoint: str
    bucket: str = BUCKET

    def options(self, identity: str = "admin", **more: Any) -> dict[str, Any]:
        """Storage options for one of the identities ``admin``, ``writer``, ``reader`` and ``partial``."""
        keys = {"endpoint_url": self.endpoint, "region": "us-east-1", "access_key_id": identity}
        return {**keys, "secret_access_key": f"{identity}-secret", **more}

    def fresh(self) -> str:
        """The address of a part of the bucket that no other test uses."""
        return f"s3://{self.bucket}/{uuid4().hex}"

    def client(self, identity: str = "admin") -> Any:
        """A boto3 client, for what the store under test does not do: buckets and unfinished uploads."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=identity,
            aws_secret_access_key=f"{identity}-secret",
            config=Config(
                retries={"max_attempts": 1}, connect_timeout=2, read_timeout=10, s3={"addressing_style": "path"}
            ),
        )


@dataclass(frozen=True, slots=True)
class AzureServer:
    endpoint: str
    container: str = BUCKET

    # Azurite's account and key are fixed and published in its manual.
    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def options(self, **more: Any) -> dict[str, Any]:
        keys = {"endpoint_url": self.endpoint, "account_name": self.account, "account_key": self.key}
        return {**keys, **more}

    def fresh(self) -> str:
        return f"az://{self.container}/{uuid4().hex}"

    def create_container(self) -> None:
        """Make the container by a request signed by hand: no client at hand can."""
        host, _, account = self.endpoint.removeprefix("http://").partition("/")
        date = formatdate(usegmt=True)
        version = "2021-12-02"
        resource = f"/{account}/{account}/{self.container}\nrestype:container"
        # Twelve standard headers, all empty here, then the x-ms ones and the resource.
        text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n{resource}"
        digest = hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {account}:{base64.b64encode(digest).decode()}",
            "Content-Length": "0",
        }
        connection = http.client.HTTPConnection(host, timeout=10)
        with contextlib.closing(connection):
            connection.request("PUT", f"/{account}/{self.container}?restype=container", headers=headers)
            answer = connection.getresponse()
            answer.read()
        if answer.status not in (201, 409):
            raise ConnectionError(f"Azurite answered {answer.status} to the creation of a container")


class Servers:
    """The servers of one test run. Every process of the run that names the same folder shares them."""

    def __init__(self, folder: Path, owner: int) -> None:
        self._folder = folder
        self._owner = owner

    def seaweedfs(self) -> S3Server:
        return S3Server(**self._shared("seaweedfs", self._start_seaweedfs))

    def rclone(self) -> S3Server:
        return S3Server(**self._shared("rclone", self._start_rclone))

    def azurite(self) -> AzureServer:
        return AzureServer(**self._shared("azurite", self._start_azurite))

    def stop(self) -> None:
        """End every server and remove what they stored."""
        for home in self._folder.glob("*/"):
            (home / "stop").touch()
        deadline = time.monotonic() + 20
        while any(self._folder.glob("*/running")) and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _shared(self, name: str, start: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What describes a running server; the first to ask starts it while the others wait."""
        described = self._folder / f"{name}.json"
        with open(self._folder / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not described.exists():
                described.write_text(json.dumps(start()))
        found: dict[str, Any] = json.loads(described.read_text())
        return found

    # -- the three servers ---------------------------------------------------------------------------------------

    def _start_seaweedfs(self) -> dict[str, Any]:
        identities = {"admin": ["Admin", "Read", "Write", "List", "Tagging"], "writer": ["Read", "Write", "List"]}
        identities["reader"] = [f"Read:{BUCKET}", f"List:{BUCKET}"]
        # May write in some folders only, so that one request can hold both what is allowed and what is not.
        identities["partial"] = [*identities["reader"], f"Write:{BUCKET}/open/*"]
        config = {
            "identities": [
                {"name": name, "credentials": [{"accessKey": name, "secretKey": f"{name}-secret"}], "actions": actions}
                for name, actions in identities.items()
            ]
        }

        def command(home: Path, ports: Sequence[int]) -> list[str]:
            (home / "s3.json").write_text(json.dumps(config))
            master, volume, filer, s3 = ports
            # It leaves sockets under fixed names; whoever ends it removes them.
            sockets = zip(("master", "volume", "filer", "s3"), ports, strict=True)
            (home / "litter").write_text("\n".join(f"/tmp/seaweedfs-{n}-grpc-{p + 10_000}.sock" for n, p in sockets))
            return [
                _tool("weed"),
                "server",
                f"-dir={home}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                f"-master.port={master}",
                f"-volume.port={volume}",
                "-filer",
                f"-filer.port={filer}",
                f"-filer.localSocket={home}/filer.sock",
                "-s3",
                f"-s3.port={s3}",
                f"-s3.localSocket={home}/s3.sock",
                f"-s3.config={home}/s3.json",
                # Two further services that would listen on fixed ports.
                "-s3.port.iceberg=0",
                "-s3.port.lance=0",
                # A missing bucket is an error on S3; only this server would make it.
                "-s3.autoCreateBucket=false",
                "-master.telemetry=false",
                "-master.volumeSizeLimitMB=64",
                "-volume.max=50",
            ]

        def ready(ports: Sequence[int]) -> S3Server:
            server = S3Server(f"http://127.0.0.1:{ports[3]}")
            with contextlib.closing(server.client()) as client:
                with contextlib.suppress(client.exceptions.BucketAlreadyExists):
                    client.create_bucket(Bucket=BUCKET)
                # The gateway is up before there is a volume to write to.
                client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
            return server

        return asdict(self._start("seaweedfs", 4, command, ready))

    def _start_rclone(self) -> dict[str, Any]:
        def command(home: Path, ports: Sequence[int]) -> list[str]:
            (home / "data" / BUCKET).mkdir(parents=True)
            address = f"127.0.0.1:{ports[0]}"
            keys = "admin,admin-secret"
            return [
                _tool("rclone"),
                "serve",
                "s3",
                "--config=",
                f"--addr={address}",
                f"--auth-key={keys}",
                f"{home}/data",
            ]

        def ready(ports: Sequence[int]) -> S3Server:
            server = S3Server(f"http://127.0.0.1:{ports[0]}")
            with contextlib.closing(server.client()) as client:
                client.head_bucket(Bucket=BUCKET)
            return server

        return asdict(self._start("rclone", 1, command, ready))

    def _start_azurite(self) -> dict[str, Any]:
        node = shutil.which("node")
        if node is None or not AZURITE.exists():
            raise ServerError(
                f"Azurite is needed and {'node is not installed' if node is None else f'{AZURITE} is missing'}: "
                "run ./dev test, which fetches both into .tools"
            )

        def command(home: Path, ports: Sequence[int]) -> list[str]:
            address = ["--blobHost", "127.0.0.1", "--blobPort", str(ports[0])]
            quiet = ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
            return [str(node), str(AZURITE), *address, "--location", f"{home}/data", *quiet]

        def ready(ports: Sequence[int]) -> AzureServer:
            server = AzureServer(f"http://127.0.0.1:{ports[0]}/{AzureServer.account}")
            server.create_container()
            return server

        return asdict(self._start("azurite", 1, command, ready))

    # -- starting ------------------------------------------------------------------------------------------------

    def _start(
        self,
        name: str,
        count: int,
        command: Callable[[Path, Sequence[int]], list[str]],
        ready: Callable[[Sequence[int]], Any],
    ) -> Any:
        """Start on free ports and wait for the first good answer. A port can be lost to another program: try again."""
        log = ""
        for attempt in range(3):
            home = self._folder / f"{name}-{attempt}"
            home.mkdir()
            ports = _free_ports(count)
            keeper = [sys.executable, __file__, str(self._owner), str(home), *command(home, ports)]
            subprocess.run(
                keeper,
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=30,
            )
            answer = _wait_until_ready(home, lambda ports=ports: ready(ports))
            if answer is not None:
                return answer
            (home / "stop").touch()
            log = (home / "log").read_text(errors="replace")[-2000:]
        raise ServerError(f"{name} did not start; it wrote last:\n{log}")


def _wait_until_ready(home: Path, ready: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and (home / "running").exists():
        try:
            return ready()
        except Exception:  # noqa: BLE001 - whatever a client raises while the server is coming up
            time.sleep(0.1)
    return None


def _tool(name: str) -> str:
    path = Path(sysconfig.get_path("scripts")) / name
    if not path.exists():
        raise ServerError(f"{name} is missing from the environment: it comes with the 'dev' extra")
    return str(path)


def _free_ports(count: int) -> list[int]:
    """Ports that are free, and free 10,000 higher as well, where SeaweedFS puts its second listener."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        if port not in found and _is_free(port) and _is_free(port + 10_000):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


# -- the keeper: this file run as a program ----------------------------------------------------------------------


def keep(owner: int, home: Path, command: Sequence[str]) -> None:
    """Run a server until someone asks for its end or the test run is gone, then remove what it stored."""
    with open(home / "log", "wb") as log:
        # SeaweedFS writes logs into the temporary folder.
        environment = {**os.environ, "TMPDIR": str(home)}
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=home, env=environment)
    while server.poll() is None and _alive(owner) and not (home / "stop").exists():
        time.sleep(0.1)
    # No grace: nothing of it is kept, and SeaweedFS takes half a minute to stop by itself.
    server.kill()
    server.wait()
    if (home / "litter").exists():
        for path in (home / "litter").read_text().splitlines():
            Path(path).unlink(missing_ok=True)
    (home / "running").unlink(missing_ok=True)
    if not _alive(owner):
        shutil.rmtree(home, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    owner, home, command = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    (home / "running").touch()
    # The caller waits for this process only; the keeper itself is its orphan.
    if os.fork() == 0:
        os.setsid()
        keep(owner, home, command)


if __name__ == "__main__":
    main()
