"""examples/deploy, without a container engine or a cluster: held against the published schemas,
against each other and against the program; HAProxy reads and runs its file in front of three real
replicas.

Not tried here: what an engine or a cluster makes of the files, and the images that others publish.
"""

import csv
import http.client
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kit.client import post
from kit.http_client import fetch
from kit.messages import initialize_request, modern_headers, modern_request, notification, request
from kit.process import START, Child
from kit.replicas import RedisServer, Replicas, free_port, program, reaches
from kit.servers import raw_server
from kit.until import wait_until
from mcpx.app import ENDING
from mcpx.config import load
from mcpx.front.routes import ROUTES
from mcpx.upkeep import GRACE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
COMPOSE = DEPLOY / "compose"
KUBERNETES = DEPLOY / "kubernetes"
SCRAPE_JOB = "prometheus.yaml"
"""Configuration of Prometheus, not a manifest."""
VARIABLE = re.compile(r"\$\{(\w+)(:[-?][^}]*)?\}")
TOKENS = {
    "MCPX_TEAM_TOKEN": "a-token-of-the-team-in-the-tests",
    "MCPX_PROMETHEUS_TOKEN": "a-token-of-prometheus",
}
GIVEN = {
    **TOKENS,
    "VALKEY_PASSWORD": "0123abcd",
    "MCPX_PUBLIC_HOST": "localhost",
    "MCPX_REPLICA": "mcpx-0",
}

Json = dict[str, Any]


def text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def filled_in(source: str) -> str:
    """As compose does it; what must be given is."""
    return VARIABLE.sub(
        lambda m: m[2][2:] if (m[2] or "").startswith(":-") else GIVEN.get(m[1], "given"), source
    )


@pytest.fixture(scope="module")
def compose() -> Json:
    return yaml.safe_load(filled_in(text(COMPOSE / "compose.yaml")))


@pytest.fixture(scope="module")
def manifests() -> dict[str, Json]:
    """By kind and name."""
    found: dict[str, Json] = {}
    for file in KUBERNETES.glob("*.yaml"):
        for each in yaml.safe_load_all(text(file)):
            if "kind" in each and file.name != "kustomization.yaml":
                found[f"{each['kind']}/{each['metadata']['name']}"] = each
    return found


def replicas_of(compose: Json) -> list[str]:
    return [name for name, service in compose["services"].items() if service["image"] == "mcpx"]


# The schemas
# --------------------------------------------------------------------------------------------------


def judged(compose_file: Path, *manifests: Path) -> subprocess.CompletedProcess[str]:
    uv = ["uv", "run", "--isolated", "--quiet", "--only-group", "deploy", "python"]
    command = [
        *uv,
        str(Path(__file__).with_name("published_schemas.py")),
        str(compose_file),
        *map(str, manifests),
    ]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")
def test_the_files_fit_the_schemas_that_are_published_and_a_mistake_would_be_found(
    tmp_path: Path,
) -> None:
    """SCA-4: no key is misspelt, and none is missing."""
    good = tmp_path / "compose.yaml"
    good.write_text(filled_in(text(COMPOSE / "compose.yaml")), encoding="utf-8")
    names = [
        file
        for file in sorted(KUBERNETES.glob("*.yaml"))
        if file.name not in ("mcpx.yaml", SCRAPE_JOB)
    ]
    done = judged(good, *names)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr

    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(text(good).replace("restart:", "restarts:"), encoding="utf-8")
    bad = tmp_path / "deployment.yaml"
    bad.write_text(
        text(KUBERNETES / "deployment.yaml").replace("periodSeconds", "period"), encoding="utf-8"
    )
    done = judged(wrong, bad)
    assert done.returncode == 1 and len(done.stdout.splitlines()) == 2, done.stdout + done.stderr


# Compose
# --------------------------------------------------------------------------------------------------


def test_compose_names_nothing_that_is_not_there(compose: Json) -> None:
    services: dict[str, Json] = compose["services"]
    assert len(replicas_of(compose)) == 3
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= services.keys(), name
        assert set(service.get("networks", ())) <= compose["networks"].keys(), name
        assert set(service.get("secrets", ())) <= compose["secrets"].keys(), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (
                (COMPOSE / source).exists()
                if source.startswith(".")
                else source in compose["volumes"]
            ), volume
        if "build" in service:
            folder = COMPOSE / service["build"]["context"]
            assert (folder / service["build"]["dockerfile"]).samefile(ROOT / "Containerfile")


