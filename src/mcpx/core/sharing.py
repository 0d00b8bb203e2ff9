"""The configuration that replicas have in common, as it is kept in their store, and how they are
asked for a new one.

Promised: one revision at a time, each with a number above all before it; of two that put one at the
same time one learns that it was too late; whoever watches is told of a new one also if the store
goes away in the same moment. What is kept and sent is encrypted: files may hold secrets. It stays
in the store without an end, for replicas may start from it (`--config store:`): one configuration,
and the etags of the last `MOST` revisions.

Not done here: what is done about a revision (`joint`).
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Final, cast

from mcpx.base.aio import Tasks
from mcpx.config import Config
from mcpx.config.problems import Told
from mcpx.config.written import etag_of
from mcpx.core.history import MOST, Revision, Via
from mcpx.model.call import Json, as_list, as_object
from mcpx.replicas.members import Member
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script, StoreDown
from mcpx.wire import codec

log = logging.getLogger(__name__)

ANSWERED: Final = 2.0
"""Seconds the other replicas have to say whether they would take a configuration."""
LOOK: Final = 0.2
"""Seconds between looks for answers, should news of them be missed."""
KEPT: Final = 10.0
"""Seconds a question and its answers stay in the store."""
TURN: Final = 8.0
"""Seconds after which a change that is not agreed upon does not keep others from theirs: its
replica has died of it, most likely. If it has not, one of the two is told that it is late."""
TOPIC, ASKED, ANSWERS = "config", "config.asked", "config.answers"


@dataclass(frozen=True, slots=True)
class Shared:
    """One revision of the configuration of all replicas."""

    number: int
    etag: str
    texts: Mapping[str, str] = field(repr=False)
    """By the names of the files, in the configuration's folder."""
    by: str = ""
    plan: str = ""
    via: Via = "api"
    author: str = ""
    message: str = ""
    first: bool = False
    """What a replica started with, put there because there was nothing: nobody has agreed to it."""

    @property
    def made(self) -> Revision:
        """For the history of a replica that takes it up."""
        return Revision(self.number, "", self.by, self.plan, self.via, self.author, self.message)


def _answer_of(id: str, who: str) -> str:
    """The place of a replica's answer to a question."""
    return f"{ANSWERS} {id} {who}"


def etag_of_texts(texts: Mapping[str, str]) -> str:
    """That of the files, wherever they lie; a mark of their encoding does not count."""
    return etag_of({name: text.encode(errors="surrogatepass") for name, text in texts.items()})


def switched_off(config: Config) -> dict[str, str]:
    """What is switched off for want of a variable, and why."""
    entries = (*config.mcp_servers, *config.commands)
    return {entry.name: entry.switched_off for entry in entries if entry.switched_off is not None}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a replica would not take a configuration."""

    replica: str
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    told: tuple[Told, ...]
    """Why not; nothing: it would."""
    number: int
    """Of its own latest revision: the new one stands above it."""


Judge = Callable[[Mapping[str, str], frozenset[str]], Awaitable[Verdict]]
"""Whether texts would be taken; with the names of the entries that whoever asks has to do
without."""

_PUT = Script(
    """
