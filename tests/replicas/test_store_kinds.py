"""A store that is more than one server, or speaks TLS: a cluster, and one that Sentinels fail over.
Real servers of each kind."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit.client import Session
from kit.gateway import GatewayProcess
from kit.loop import run
from kit.messages import text_of
from kit.process import START, Child
from kit.replicas import SERVERS, RedisServer, free_port, program, reaches
from kit.replicas import Replicas as RunningReplicas
from kit.servers import raw_server
from kit.until import until, wait_until
from mcpx.replicas.address import parse
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script, StoreDown
from replicas.test_members import patient

TWO_KEYS = Script("redis.call('SET', KEYS[1], ARGV[1]) return redis.call('INCR', KEYS[2])")


async def use(url: str, meanwhile=None) -> None:
    """Two replicas that find each other, ask, write behind, hear news and have turns."""
    one, other = (patient(Replicas(parse(url), {}, "1")) for _ in range(2))
    try:
        for each in (one, other):
            each.start()
        for each in (one, other):
            await each.joined.wait()
            each.members.update(host="127.0.0.1", port=1)
            each.members.start()
        await until(lambda: other.id in one.members.others and one.id in other.members.others)
        heard: list[bytes] = []
        other.store.hear("news", heard.append)
        if meanwhile is not None:
            meanwhile()
            await until_again(one)
            await until_again(other)
        keys = [one.store.key("a"), one.store.key("b")]
        first = await one.store.run(TWO_KEYS, keys, ["x"])
        assert await other.store.run(TWO_KEYS, keys, ["y"]) == first + 1
        one.store.later("SET", keys[0], "behind")
        one.store.tell("news", b"it is there")
        await until(lambda: heard == [b"it is there"])
        assert await other.store.ask("GET", keys[0]) == b"behind"
        async with one.turns.turn("x", 5) as waited:
            assert not waited
        assert other.seals.owner(one.seals.mint(one.id)) == one.id
    finally:
        await one.close()
        await other.close()


async def until_again(replicas: Replicas) -> None:
    """That it was away has been noticed, and it can be written to."""
    await until(lambda: replicas.store.failures > 0)

    async def writes() -> bool:
        try:
            await replicas.store.ask("SET", replicas.store.key("probe"), "1")
            return True
        except StoreDown:
            return False

    await until(writes)


@contextmanager
def cluster(folder: Path) -> Iterator[list[int]]:
    with ExitStack() as stack:
        ports: list[int] = []
        for number in range(3):
            port = free_port()  # its bus listens 10,000 above it
            own = folder / str(number)
            own.mkdir()
            command = [
                program(*SERVERS),
                "--port",
                str(port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                str(own),
            ]
            stack.enter_context(Child([*command, "--cluster-enabled", "yes"]))
            ports.append(port)
        for port in ports:
            wait_until(lambda port=port: reaches(port), what="a node listens")
        nodes = [f"127.0.0.1:{port}" for port in ports]
        cli = program("valkey-cli", "redis-cli")
        subprocess.run(
            [cli, "--cluster", "create", *nodes, "--cluster-yes"],
            check=True,
            timeout=START,
            stdout=subprocess.DEVNULL,
        )

        def whole() -> bool:
            told = [
                subprocess.run([cli, "-p", str(p), "cluster", "info"], capture_output=True)
                for p in ports
            ]
            return all(b"cluster_state:ok" in each.stdout for each in told)

        wait_until(whole, what="the cluster is whole")
        yield ports


def test_replicas_share_a_cluster(tmp_path: Path) -> None:
    """SCA-1: all keys stand together, so that scripts find them."""
    with cluster(tmp_path) as ports:
        run(use(f"redis+cluster://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"), 30)


def test_a_cluster_that_is_addressed_as_one_server_is_named_with_the_right_scheme(
    tmp_path: Path,
) -> None:
    """SCA-2: only one of three nodes has the keys of mcpx. The others answer MOVED, and the real
    program reports it."""
    with cluster(tmp_path) as ports, ExitStack() as stack:
        gateways = [
            stack.enter_context(
                GatewayProcess({"server": {"store": f"redis://127.0.0.1:{port}", "drain": 0}})
            )
            for port in ports
        ]
        told = [f"redis+cluster://127.0.0.1:{port}" for port in ports]

        def refused() -> list[str]:
            return [
                each.stderr()
                for each, scheme in zip(gateways, told, strict=True)
                if scheme in each.stderr()
            ]

        wait_until(lambda: len(refused()) == 2, what="two nodes are reported")
        assert all("it answered MOVED" in text for text in refused())


WHOLE_RULE = "~{mcpx}* &{mcpx}* +@all -@dangerous -@admin"


@pytest.mark.parametrize(
    "rule",
    [
        "~other* &{mcpx}* +@all",
        "~{mcpx}* resetchannels +@all",
        "~{mcpx}* &{mcpx}* +@all -@scripting",
        "~{mcpx}* &{mcpx}* +@all -publish",
    ],
    ids=["keys", "channels", "scripts", "commands of scripts"],
)
def test_a_user_without_rights_is_reported_with_the_rule_that_it_needs(
    caplog: pytest.LogCaptureFixture, rule: str
) -> None:
    """SCA-2: the error names the user, and the prefix of the keys."""

    async def main(url: str) -> None:
        replicas = patient(Replicas(parse(url), {"MCPX_KEY": "x"}, "1"))
        replicas.start()
        await until(
            lambda: f"Give the user 'app' of the store the ACL rule: {WHOLE_RULE}" in caplog.text
        )
        await replicas.close()

    with RedisServer() as store:
        store.cli("ACL", "SETUSER", "app", "on", ">pw", *rule.split())
        run(main(f"redis://app:pw@127.0.0.1:{store.port}/0"))


def test_replicas_need_no_more_rights_than_the_documented_rule() -> None:
    """SCA-1: sessions, limits, and a takeover, with the real program."""
    config = {
        "mcp_servers": [raw_server("one", limits={"per_minute": 1000, "in_flight": 10})],
        "server": {"drain": 0},
    }
    assert WHOLE_RULE in (Path(__file__).parents[2] / "docs" / "scaling.md").read_text(
        encoding="utf-8"
    )
    with RedisServer() as store:
        store.cli("ACL", "SETUSER", "default", "reset", "on", "nopass", *WHOLE_RULE.split())
        with RunningReplicas(store, config, 2, balanced=False) as replicas:
            session = Session(replicas[0].port)
            for port in (replicas[1].port, replicas[0].port):
                session.port = port
                assert text_of(session.call("one_echo", text="hello")) == "hello"
            replicas[0].process.kill()
            replicas[0].process.wait()
            session.port = replicas[1].port
            assert text_of(session.call("one_echo", text="goes on")) == "goes on"
            assert "refuses" not in replicas[1].stderr() and "ACL" not in replicas[1].stderr()


def test_replicas_follow_a_store_that_sentinels_fail_over(tmp_path: Path) -> None:
    """SCA-2: its first server dies, the second is promoted, and all goes on there."""
    port = free_port()
    own = ("--dir", str(tmp_path))  # where a copy is kept while it is taken over
    with (
        RedisServer(*own) as first,
        RedisServer(*own, "--replicaof", "127.0.0.1", str(first.port)) as second,
    ):
        wait_until(
            lambda: "master_link_status:up" in second.cli("INFO", "replication"),
            what="the second follows",
        )
        file = tmp_path / "sentinel.conf"
        file.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nsentinel monitor team 127.0.0.1 "
            f"{first.port} 1\n"
            "sentinel down-after-milliseconds team 500\nsentinel failover-timeout team 3000\n"
        )
        with Child([program("valkey-sentinel", "redis-sentinel"), str(file)]):
            wait_until(lambda: reaches(port), what="the sentinel listens")
            wait_until(
                lambda: f"port={second.port}" in first.cli("INFO", "replication"),
                what="the first is followed",
            )

            def known() -> bool:
                cli = program("valkey-cli", "redis-cli")
                asked = subprocess.run(
                    [cli, "-p", str(port), "sentinel", "replicas", "team"], capture_output=True
                )
                return str(second.port).encode() in asked.stdout

            wait_until(known, what="the sentinel knows the second")
            run(use(f"redis+sentinel://127.0.0.1:{port}/team", first.kill), 60)


@dataclass(frozen=True)
class Paper:
    """A certificate that nobody else vouches for, and its key; as files."""

    cert: Path
    key: Path

    @classmethod
    def made(cls, folder: Path, name: str, address: str = "127.0.0.1") -> "Paper":
        paper = cls(folder / f"{name}.pem", folder / f"{name}.key")
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
        ]
        command += [
            "-addext",
            f"subjectAltName=IP:{address}",
            "-keyout",
            str(paper.key),
            "-out",
            str(paper.cert),
        ]
        subprocess.run(command, check=True, capture_output=True)
        return paper


class Guarded(RedisServer):
    """One that speaks TLS and nothing else, and wants to see the one certificate that it knows of
    its clients."""

    def __init__(self, own: Paper, client: Paper) -> None:
        super().__init__()
        files = (
            "--tls-cert-file",
            str(own.cert),
            "--tls-key-file",
            str(own.key),
            "--tls-ca-cert-file",
            str(client.cert),
        )
        self._args = ("--port", "0", "--tls-port", str(self.port), *files)

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}/0"


def test_replicas_share_a_store_over_tls_and_show_a_certificate(tmp_path: Path) -> None:
    """SCA-1, SEC-6: also after it went away."""
    own, client = Paper.made(tmp_path, "store"), Paper.made(tmp_path, "replica")
    with Guarded(own, client) as store:

        def restarted() -> None:
            store.kill()
            store.start()

        run(use(f"{store.url}?ca={own.cert}&cert={client.cert}&key={client.key}", restarted), 30)


def test_sentinels_are_asked_over_tls_where_the_store_is(tmp_path: Path) -> None:
    """SCA-1, SEC-6: whoever they name is believed."""
    own, client = Paper.made(tmp_path, "store"), Paper.made(tmp_path, "replica")
    both = tmp_path / "both.pem"
    both.write_bytes(own.cert.read_bytes() + client.cert.read_bytes())
    port = free_port()
    with Guarded(own, client) as store:
        file = tmp_path / "sentinel.conf"
        file.write_text(
            f"port 0\ntls-port {port}\nbind 127.0.0.1\ndir {tmp_path}\ntls-replication "
            f"yes\ntls-ca-cert-file {both}\n"
            f"tls-cert-file {client.cert}\ntls-key-file {client.key}\nsentinel monitor team "
            f"127.0.0.1 {store.port} 1\n"
        )
        with Child([program("valkey-sentinel", "redis-sentinel"), str(file)]):
            wait_until(lambda: reaches(port), what="the sentinel listens")
            where = f"rediss+sentinel://127.0.0.1:{port}/team"
            run(use(f"{where}?ca={both}&cert={client.cert}&key={client.key}"), 30)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("another authority", "certificate verify failed"),
        ("no authority", "certificate verify failed"),
        ("another name", "IP address mismatch"),
        (
            "no certificate",
            "",
        ),  # the store says what it misses, and may hang up before that is read
        ("no such file", "No such file"),
    ],
)
def test_a_store_that_is_not_who_it_should_be_is_told_clearly_and_not_spoken_to(
    tmp_path: Path, wrong: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SCA-2, SEC-6: once, and without what is secret; nothing is used of it."""
    own = Paper.made(tmp_path, "store", "127.0.0.2" if wrong == "another name" else "127.0.0.1")
    client = Paper.made(tmp_path, "replica")
    shown = [] if wrong == "no certificate" else [f"cert={client.cert}", f"key={client.key}"]
    trusted = {
        "another authority": [f"ca={Paper.made(tmp_path, 'other').cert}"],
        "no authority": [],
        "no such file": [f"ca={tmp_path / 'none.pem'}"],
    }.get(wrong, [f"ca={own.cert}"])

    async def main(url: str) -> None:
        replicas = patient(Replicas(parse(url), {}, "1"))
        replicas.start()
        try:
            await until(lambda: "cannot be used" in caplog.text)
            assert told in replicas.store.problem, replicas.store.problem
            assert not replicas.joined.is_set()
        finally:
            await replicas.close()

    with Guarded(own, client) as store:
        run(main(f"{store.url.replace('//', '//:CANARY@')}?{'&'.join(trusted + shown)}"), 30)
    assert "CANARY" not in caplog.text