def test_every_variable_is_explained_and_every_one_that_is_explained_is_used() -> None:
    told = set(re.findall(r"^(\w+)=", text(COMPOSE / ".env.example"), re.MULTILINE))
    used = {found[1] for found in VARIABLE.finditer(text(COMPOSE / "compose.yaml"))}
    assert told == used | {"MCPX_PROMETHEUS_TOKEN"}
    assert "/examples/deploy/compose/.env" in text(ROOT / ".gitignore").split()


def test_only_the_load_balancer_and_the_pages_are_published_and_secrets_have_no_default(
    compose: Json,
) -> None:
    """SEC-1: replicas, store and Prometheus are reached from inside; nothing listens beyond this
    machine unasked."""
    published = {
        name: service["ports"]
        for name, service in compose["services"].items()
        if "ports" in service
    }
    assert published == {"haproxy": ["127.0.0.1:8000:8000"], "grafana": ["127.0.0.1:3000:3000"]}
    assert compose["networks"]["private"]["internal"] is True
    assert compose["services"]["valkey"]["networks"] == ["private"]
    secret = [
        found
        for found in VARIABLE.finditer(text(COMPOSE / "compose.yaml"))
        if not found[2].startswith(":-")
    ]
    assert {found[1] for found in secret} >= {
        "MCPX_KEY",
        "VALKEY_PASSWORD",
        *TOKENS,
        "GRAFANA_PASSWORD",
    }
    assert all(found[2].startswith(":?") for found in secret)