if (redis.call('HGET', KEYS[1], 'number') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'number', ARGV[2], 'etag', ARGV[3], 'sealed', ARGV[4])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[3])
for at = 6, #ARGV, 2 do redis.call('ZADD', KEYS[2], 'NX', ARGV[at], ARGV[at + 1]) end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - ARGV[5])
redis.call('HINCRBY', KEYS[3], 'config', 1)
return 1
"""
)
_ANSWER = Script(
    "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) return redis.call('PEXPIRE', KEYS[1], ARGV[3])"
)


class Sharing:
    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._store = replicas.store
        self._tasks = Tasks("the configuration of all replicas")
        self._answered = asyncio.Event()
        self._asked = asyncio.Event()
        self._store.hear(ANSWERS, lambda _: self._answered.set())

    # What is kept
    # ----------------------------------------------------------------------------------------------

    async def head(self) -> tuple[int, str] | None:
        """Number and etag of the newest. Raises `StoreDown`."""
        number, etag = await self._store.ask("HMGET", self._store.key(TOPIC), "number", "etag")
        return None if number is None or etag is None else (int(number), etag.decode())

    async def read(self) -> Shared | None:
        """The newest; None: there is none, or none that this key opens. Raises `StoreDown`."""
        sealed: bytes | None = await self._store.ask("HGET", self._store.key(TOPIC), "sealed")
        about = None if sealed is None else self._opened(sealed, TOPIC)
        if about is None:
            return None
        texts = {str(name): str(text) for name, text in as_object(about.get("texts")).items()}
        words = {key: str(about.get(key, "")) for key in ("by", "plan", "author", "message")}
        via = cast(Via, about.get("via", "api"))
        first = bool(about.get("first"))
        return Shared(
            int(about.get("number", 0)),
            str(about.get("etag")),
            texts,
            via=via,
            first=first,
            **words,
        )

    async def put(
        self, shared: Shared, instead_of: int | None, past: Iterable[tuple[int, str]] = ()
    ) -> bool:
        """Make it that of all; False: the newest is another than `instead_of` (None: there is one).
        `past`: numbers and etags of revisions that came before, should the store have forgotten
        them. Raises `StoreDown`; it may be done then, and is found out as that of another replica
        would be."""
        store = self._store
        keys = [store.key(TOPIC), store.key(TOPIC, "etags"), store.key("numbers")]
        before = [word for number, etag in past for word in (number, etag)]
        expected = "" if instead_of is None else instead_of
        words = [
            expected,
            shared.number,
            shared.etag,
            self._sealed(asdict(shared), TOPIC),
            MOST,
            *before,
        ]
        done = bool(await store.run(_PUT, keys, words))
        if done:
            store.tell("numbers")
        return done

    async def was(self, etag: str) -> bool:
        """Whether a revision of the past had it. Raises `StoreDown`."""
        return await self._store.ask("ZSCORE", self._store.key(TOPIC, "etags"), etag) is not None

    def _sealed(self, about: Json, where: str) -> bytes:
        """`where`: the place in the store. The value is not accepted at another place."""
        return self._replicas.seals.encrypt(codec.dump(about), where.encode())

    def _opened(self, sealed: bytes, where: str) -> Json | None:
        plain = self._replicas.seals.decrypt(sealed, where.encode())
        return None if plain is None else as_object(codec.load(plain))

    # Asking
    # ----------------------------------------------------------------------------------------------

    async def ask(
        self, texts: Mapping[str, str], off: frozenset[str] = frozenset()
    ) -> tuple[list[Refusal], int]:
        """Every other replica that has a configuration: who would not take these texts, and the
        highest number of any of them. One that says nothing refuses, unless it is gone meanwhile.
        Raises `StoreDown`."""
        store, members = self._store, self._replicas.members
        await members.look()
        asked = {
            id: member
            for id, member in members.others.items()
            if member.etag and member.state == "serving"
        }
        if not asked:
            return [], 0
        id = secrets.token_hex(8)
        about: Json = {"id": id, "by": self._replicas.id, "texts": dict(texts), "off": sorted(off)}
        question = self._sealed(about, ASKED)
        await store.ask("SET", store.key(ASKED), question, "PX", int(KEPT * 1000))
        members.changed(ASKED)
        verdicts = await self._verdicts(id, asked)
        refusals = [
            Refusal(asked[who].name, verdict.told)
            for who, verdict in verdicts.items()
            if verdict.told
        ]
        silent = [asked[who].name for who in asked if who not in verdicts and who in members.others]
        no_answer = Told(
            f"it did not answer within {ANSWERED:g} s", "try again; if it hangs, end it"
        )
        refusals += [Refusal(name, (no_answer,)) for name in silent]
        return refusals, max((verdict.number for verdict in verdicts.values()), default=0)

    async def _verdicts(self, id: str, asked: Mapping[str, Member]) -> dict[str, Verdict]:
        deadline = monotonic() + ANSWERED
        while True:
            self._answered.clear()
            found = await self._store.ask("HGETALL", self._store.key(ANSWERS, id))
            raw = cast(list[bytes] | dict[bytes, bytes], found)
            pairs = (
                list(raw.items())
                if isinstance(raw, dict)
                else list(zip(raw[::2], raw[1::2], strict=True))
            )
            verdicts = {
                who.decode(): self._verdict(answer, id, who.decode()) for who, answer in pairs
            }
            missing = [
                who for who in asked if who not in verdicts and who in self._replicas.members.others
            ]
            if not missing or (left := deadline - monotonic()) <= 0:
                return verdicts
            try:
                async with asyncio.timeout(min(LOOK, left)):
                    await self._answered.wait()
            except TimeoutError:
                pass

    def _verdict(self, sealed: bytes, id: str, who: str) -> Verdict:
        about = self._opened(sealed, _answer_of(id, who))
        if about is None:
            return Verdict((Told("its answer cannot be read: it has another MCPX_KEY"),), 0)
        told = tuple(Told(**as_object(each)) for each in as_list(about.get("told")))
        return Verdict(told, int(about.get("number", 0)))

    # Answering
    # ----------------------------------------------------------------------------------------------

    def answer(self, judge: Judge) -> None:
        """From now on whoever asks is answered."""
        self._replicas.members.watch(ASKED, lambda _: self._asked.set())
        self._tasks.start(self._answer_on(judge))

    async def _answer_on(self, judge: Judge) -> None:
        last = ""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                sealed: bytes | None = await self._store.ask("GET", self._store.key(ASKED))
                about = None if sealed is None else self._opened(sealed, ASKED)
                if about is None or about["id"] == last or about["by"] == self._replicas.id:
                    continue
                last = str(about["id"])
                await self._answer(last, about, judge)
            except StoreDown:
                continue  # whoever asked hears nothing, and has the same trouble

    async def _answer(self, id: str, about: Json, judge: Judge) -> None:
        texts = {str(name): str(text) for name, text in as_object(about.get("texts")).items()}
        try:
            verdict = await judge(texts, frozenset(map(str, as_list(about.get("off")))))
        except Exception:
            log.exception("whether a configuration could be taken up was not found out")
            verdict = Verdict((Told("it could not judge it; its log says more"),), 0)
        store = self._store
        told = [asdict(each) for each in verdict.told]
        answer = self._sealed(
            {"told": told, "number": verdict.number}, _answer_of(id, self._replicas.id)
        )
        await store.run(
            _ANSWER, [store.key(ANSWERS, id)], [self._replicas.id, answer, int(KEPT * 1000)]
        )
        store.tell(ANSWERS)

    async def close(self) -> None:
        await self._tasks.close()
