"""Users and HTTPS, as an operator sets them up on the command line."""

import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from headrace.registry.http.access import hash_password
from headrace.testing import LocalBroker
from headrace.testing.registry_process import RegistryProcess

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl"),
]


def certificate(directory: Path) -> tuple[Path, Path]:
    made, key = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made, key


def test_users_and_https_together_and_followers_forward_who_asked(tmp_path: Path) -> None:
    made, key = certificate(tmp_path)
    users = tmp_path / "users"
    users.write_text(
        f"# who may do what\n"
        f"root:{hash_password('secret')} admin\n"
        f"reader:{hash_password('open')} read=orders-\n"
    )
    options = ["--certificate", str(made), "--key", str(key), "--authority", str(made)]
    options += ["--users", str(users)]
    trusted = ssl.create_default_context(cafile=str(made))
    schema = {"schema": '"int"'}
    first_dir, second_dir = tmp_path / "first", tmp_path / "second"
    for directory in (first_dir, second_dir):
        directory.mkdir()
    with (
        LocalBroker() as broker,
        RegistryProcess(broker.bootstrap, first_dir, *options) as first,
        httpx.Client(verify=trusted, timeout=60) as client,
    ):
        root, reader = ("root", "secret"), ("reader", "open")
        path = "/subjects/orders-a/versions"
        url = f"https://{first.address}"
        assert client.post(url + path, json=schema).status_code == 401
        assert client.post(url + path, json=schema, auth=reader).status_code == 403
        assert client.post(url + path, json=schema, auth=root).json()["id"] == 1
        for _ in range(2):
            assert client.get(f"{url}/schemas/ids/1", auth=reader).status_code == 200
            assert client.get(f"{url}/schemas/ids/1").status_code == 401
        with RegistryProcess(broker.bootstrap, second_dir, *options) as second:
            url = f"https://{second.address}"
            answer = client.post(url + path, json={"schema": '"long"'}, auth=root)
            assert answer.json()["id"] == 2
            assert client.post(url + path, json=schema, auth=reader).status_code == 403


def test_a_users_file_that_is_not_understood_refuses_the_start(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("root:plain-text-password admin\n")
    with LocalBroker() as broker:
        command = [sys.executable, "-m", "headrace", "registry", "--bootstrap", broker.bootstrap]
        command += ["--listen", "127.0.0.1:0", "--users", str(users)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "NAME:HASH ROLE" in ended.stderr


def test_a_registry_without_a_broker_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace", "registry", "--bootstrap", "127.0.0.1:1"]
    command += ["--listen", "127.0.0.1:0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "no Kafka broker answers at 127.0.0.1:1" in ended.stderr