@pytest.mark.parametrize("folder", [COMPOSE, KUBERNETES], ids=["compose", "kubernetes"])
def test_the_program_takes_the_configuration_as_it_stands(folder: Path) -> None:
    """CFG-1: without a warning; every variable in it is given to the container."""
    config = load(folder / "mcpx.yaml", GIVEN)
    assert config.warnings == ()
    assert config.server.auth is not None and config.server.drain and config.server.trusted_proxies
    assert config.server.store == "redis://:0123abcd@valkey:6379/0"
    named = {found[1] for found in VARIABLE.finditer(text(folder / "mcpx.yaml"))}
    if folder is COMPOSE:
        given = set(re.findall(r"^  (\w+): \$\{", text(COMPOSE / "compose.yaml"), re.MULTILINE))
    else:
        given = set(re.findall(r"- name: ([A-Z_]+)", text(KUBERNETES / "deployment.yaml")))
    assert named <= given and "MCPX_KEY" in given
    check = [sys.executable, "-m", "mcpx", "check", str(folder / "mcpx.yaml")]
    done = subprocess.run(
        check, env={**os.environ, **GIVEN}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and ": good" in done.stdout, done.stdout + done.stderr


def test_a_container_has_longer_to_end_than_a_replica_needs(
    compose: Json, manifests: dict[str, Json]
) -> None:
    """SCA-3."""
    pod = manifests["Deployment/mcpx"]["spec"]["template"]["spec"]
    for folder, seconds in (
        (COMPOSE, int(compose["services"]["mcpx-1"]["stop_grace_period"].removesuffix("s"))),
        (KUBERNETES, pod["terminationGracePeriodSeconds"]),
    ):
        drain = load(folder / "mcpx.yaml", GIVEN).server.drain
        assert drain is not None and seconds >= drain + 2 * GRACE + ENDING + 1


# The load balancer
# ---------------------------------------------------------------------------------------------


def test_haproxy_takes_its_file() -> None:
    """SCA-4."""
    check = [program("haproxy"), "-c", "-f", str(COMPOSE / "haproxy.cfg")]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    warned = [
        line
        for line in done.stderr.splitlines()
        if "WARNING" in line and "could not resolve" not in line
    ]
    assert warned == []  # the names are those of containers


class Deployed(NamedTuple):
    replicas: Replicas
    port: int
    stats: int
    """The port of HAProxy's statistics."""

    def servers_up(self) -> int:
        """The number of replicas that HAProxy sends new requests to."""
        rows = csv.DictReader(fetch(self.stats, "/;csv").text.splitlines())
        return sum(row["svname"].startswith("mcpx-") and row["status"] == "UP" for row in rows)

    def wait_until_complete(self) -> None:
        wait_until(
            lambda: self.servers_up() == len(self.replicas), what="HAProxy uses all replicas"
        )


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Three replicas on the example's configuration, and the port of HAProxy on the example's file;
    addresses, servers, the store and how much a client may call are those of the test."""
    tree = yaml.safe_load(filled_in(text(COMPOSE / "mcpx.yaml")))
    # HAProxy needs two seconds to notice, and more on a busy machine.
    tree["server"] |= {
        "trusted_proxies": ["127.0.0.1"],
        "replica": {},
        "drain": 4,
        "limits": {"in_flight": 50},
    }
    config = {
        **tree,
        "mcp_servers": [raw_server("one")],
        "global": {**tree["global"], "startup_wait": 10, "first_start_wait": 10},
    }
    folder = tmp_path_factory.mktemp("haproxy")
    with RedisServer() as store, Replicas(store, config, 3, balanced=False) as replicas:
        file, port = folder / "haproxy.cfg", free_port()
        written = text(COMPOSE / "haproxy.cfg").replace("bind :8000", f"bind 127.0.0.1:{port}")
        for number, replica in enumerate(replicas, 1):
            written = written.replace(f"mcpx-{number}:8000", f"127.0.0.1:{replica.port}")
        assert ":8000" not in re.sub(r"(?m)#.*$", "", written)
        stats = free_port()
        written += (
            f"\nfrontend stats\n    bind 127.0.0.1:{stats}\n    stats enable\n    stats uri /\n"
        )
        file.write_text(written, encoding="utf-8")
        with Child([program("haproxy"), "-db", "-f", str(file)]) as child:
            wait_until(
                lambda: reaches(port), what=f"haproxy listens: {child.stderr.text}", seconds=START
            )
            yield Deployed(replicas, port, stats)


TEAM = ("Authorization", f"Bearer {TOKENS['MCPX_TEAM_TOKEN']}")
MODERN = "2026-07-28"
CLAIMED = "203.0.113.9"
ENVELOPE: Json = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "deploy", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def called(port: int, text: str, *headers: tuple[str, str]) -> int:
    """The status of a call of the echo; its answer is looked at."""
    params = {"name": "one_echo", "arguments": {"text": text}, "_meta": ENVELOPE}
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    ).encode()
    head = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "one_echo"),
        *headers,
    ]
    reply = fetch(port, "/mcp", "POST", head, body)
    assert reply.status != 200 or text.encode() in reply.body, reply
    return reply.status


def figures(port: int, name: str) -> float:
    """A sum over the labels, as Prometheus would read it of one replica."""
    token = ("Authorization", f"Bearer {TOKENS['MCPX_PROMETHEUS_TOKEN']}")
    reply = fetch(port, "/metrics", "GET", [token])
    assert reply.status == 200, reply
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", reply.body.decode(), re.MULTILINE)
    return sum(map(float, found))


def test_calls_go_to_all_replicas_in_turn_and_strangers_and_figures_stay_outside(
    deployed: Deployed,
) -> None:
    """SCA-1, SEC-1: through the file as it is shipped."""
    replicas, port, _ = deployed
    wait_until(lambda: called(port, "first", TEAM) == 200, what="a call gets through")
    before = [figures(replica.port, "mcpx_calls_total") for replica in replicas]
    assert Counter(called(port, f"call {n}", TEAM) for n in range(30)) == {200: 30}
    after = [figures(replica.port, "mcpx_calls_total") for replica in replicas]
    assert [b - a for a, b in zip(before, after, strict=True)] == [10, 10, 10]
    assert called(port, "nobody") == 401
    assert fetch(port, "/metrics", "GET", [TEAM]).status == 404
    assert fetch(port, "/ready").status == 200
    assert called(port, "rebound", TEAM, ("Host", "evil.example")) == 421


def test_a_client_cannot_say_where_it_comes_from(deployed: Deployed) -> None:
    """SEC-1: what it claims is replaced by what the load balancer saw; a foreign host in a header
    opens nothing."""
    replicas, port, _ = deployed
    wait_until(lambda: called(port, "before", TEAM) == 200, what="a call gets through")
    claims = [
        ("X-Forwarded-For", CLAIMED),
        ("X-Forwarded-Host", "evil.example"),
        ("Forwarded", f"for={CLAIMED}"),
    ]
    assert called(port, "claimed", TEAM, *claims) == 200

    def trails() -> str:
        return "".join(
            text(file)
            for replica in replicas
            for file in (replica.folder / "state").glob("audit/*")
        )

    calls = sum(figures(replica.port, "mcpx_calls_total") for replica in replicas)
    wait_until(lambda: trails().count('"127.0.0.1"') >= calls, what="all calls are written down")
    assert CLAIMED not in trails()


@dataclass
class Load:
    """Threads that call a tool through the load balancer until `stop` is set."""

    port: int
    arguments: Json
    outcomes: list[tuple[int, float, str]] = field(default_factory=list[tuple[int, float, str]])
    """The client of each call, when the call ended, and its HTTP status, JSON-RPC error, or
    exception."""
    stop: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def start(self, clients: int) -> None:
        """Half of the clients have a session, and half are modern clients."""
        for number in range(clients):
            session = opened_session(self.port) if number % 2 else None
            self.threads.append(
                threading.Thread(target=self._run, args=(number, session), daemon=True)
            )
        for thread in self.threads:
            thread.start()

    def _run(self, number: int, session: str | None) -> None:
        while not self.stop.is_set():
            try:
                outcome = str(slept(self.port, self.arguments, session))
            except (OSError, http.client.HTTPException) as error:
                outcome = type(error).__name__
            self.outcomes.append((number, time.monotonic(), outcome))

    def wait(self, seconds: float) -> int:
        """The number of threads whose call has not ended after `seconds`."""
        deadline = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return sum(thread.is_alive() for thread in self.threads)


def opened_session(port: int) -> str:
    found = post(port, initialize_request(), dict([TEAM])).get("mcp-session-id")
    assert found is not None
    assert (
        post(
            port, notification("notifications/initialized"), dict([TEAM, ("Mcp-Session-Id", found)])
        ).status
        == 202
    )
    return found


def slept(port: int, arguments: Json, session: str | None) -> int | str:
    params: Json = {"name": "one_sleep", "arguments": arguments}
    if session is not None:
        reply = post(port, request("tools/call", params), dict([TEAM, ("Mcp-Session-Id", session)]))
    else:
        message = modern_request("tools/call", params)
        reply = post(port, message, dict([*modern_headers(message).items(), TEAM]))
    if reply.status != 200 or "result" in reply.message:
        return reply.status
    return f"error {reply.message['error']['code']}"


def test_a_rolling_restart_cuts_no_call(deployed: Deployed) -> None:
    """SCA-2, SCA-3: through the shipped file, with calls of one second in flight all the time."""
    replicas, port, _ = deployed
    load = Load(port, {"seconds": 1})
    load.start(8)
    for number in range(len(replicas)):
        deployed.wait_until_complete()
        replicas.restart(number)
    load.stop.set()
    assert load.wait(10) == 0
    assert len(load.outcomes) > 50
    assert {outcome for _, _, outcome in load.outcomes} == {"200"}


def test_a_frozen_replica_leaves_no_call_hanging(deployed: Deployed) -> None:
    """SCA-4: HAProxy closes the connections to a replica within 8 seconds after SIGSTOP.

    The sessions of this replica continue on other replicas.
    """
    replicas, port, _ = deployed
    deployed.wait_until_complete()
    load = Load(port, {"seconds": 0.5})
    load.start(12)
    frozen = replicas[1].process
    wait_until(lambda: len(load.outcomes) >= len(load.threads), what="each client has made a call")
    frozen.send_signal(signal.SIGSTOP)
    began = time.monotonic()

    def outcomes_after(seconds: float) -> dict[int, str]:
        """By client."""
        return {
            client: outcome for client, ended, outcome in load.outcomes if ended > began + seconds
        }

    try:
        wait_until(lambda: time.monotonic() > began + 8, what="8 seconds have passed")
        wait_until(lambda: len(outcomes_after(8)) == len(load.threads), 3, "no call hangs")
        assert set(outcomes_after(8).values()) == {"200"}
        assert {outcome for _, ended, outcome in load.outcomes if ended < began} == {"200"}
    finally:
        load.stop.set()
        frozen.send_signal(signal.SIGCONT)
    assert load.wait(10) == 0


# Figures
# --------------------------------------------------------------------------------------------------


def test_prometheus_looks_at_every_replica_and_reads_what_it_is_given(compose: Json) -> None:
    """OBS-1."""
    written = yaml.safe_load(text(COMPOSE / "prometheus.yml"))
    service = compose["services"]["prometheus"]
    mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in service["volumes"]}
    for name in written["rule_files"]:
        rules = yaml.safe_load(text(COMPOSE / mounted[f"/etc/prometheus/{name}"]))
        assert all(
            rule["expr"] and rule["alert"] for group in rules["groups"] for rule in group["rules"]
        )
    (job,) = written["scrape_configs"]
    (targets,) = [each["targets"] for each in job["static_configs"]]
    assert targets == [f"{name}:8000" for name in replicas_of(compose)]
    names = load(COMPOSE / "mcpx.yaml", GIVEN).server.allowed_hosts
    assert {target.partition(":")[0] for target in targets} < set(names)
    assert job["metrics_path"] in ROUTES
    (secret,) = service["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"


def test_dashboards_and_rules_use_only_figures_that_there_are(compose: Json) -> None:
    """OBS-1: those of docs/metrics.md, which is made of the program."""
    known = set(
        re.findall(
            r"^\| `((?:mcpx|process)_\w+)`", text(ROOT / "docs" / "metrics.md"), re.MULTILINE
        )
    )
    dashboard = json.loads(text(COMPOSE / "grafana" / "replicas.json"))
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    texts += [str(each.get("query")) for each in dashboard["templating"]["list"]]
    texts += [
        rule["expr"]
        for group in yaml.safe_load(text(COMPOSE / "alerts.yml"))["groups"]
        for rule in group["rules"]
    ]
    used = {
        name.removesuffix("_bucket")
        for each in texts
        for name in re.findall(r"\b(?:mcpx|process)_\w+", each)
    }
    assert len(used) > 10 and used - known == set()
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert (
        len(set(places))
        == len({panel["id"] for panel in dashboard["panels"]})
        == len(dashboard["panels"])
    )


def test_grafana_finds_its_source_and_its_dashboards(compose: Json) -> None:
    provisioning = COMPOSE / "grafana" / "provisioning"
    (source,) = yaml.safe_load(text(provisioning / "datasources" / "prometheus.yaml"))[
        "datasources"
    ]
    assert (
        source["type"] == "prometheus"
        and source["url"].split("/")[2].split(":")[0] in compose["services"]
    )
    (provider,) = yaml.safe_load(text(provisioning / "dashboards" / "mcpx.yaml"))["providers"]
    mounted = [volume.split(":") for volume in compose["services"]["grafana"]["volumes"]]
    shown = [
        source for source, target, *_ in mounted if target.startswith(provider["options"]["path"])
    ]
    uids = {json.loads(text(COMPOSE / file))["uid"] for file in shown}
    assert len(shown) == len(uids) == 2


# The store
# --------------------------------------------------------------------------------------------------


def test_the_store_takes_its_options(
    compose: Json, manifests: dict[str, Json], tmp_path: Path
) -> None:
    """SCA-2: those of both examples are the same, and a real server starts with them."""
    (container,) = manifests["StatefulSet/valkey"]["spec"]["template"]["spec"]["containers"]
    command = shlex.split(compose["services"]["valkey"]["command"])
    there = shlex.split(
        container["command"][2].replace("$VALKEY_PASSWORD", GIVEN["VALKEY_PASSWORD"])
    )
    assert there == ["exec", *command] and command[0] == "valkey-server"
    with RedisServer(*command[1:], "--dir", str(tmp_path)) as store:
        say = ("-a", GIVEN["VALKEY_PASSWORD"], "--no-auth-warning", "CONFIG", "GET")
        wait_until(
            lambda: "noeviction" in store.cli(*say, "maxmemory-policy").split(),
            what="nothing is evicted",
        )
        assert store.cli("PING").startswith("NOAUTH")


# Kubernetes
# --------------------------------------------------------------------------------------------------


def test_every_manifest_is_applied_and_the_configuration_with_them() -> None:
    kustomization = yaml.safe_load(text(KUBERNETES / "kustomization.yaml"))
    (generated,) = kustomization["configMapGenerator"]
    rest = {file.name for file in KUBERNETES.glob("*")} - {
        "kustomization.yaml",
        SCRAPE_JOB,
        *generated["files"],
    }
    assert set(kustomization["resources"]) == rest
    assert generated["files"] == ["mcpx.yaml"]
    assert [image["name"] for image in kustomization["images"]] == ["mcpx"]


def test_the_parts_on_the_cluster_find_each_other(manifests: dict[str, Json]) -> None:
    pods = {
        name: manifests[name]["spec"]["template"]
        for name in ("Deployment/mcpx", "StatefulSet/valkey")
    }
    labels = {
        pod["metadata"]["labels"]["app.kubernetes.io/name"]: pod["spec"] for pod in pods.values()
    }
    ports = {
        name: {
            port["name"]: port["containerPort"] for c in spec["containers"] for port in c["ports"]
        }
        for name, spec in labels.items()
    }
    for name in ("Service/mcpx", "Service/valkey"):
        spec = manifests[name]["spec"]
        assert spec["ports"][0]["targetPort"] in ports[spec["selector"]["app.kubernetes.io/name"]]
        assert "sessionAffinity" not in spec
    for name in ("Deployment/mcpx", "StatefulSet/valkey", "PodDisruptionBudget/mcpx"):
        chosen = manifests[name]["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"]
        assert chosen == name.partition("/")[2] and chosen in labels
    for name in ("mcpx", "valkey"):
        policy = manifests[f"NetworkPolicy/{name}"]["spec"]
        allowed = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
        assert set(allowed) == set(ports[name])
        private = [rule for rule in policy["ingress"] if rule["ports"][0]["port"] != "http"]
        assert [rule["from"][0]["podSelector"]["matchLabels"] for rule in private] == [
            {"app.kubernetes.io/name": "mcpx"}
        ]
    scaled = manifests["HorizontalPodAutoscaler/mcpx"]["spec"]
    assert f"{scaled['scaleTargetRef']['kind']}/{scaled['scaleTargetRef']['name']}" in manifests
    assert scaled["minReplicas"] == 3 and "replicas" not in manifests["Deployment/mcpx"]["spec"]


def test_a_pod_listens_where_it_is_asked_and_is_given_what_it_mounts(
    manifests: dict[str, Json],
) -> None:
    """SCA-3, SEC-6: probes ask paths that there are, at the port that the image has; secrets come
    by reference."""
    pod = manifests["Deployment/mcpx"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    probes = {
        name: container[name]["httpGet"]
        for name in ("readinessProbe", "livenessProbe", "startupProbe")
    }
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "readinessProbe": "/ready",
        "livenessProbe": "/health",
        "startupProbe": "/health",
    }
    assert {ROUTES[probe["path"]].open for probe in probes.values()} == {True}
    image = text(ROOT / "Containerfile")
    assert f"MCPX_PORT={ports['http']}" in image
    replica = load(KUBERNETES / "mcpx.yaml", GIVEN).server.replica
    assert replica is not None and replica.port == ports["replica"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }
    assert {"/config", "/state", "/cache", "/audit", "/tmp"} == {
        mount["mountPath"] for mount in container["volumeMounts"]
    }
    assert str(pod["securityContext"]["runAsUser"]) in image
    sources = [each["valueFrom"] for each in container["env"]]
    keys = {source["secretKeyRef"]["key"] for source in sources if "secretKeyRef" in source}
    made = set(re.findall(r"--from-literal=([\w-]+)=", text(DEPLOY / "README.md")))
    assert keys == made and not any("value" in each for each in container["env"])


def scrape_target(job: Json, labels: dict[str, str]) -> tuple[str, str] | None:
    """The address and path at which a Prometheus job scrapes a pod with these labels. None if it
    drops the pod."""
    labels = {"__metrics_path__": job.get("metrics_path", "/metrics"), **labels}
    for rule in job["relabel_configs"]:
        value = ";".join(labels.get(name, "") for name in rule["source_labels"])
        matched = re.fullmatch(rule.get("regex", "(.*)"), value)
        if rule.get("action", "replace") == "keep":
            if matched is None:
                return None
        elif matched is not None:
            replacement = re.sub(r"\$(\d)", r"\\\1", rule.get("replacement", "$1"))
            labels[rule["target_label"]] = matched.expand(replacement)
    return labels["__address__"], labels["__metrics_path__"]


def test_the_scrape_job_finds_the_annotated_pods_and_sends_the_token_of_metrics(
    manifests: dict[str, Json], deployed: Deployed
) -> None:
    """OBS-1: an annotation alone does not suffice, because /metrics requires a token."""
    (job,) = yaml.safe_load(text(KUBERNETES / SCRAPE_JOB))["scrape_configs"]
    annotations = manifests["Deployment/mcpx"]["spec"]["template"]["metadata"]["annotations"]
    pod = {"__address__": "10.0.0.7", "__meta_kubernetes_pod_ip": "10.0.0.7"}
    annotated = {
        "__meta_kubernetes_pod_annotation_" + re.sub(r"\W", "_", name): value
        for name, value in annotations.items()
    }
    assert scrape_target(job, pod) is None
    assert scrape_target(job, pod | annotated) == ("10.0.0.7:8000", "/metrics")
    assert not any(
        name.startswith("prometheus.io/") for name in annotations
    )  # Jobs for these send no token.
    assert Path(job["authorization"]["credentials_file"]).name in text(DEPLOY / "README.md")
    assert fetch(deployed.replicas[0].port, "/metrics").status == 401
    assert figures(deployed.replicas[0].port, "mcpx_build_info") == 1
