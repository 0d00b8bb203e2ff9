"""What is kept about calls that people decide about, over all replicas: in their store, where each
step is one script.

Promised: a call that waits is told of and decided at every replica, and its approval lets through
one call, wherever it is made: whoever claims it in the store has it, and nobody else. The bounds
count over all. What each replica knows of it (`approvals`) follows the store, so that its pages,
figures and events do.

While the store is away nothing is let through by what is kept there, and nothing is decided; what
is known is told on, and a call that begins to wait is written when the store is back. A store that
has lost everything is given what waits and what was refused anew. An approval that was not used by
then waits to be decided again, since nobody can tell whether another replica has used it; and what
is known to have been used is never written.

A call whose claim was not answered is not made; the claim is taken back when the store is there
again, so that no approval is lost because the store fell silent, unless its claimant dies before
that.

No promise: of a store that fails over to a copy that has not heard the last writes. What it forgot
of those is told to it by whoever did it as soon as that one is back there, and until then it can be
done again.
"""

import asyncio
import logging
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from mcpx.base.aio import Tasks
from mcpx.model.events import Passage
from mcpx.policy.approvals import (
    GRANTED,
    MOST,
    MOST_EACH,
    REFUSED,
    WAITS,
    Approval,
    Approvals,
    Binding,
    too_many,
)
from mcpx.policy.book import Away
from mcpx.policy.seals import PREFIX, digest
from mcpx.policy.shared_open import SharedOpen
from mcpx.policy.shared_records import (
    ANEW,
    CLAIM,
    DECIDE,
    GIVE_BACK,
    LOOK,
    MOST_USED,
    REMEMBERED,
    TOPIC,
    UNCLAIM,
    USED,
    WAIT,
    Record,
    Sealing,
    State,
    by_line,
    keys_in,
    letter,
)
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script, StoreDown, Word

log = logging.getLogger(__name__)

LOOKS: Final = 20
"""Looks at the store after which it is not tried again to know all: each brings some, and others
write meanwhile."""
SETTLING: Final = 0.05
"""Seconds between looks whether this replica has the key of all, after the store was away."""
LONGEST_ID: Final = 64
MOST_IN_DOUBT: Final = 4_096
"""Claims whose answer was not heard: more than can be on their way to a store that falls silent
(`replicas.store`)."""
_ASK: Final = b"ask"
_NONCE: Final = 16


@dataclass(frozen=True, slots=True)
class _Use:
    """That an approval was used."""

    until: float
    """So long it is remembered."""
    number: int
    """Of its uses: those before were given back."""
    claim: str
    """By which it was used, if here."""


