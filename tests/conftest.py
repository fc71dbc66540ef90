"""Real S3 servers on loopback, and a proxy before one that fails as networks and stores do."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import shutil
import socket
import subprocess
import sysconfig
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest

BUCKET = "bucket"


@attrs.frozen
class Store:
    """An S3 server with one bucket.

    Attributes:
        keys: identity (`owner`, who may read and write, or `reader`) to access key and secret.
    """

    endpoint: str
    keys: dict[str, tuple[str, str]]

    def options(self, identity: str = "owner", endpoint: str | None = None) -> dict[str, Any]:
        """fsspec options."""
        key, secret = self.keys[identity]
        return {"key": key, "secret": secret, "client_kwargs": {"endpoint_url": endpoint or self.endpoint}}

    def ambient(self, identity: str = "owner", endpoint: str | None = None) -> dict[str, str]:
        """Environment variables that every S3 client reads."""
        key, secret = self.keys[identity]
        return {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def files(self) -> Any:
        """The bucket's file system, opened by its owner, remembering nothing."""
        s3fs = pytest.importorskip("s3fs")
        return s3fs.S3FileSystem(**self.options(), use_listings_cache=False)

    def contents(self, under: str = "") -> dict[str, bytes]:
        """Path to content of everything in the bucket, or below a folder of it."""
        files = self.files()
        found = files.find(f"{BUCKET}/{under}".rstrip("/"), detail=True)
        return {path: files.cat_file(path) for path, info in found.items() if info["type"] == "file"}


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    """Two servers with different identities."""
    weed = shutil.which("weed", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    if weed is None:
        pytest.skip("no SeaweedFS server; requirements-dev.txt installs one")
    with contextlib.ExitStack() as stack:
        started = [_start(stack, weed, tmp_path_factory.mktemp("store"), name) for name in ("data", "cache")]
        yield started[0](), started[1]()


def _start(stack: contextlib.ExitStack, weed: str, folder: Path, name: str) -> Callable[[], Store]:
    """Start a server; the result waits until it serves."""
    keys = {who: (f"KEY{name}{who}".upper(), f"secret-of-the-{name}-{who}") for who in ("admin", "owner", "reader")}
    rights = {"admin": ["Admin"], "owner": ["Read", "Write", "List"], "reader": ["Read", "List"]}
    identities = [
        {"name": who, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": rights[who]}
        for who, (key, secret) in keys.items()
    ]
    (folder / "identities.json").write_text(json.dumps({"identities": identities}))
    roles = ("master", "volume", "filer", "s3")
    ports = dict(zip(itertools.product(roles, ("port", "port.grpc")), _free_ports(8), strict=True))
    log = stack.enter_context((folder / "log").open("wb"))
    (folder / "files").mkdir()
    command = [weed, "server", f"-dir={folder / 'files'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"]
    command += [f"-{role}.{kind}={port}" for (role, kind), port in ports.items()]
    command += [f"-s3.config={folder / 'identities.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false"]
    command += ["-master.volumeSizeLimitMB=64", "-volume.max=20", "-master.telemetry=false"]
    process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    stack.callback(process.wait)
    stack.callback(process.kill)
    endpoint = f"http://127.0.0.1:{ports['s3', 'port']}"

    def ready() -> Store:
        s3fs = pytest.importorskip("s3fs")
        options = Store(endpoint, keys).options("admin")
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{endpoint}/healthz", timeout=1).close()
                # The server answers before it can allocate a volume.
                admin = s3fs.S3FileSystem(**options)
                if not admin.exists(BUCKET):
                    admin.mkdir(BUCKET)
                admin.pipe_file(f"{BUCKET}/first", b"")
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"SeaweedFS did not start: {(folder / 'log').read_text()[-2000:]}")
                time.sleep(0.1)
        del keys["admin"]
        return Store(endpoint, keys)

    return ready


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


class Proxy:
    """Passes HTTP requests on, unless told otherwise.

    Attributes:
        fault: asked before each request, with its method and path; what to do to it: "" to pass it on, "503" to refuse
            it, "drop" to close the connection unanswered, "cut" to close it half through the answer.
        faults: what was done, in order.
    """

    def __init__(self, target: str) -> None:
        self.fault: Callable[[str, str], str]
        self.faults: list[str] = []
        self._target = urlsplit(target).netloc
        self._port = 0
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, on the same port as before."""
        proxy = self

        class Handler(_Handler):
            def serve(self) -> None:
                proxy.serve(self)

        self.fault = lambda method, path: ""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """As when the server dies: no connection is taken any more, and none that is open is answered."""
        self.fault = lambda method, path: "drop"
        self._server.shutdown()
        self._server.server_close()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        fault = self.fault(request.command, request.path)
        if fault:
            self.faults.append(fault)
        if fault == "drop":
            _hang_up(request)
            return
        if fault == "503":
            _answer(
                request, 503, [("Content-Type", "application/xml")], b"<Error><Code>ServiceUnavailable</Code></Error>"
            )
            return
        upstream = http.client.HTTPConnection(self._target, timeout=30)
        try:
            headers = {key: value for key, value in request.headers.items() if key.lower() != "expect"}
            upstream.request(request.command, request.path, body, headers)
            response = upstream.getresponse()
            content = response.read()
            _answer(request, response.status, response.getheaders(), content, cut=fault == "cut")
        finally:
            upstream.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def serve(self) -> None: ...

    def log_message(self, format: str, *args: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.serve
        raise AttributeError(name)


def _answer(
    request: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False
) -> None:
    request.send_response(status)
    length = str(len(content))
    for key, value in headers:
        if key.lower() == "content-length":
            length = value
        elif key.lower() not in ("transfer-encoding", "connection"):
            request.send_header(key, value)
    request.send_header("Content-Length", length)
    request.end_headers()
    request.wfile.write(content[: len(content) // 2] if cut else content)
    if cut:
        _hang_up(request)


def _hang_up(request: BaseHTTPRequestHandler) -> None:
    request.close_connection = True
    with contextlib.suppress(OSError):
        request.connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(stores: tuple[Store, Store]) -> Iterator[Proxy]:
    """A proxy before the first store."""
    proxy = Proxy(stores[0].endpoint)
    yield proxy
    proxy.stop()