class SharedBook:
    def __init__(self, replicas: Replicas, approvals: Approvals) -> None:
        self._replicas = replicas
        self._store = replicas.store
        self._approvals = approvals
        self._sealing = Sealing(replicas.seals)
        self._keys = keys_in(replicas.store)
        self._asked = SharedOpen(replicas, "asked")
        self._going = SharedOpen(replicas, "going")
        self._tasks = Tasks("approvals")
        self._lock = asyncio.Lock()
        """Held by whoever makes what is known here the same as what is there."""
        self._number = 0
        """That of the latest change that is known here: whoever tells of an earlier one tells
        nothing new."""
        self._epoch: bytes | None = None
        """Tells a store from one that has lost everything; None: nothing was found there yet."""
        self._unwritten: set[str] = set()
        """What waits, and may not stand in the store."""
        self._used: dict[str, _Use] = {}
        """By id, the oldest first."""
        self._tell_used = False
        """Whether the store may not know of them."""
        self._owed: dict[str, tuple[Approval, str]] = {}
        """What is to be given back, with the claim that used it."""
        self._in_doubt: dict[str, None] = {}
        """Claims that may have used something, or may yet; their calls were certainly not made. The
        oldest first."""
        self._unreadable: set[str] = set()
        """Ids of what was written by another key."""
        self._at_work: Counter[str] = Counter()
        """Ids about which this replica is asking the store for something: what becomes of them its
        answer tells, so that it is told on as done here. A look may overtake it."""
        self._passed_over: set[str] = set()
        """Of those, which a look told of."""
        self._looking = False
        replicas.store.on_return(self._returned)
        replicas.members.watch(TOPIC, lambda _: self._look_soon())

    async def close(self) -> None:
        await self._tasks.close()

    # Deciding
    # ----------------------------------------------------------------------------------------------

    async def claim(self, binding: Binding, *, usable: bool) -> Approval | None:
        """As of a `Book`."""
        known = self._approvals.of(binding)
        if known is None:
            return await self._claim(binding, usable)
        with self._working_on(known.id):
            return await self._claim(binding, usable)

    async def _claim(self, binding: Binding, usable: bool) -> Approval | None:
        claim = secrets.token_hex(8)
        doubtful = usable and self._store.up  # else it is certainly not sent
        asked = self._run(CLAIM, self._sealing.call(binding), claim, int(usable))
        try:
            answer = await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(partial(self._claimed_for_nobody, claim, doubtful))
            raise
        except StoreDown:
            if doubtful:
                self._doubt(claim)
            known = self._approvals.of(binding)
            if known is None or known.state != "approved":
                return known
            raise Away("what was approved cannot be used") from None
        return self._claimed(answer, claim, binding)

    def _doubt(self, claim: str) -> None:
        """Nobody will hear what it has got."""
        if len(self._in_doubt) < MOST_IN_DOUBT:
            self._in_doubt[claim] = None
        if self._store.up:  # it was away, and is back already
            self._look_soon()

    def _claimed(
        self, answer: list[Any], claim: str, binding: Binding | None = None
    ) -> Approval | None:
        now = self._heard(answer)
        if len(answer) == 2:
            if binding is not None and self._approvals.of(binding) is not None:
                self._look_soon()  # it was used, or has ended, and nobody told yet
            return None
        approval = self._note(Record.read(answer[2:6], now))
        if approval is not None and answer[6]:
            self._remember(approval.id, int(answer[6]), claim)
            self._approvals.use(approval)
        if answer[6]:
            self._store.tell("numbers")
        return approval

    def _claimed_for_nobody(self, claim: str, doubtful: bool, asked: "asyncio.Future[Any]") -> None:
        """Whoever claimed it was cancelled before the store had answered."""
        if asked.cancelled() or asked.exception() is not None or self._tasks.closed:
            if doubtful and not self._tasks.closed:
                self._doubt(claim)
            return
        answer = asked.result()
        approval = self._claimed(answer, claim)
        if approval is not None and answer[6]:
            self._tasks.start(self.give_back(approval), apart=True)

    async def give_back(self, approval: Approval) -> None:
        """As of a `Book`; it is done even if whoever waits for it is cancelled."""
        use = self._used.pop(approval.id, None)
        if use is None or not use.claim:
            return  # so much was used since that it is not known any more by which claim it was
        self._owed[approval.id] = (approval, use.claim)
        if len(self._owed) > MOST:
            del self._owed[next(iter(self._owed))]
        await asyncio.wait([self._tasks.start(self._pay_now(approval, use.claim), apart=True)])

    async def _pay_now(self, approval: Approval, claim: str) -> None:
        try:
            await self._pay(approval, claim)
        except StoreDown:
            pass  # when it is back

    async def _pay(self, approval: Approval, claim: str) -> None:
        left = self._left(approval)
        facts, text = self._sealing.facts(approval, "approved"), self._sealing.text(approval)
        answer = await self._run(GIVE_BACK, approval.id, claim, facts, text, left)
        if self._owed.get(approval.id) == (approval, claim):
            del self._owed[approval.id]
        self._heard(answer)
        if answer[2]:
            if (
                other := self._approvals.of(approval.binding)
            ) is not None and other.id != approval.id:
                self._approvals.drop(other, "expired", elsewhere=other.elsewhere)
            self._approvals.give_back(approval)
            self._store.tell("numbers")

    async def wait_for(
        self, passage: Passage, binding: Binding, arguments: object, rule: str, reason: str
    ) -> Approval:
        """As of a `Book`."""
        known = self._approvals.of(binding)
        if known is None or known.state != "pending":
            known = None
        made = known or self._approvals.made(passage, binding, arguments, rule, reason)
        while True:
            words = [
                made.id,
                self._sealing.facts(made),
                self._sealing.text(made),
                int(WAITS * 1000),
            ]
            with self._working_on(made.id):
                try:
                    answer = await self._run(WAIT, *words, MOST, MOST_EACH)
                except StoreDown:
                    return self._waits_unwritten(self._approvals.of(binding) or made)
                now = self._heard(answer)
                if answer[2] == b"full":
                    raise too_many()
                if answer[2] != b"taken":
                    return self._waits(Record.read(answer[2:6], now), made)
            made = self._approvals.made(passage, binding, arguments, rule, reason)

    def _waits(self, record: Record, made: Approval) -> Approval:
        if record.id == made.id and self._approvals.find(made.id) is None:
            self._approvals.add(made)
        self._unwritten.discard(record.id)
        if record.id == made.id:
            self._store.tell("numbers")
        return self._note(record) or made

    def _waits_unwritten(self, approval: Approval) -> Approval:
        if self._approvals.find(approval.id) is None:
            all = self._approvals.all()
            if (
                len(all) >= MOST
                or sum(each.principal == approval.principal for each in all) >= MOST_EACH
            ):
                raise too_many()
            self._approvals.add(approval)
            self._unwritten.add(approval.id)
        return approval

    async def decide(self, id: str, *, allow: bool, by: str) -> Approval | None:
        """As of a `Book`. Raises `Away`, and whether it was decided is not known then: whoever
        looks again sees it."""
        if not 0 < len(id) <= LONGEST_ID:
            return None
        state: State = "approved" if allow else "denied"
        lasts = int((GRANTED if allow else REFUSED) * 1000)
        try:
            if self._unwritten:
                await self._follow()
            with self._working_on(id):
                answer = await self._run(
                    DECIDE, id.encode(errors="replace"), letter(state), by_line(by), lasts
                )
                now = self._heard(answer)
                if len(answer) == 2:
                    self._look_soon()
                    return None
                self._store.tell("numbers")
                return self._note(Record.read(answer[2:6], now), elsewhere=False)
        except StoreDown:
            raise Away("nothing can be decided") from None

    async def pending(self) -> list[Approval]:
        """As of a `Book`; those that are known here, while the store is away."""
        try:
            await self._follow()
        except StoreDown:
            pass
        return sorted(self._approvals.pending(), key=lambda approval: approval.asked_at)

    # What a modern client comes back with
    # ------------------------------------------------------------------------

    async def seal(self, whose: str, binding: Binding) -> str:
        """As of a `Book`."""
        nonce = secrets.token_bytes(_NONCE)
        try:
            await self._asked.add(whose, nonce.hex())
        except StoreDown:
            raise Away("nobody can be asked") from None
        return f"{PREFIX}{urlsafe_b64encode(nonce).decode()}.{self._replicas.seals.sign(_ASK, nonce + binding)}"

    async def redeem(self, whose: str, state: str, binding: Binding) -> bool:
        """As of a `Book`."""
        given, _, signature = state.removeprefix(PREFIX).partition(".")
        try:
            nonce = urlsafe_b64decode(given.encode())
        except ValueError:
            return False
        if not self._replicas.seals.signed(_ASK, nonce + binding, signature):
            return False
        try:
            return await self._asked.take(whose, nonce.hex())
        except StoreDown:
            raise Away("an answer cannot be taken") from None

    async def goes_on(self, whose: str, binding: Binding, state: object) -> None:
        """As of a `Book`. What cannot be written is asked about again."""
        try:
            await self._going.add(whose, digest(binding, state))
        except StoreDown:
            pass

    async def is_going_on(self, whose: str, binding: Binding, state: object) -> bool:
        """As of a `Book`."""
        try:
            return await self._going.take(whose, digest(binding, state))
        except StoreDown:
            raise Away("whether this call goes on cannot be told") from None

    # Following the store
    # -----------------------------------------------------------------------------------------

    @contextmanager
    def _working_on(self, id: str) -> Generator[None]:
        self._at_work[id] += 1
        try:
            yield
        finally:
            self._at_work[id] -= 1
            if not self._at_work[id]:
                del self._at_work[id]
                if id in self._passed_over:
                    self._passed_over.discard(id)
                    self._look_soon()

    def _is_passed_over(self, id: str) -> bool:
        if id in self._at_work:
            self._passed_over.add(id)
        return id in self._at_work

    def _look_soon(self) -> None:
        if not self._looking and not self._tasks.closed:
            self._looking = True
            self._tasks.start(self._look_now(), apart=True)

    async def _look_now(self) -> None:
        try:
            async with self._lock:
                self._looking = False  # what changes from here on needs another look
                await self._follow_alone()
        except StoreDown:
            pass  # it is looked at when it is back

    async def _returned(self, fresh: bool) -> None:
        await self._replicas.joined.wait()
        key = self._store.key("fingerprint")
        for _ in range(
            LOOKS
        ):  # what is written by a key that others do not have yet cannot be read by them
            if await self._store.ask("GET", key) == self._replicas.seals.fingerprint.encode():
                break
            await asyncio.sleep(SETTLING)
        self._unreadable.clear()
        self._tell_used = True
        await self._follow()

    async def _follow(self) -> None:
        """Write what is not there, then know what is. Raises `StoreDown`."""
        async with self._lock:
            await self._follow_alone()

    async def _follow_alone(self) -> None:
        for _ in range(LOOKS):
            await self._write()
            known = {*(approval.id for approval in self._approvals.all()), *self._unreadable}
            number = self._number
            answer = await self._run(LOOK, *known)
            if self._is_lost(answer, number):
                continue
            if answer[1] >= self._number and self._take_up(
                answer, known
            ):  # else it was overtaken, or is not all
                return

    def _is_lost(self, answer: list[Any], number: int) -> bool:
        """Whether the store has forgotten what was in it since it was last asked; then it is
        written anew."""
        epoch = bytes(answer[2])
        lost = answer[1] < number or (self._epoch is not None and epoch != self._epoch)
        self._epoch = epoch
        if lost:
            self._number = int(answer[1])
            self._tell_used = True
            self._unwritten.update(approval.id for approval in self._approvals.all())
        return lost

    async def _write(self) -> None:
        """What this replica knows and the store may not."""
        now = self._approvals.clock()
        for id in [id for id, use in self._used.items() if use.until <= now]:
            del self._used[id]
        if self._tell_used and self._used:
            self._heard(
                await self._run(
                    USED, *(word for id, use in self._used.items() for word in (id, use.number))
                )
            )
        self._tell_used = False
        for approval, claim in list(self._owed.values()):
            await self._pay(approval, claim)
        if self._in_doubt:
            claims = list(self._in_doubt)
            self._heard(await self._run(UNCLAIM, *claims))
            for claim in claims:
                del self._in_doubt[claim]
            self._store.tell("numbers")
        ids = set(self._unwritten)
        again = [approval for id in ids if (approval := self._approvals.find(id)) is not None]
        if again:
            for answer in await asyncio.gather(*map(self._written_anew, again)):
                self._heard(answer)
            self._store.tell("numbers")
        self._unwritten -= ids

    def _written_anew(self, approval: Approval) -> "asyncio.Future[Any]":
        """An approval that may have been used elsewhere is to be decided again."""
        state: State = "denied" if approval.state == "denied" else "pending"
        facts, text = self._sealing.facts(approval, state), self._sealing.text(approval)
        return self._run(ANEW, approval.id, facts, text, self._left(approval), MOST)

    def _take_up(self, answer: list[Any], known: set[str]) -> bool:
        """Whether all of it is known now."""
        now = self._heard(answer)
        records: list[Record] = []
        for raw in cast(list[list[Any]], answer[3]):
            record = Record.read(raw, now)
            records.append(record)
            if (use := self._used.get(record.id)) is not None and use.number < raw[4]:
                del self._used[record.id]  # it was given back
        used = {
            bytes(id).decode(errors="replace"): int(number)
            for id, number in cast(list[list[Any]], answer[4])
        }
        there = {record.id for record in records}
        whole = True
        for record in records:
            if self._is_passed_over(record.id):
                continue
            if record.text or self._approvals.find(record.id) is not None:
                self._note(record)
            elif record.id not in self._unreadable:
                whole = False
        for id, number in used.items():
            self._remember(id, number)
        for approval in self._approvals.all():
            id = approval.id
            if (
                id in known
                and id not in there
                and id not in self._unwritten
                and not self._is_passed_over(id)
            ):
                is_used = id in used
                self._approvals.drop(
                    approval,
                    "used" if is_used else "expired",
                    elsewhere=is_used or approval.elsewhere,
                )
        self._unreadable &= there
        return whole

    def _note(self, record: Record, *, elsewhere: bool = True) -> Approval | None:
        """One of which a script told, as it stands. None: it cannot be read here."""
        ends = self._approvals.clock() + record.left
        known = self._approvals.find(record.id)
        if known is not None:
            self._approvals.settle(
                known, record.state, record.by, record.expires_at, ends, elsewhere=elsewhere
            )
            return known
        approval = self._sealing.approval(record, ends)
        if approval is None:
            if record.id not in self._unreadable:
                log.warning(
                    "a call that waits for approval (%s) was written by a replica with another key",
                    record.id,
                )
            self._unreadable.add(record.id)
            return None
        approval.elsewhere = True
        self._approvals.add(approval, elsewhere=elsewhere)
        return approval

    def _remember(self, id: str, number: int, claim: str = "") -> None:
        known = self._used.get(id)
        if claim or known is None or known.number < number:
            self._used[id] = _Use(self._approvals.clock() + REMEMBERED, number, claim)
        if len(self._used) > MOST_USED:
            del self._used[next(iter(self._used))]

    def _left(self, approval: Approval) -> int:
        """Milliseconds."""
        return int((approval.ends - self._approvals.clock()) * 1000)

    def _heard(self, answer: Sequence[Any]) -> int:
        """The store's time, in milliseconds."""
        if answer[1] < self._number:
            self._look_soon()  # it was overtaken, and what it tells may be so no more
        self._number = max(self._number, int(answer[1]))
        return int(answer[0])

    def _run(self, script: Script, *words: Word) -> "asyncio.Future[Any]":
        if not self._replicas.joined.is_set():
            down: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            down.set_exception(StoreDown(self._store.problem))
            return down
        return self._store.run(script, self._keys, words)
