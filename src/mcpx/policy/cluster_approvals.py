"""Approvals that replicas share (SEC-7, SCA-1): plain keys in the store, changed by scripts.

An approval waits, is shown, and is decided at each replica. The replica that claims it in the store
uses it. The replica that created it reports its expiry. Its text is encrypted. While the store is
away, no approval is used or decided. If the store loses its data, or if the answer to a claim is
lost, the call has to be approved again.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final, cast

from mcpx.base.aio import Tasks
from mcpx.model.call import Json, as_object
from mcpx.model.events import Passage
from mcpx.policy.approvals import (
    MAX_TOKENS_EACH,
    MOST,
    MOST_EACH,
    TOKEN_SECONDS,
    WAITS,
    Approval,
    Approvals,
    ApprovalStore,
    Binding,
    StoreAway,
    decision,
    new_approval,
    too_many,
)
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script, StoreDown, Word
from mcpx.wire import codec

TOPIC: Final = "approvals"
MAX_ID: Final = 64
MAX_USER: Final = 100
INDEX_SECONDS: Final = 1_800
"""Longer than any approval."""

_COMMON: Final = f"""
-- KEYS: approvals by their end, counters of changes, then those of the script.
-- ARGV: prefix of the keys of approvals, then those of the script.
local all, numbers, prefix = KEYS[1], KEYS[2], ARGV[1]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function record(id)
  local found = redis.call('HMGET', prefix .. id, 'state', 'by', 'text')
  if not found[1] then return false end
  return {{id, found[1], found[2], redis.call('PTTL', prefix .. id), found[3]}}
end
local function expire(id, lasts)
  local call, caller = unpack(redis.call('HMGET', prefix .. id, 'call', 'caller'))
  redis.call('PEXPIRE', prefix .. id, lasts)
  redis.call('SET', call, id, 'PX', lasts)
  for _, index in ipairs({{all, caller}}) do
    redis.call('ZADD', index, now + lasts, id)
    redis.call('EXPIRE', index, {INDEX_SECONDS})
  end
  redis.call('HINCRBY', numbers, '{TOPIC}', 1)
end
local function write(id, state, by, text, call, caller, lasts)
  redis.call('HSET', prefix .. id, 'state', state, 'by', by, 'text', text)
  redis.call('HSET', prefix .. id, 'call', call, 'caller', caller)
  expire(id, lasts)
end
"""
_WAIT: Final = Script(
    _COMMON
    + """
local call, caller = KEYS[3], KEYS[4]
local _, id, text, lasts, most, most_each = unpack(ARGV)
local known = redis.call('GET', call)
local found = known and record(known)
if found then return found end
for _, index in ipairs({all, caller}) do redis.call('ZREMRANGEBYSCORE', index, '-inf', now) end
if redis.call('ZCARD', all) >= tonumber(most) or redis.call('ZCARD', caller) >= tonumber(most_each)
    or redis.call('EXISTS', prefix .. id) == 1 then return false end
write(id, 'pending', '', text, call, caller, lasts)
return record(id)
"""
)
_CLAIM: Final = Script(
    _COMMON
    + """
local call, usable = KEYS[3], ARGV[2]
local id = redis.call('GET', call)
local found = id and record(id)
if found and usable == '1' and found[2] == 'approved' then
  local caller = redis.call('HGET', prefix .. id, 'caller')
  for _, index in ipairs({all, caller}) do redis.call('ZREM', index, id) end
  redis.call('DEL', prefix .. id, call)
  redis.call('HINCRBY', numbers, 'approvals', 1)
  found[6] = 1
end
return found
"""
)
_DECIDE: Final = Script(
    _COMMON
    + """
local _, id, state, by, lasts = unpack(ARGV)
if redis.call('HGET', prefix .. id, 'state') ~= 'pending' then return false end
redis.call('HSET', prefix .. id, 'state', state, 'by', by)
expire(id, lasts)
return record(id)
"""
)
_GIVE_BACK: Final = Script(
    _COMMON
    + """
local _, id, text, by, lasts = unpack(ARGV)
if redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
write(id, 'approved', by, text, KEYS[3], KEYS[4], lasts)
return 1
"""
)
_LIST: Final = Script(
    _COMMON
    + """
redis.call('ZREMRANGEBYSCORE', all, '-inf', now)
local known, records = {}, {}
for i = 2, #ARGV do known[ARGV[i]] = true end
for _, id in ipairs(redis.call('ZRANGE', all, 0, -1)) do
  local found = record(id)
  if found then
    if known[id] then found[5] = '' end
    records[#records + 1] = found
  end
end
return records
"""
)
_ADD_TOKEN: Final = Script("""
-- KEYS: tokens of a caller. ARGV: token, milliseconds, most.
local now = tonumber(redis.call('TIME')[1]) * 1000
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 0
""")
_TAKE_TOKEN: Final = Script("""
local expiry = redis.call('ZSCORE', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
if expiry and tonumber(expiry) > redis.call('TIME')[1] * 1000 then return 1 end
return 0
""")


class ClusterApprovalStore(ApprovalStore):
    """`approvals` follows the store, so that figures and events are the same at each replica."""

    def __init__(self, replicas: Replicas, approvals: Approvals) -> None:
        super().__init__(approvals)
        self._replicas = replicas
        self._store = replicas.store
        self._records = _Records(replicas)
        self._tokens = ClusterTokens(self._records)
        self._tasks = Tasks("approvals")
        self._lock = asyncio.Lock()
        """Held from a request until its answer is applied, so that a change by this replica is not
        taken for one of another."""
        self._is_following = False
        self._store.on_return(self._returned)
        replicas.members.watch(TOPIC, lambda _: self._follow_soon())

    async def claim(self, binding: Binding, *, usable: bool) -> Approval | None:
        claiming = self._tasks.start(self._claim(binding, usable), awaited=True, apart=True)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            claiming.add_done_callback(self._give_back_unused)
            raise
        except StoreDown:
            known = self.approvals.of(binding)
            if known is not None and known.state == "approved":
                raise StoreAway("an approval cannot be used") from None
            return known

    async def _claim(self, binding: Binding, usable: bool) -> Approval | None:
        async with self._lock:
            found = await self._records.run(_CLAIM, [self._records.call_key(binding)], int(usable))
            if found is None:
                return None
            approval = self._apply(found)
            if approval is not None and len(found) > 5:
                self.approvals.drop(approval, "used")
                self._store.tell("numbers")
            return approval

    def _give_back_unused(self, claiming: "asyncio.Task[Approval | None]") -> None:
        """The call was cancelled before the store had answered."""
        if claiming.cancelled() or claiming.exception() is not None:
            return
        approval = claiming.result()
        if approval is not None and self.approvals.find(approval.id) is None:
            self._tasks.start(self._give_back(approval), apart=True)

    async def give_back(self, approval: Approval) -> None:
        # Continues if the call that waits for it is cancelled.
        await asyncio.wait([self._tasks.start(self._give_back(approval), apart=True)])

    async def _give_back(self, approval: Approval) -> None:
        left = int((approval.ends - self.approvals.clock()) * 1000)
        if left <= 0:
            return
        keys = [
            self._records.call_key(approval.binding),
            self._records.caller_key("approval-callers", approval.principal),
        ]
        words = [approval.id, self._records.encrypt(approval), approval.by, left]
        try:
            async with self._lock:
                if await self._records.run(_GIVE_BACK, keys, *words):
                    self.approvals.give_back(approval)
                    self._store.tell("numbers")
        except StoreDown:
            pass  # The call has to be approved again.

    async def wait_for(
        self, passage: Passage, binding: Binding, arguments: object, rule: str, reason: str
    ) -> Approval:
        approval = new_approval(passage, binding, arguments, rule, reason)
        keys = [
            self._records.call_key(binding),
            self._records.caller_key("approval-callers", approval.principal),
        ]
        words = [approval.id, self._records.encrypt(approval), int(WAITS * 1000), MOST, MOST_EACH]
        try:
            async with self._lock:
                found = await self._records.run(_WAIT, keys, *words)
                if found is None:
                    raise too_many()
                waiting = self._apply(found, elsewhere=found[0].decode() != approval.id)
        except StoreDown:
            waiting = self.approvals.of(binding)
        if waiting is None:
            raise StoreAway("the call cannot wait for approval")
        self._store.tell("numbers")
        return waiting

    async def decide(self, id: str, *, allow: bool, by: str) -> Approval | None:
        if not 0 < len(id) <= MAX_ID:
            return None
        state, seconds = decision(allow)
        words = [id.encode(errors="replace"), state, by[:MAX_USER].encode(errors="replace")]
        try:
            async with self._lock:
                found = await self._records.run(_DECIDE, [], *words, int(seconds * 1000))
                if found is None:
                    self._follow_soon()
                    return None
                self._store.tell("numbers")
                return self._apply(found, elsewhere=False)
        except StoreDown:
            raise StoreAway("nothing can be decided") from None

    async def pending(self) -> list[Approval]:
        """While the store is away, those that this replica knows."""
        try:
            await self._follow()
        except StoreDown:
            pass
        return sorted(self.approvals.pending(), key=lambda approval: approval.asked_at)

    async def close(self) -> None:
        await self._tasks.close()

    # Following the store

    async def _returned(self, fresh: bool) -> None:
        await self._replicas.joined.wait()
        await self._follow()

    def _follow_soon(self) -> None:
        if not self._is_following and not self._tasks.closed:
            self._is_following = True
            self._tasks.start(self._follow_now(), apart=True)

    async def _follow_now(self) -> None:
        try:
            await self._follow()
        except StoreDown:
            pass  # `_returned` follows.
        finally:
            self._is_following = False

    async def _follow(self) -> None:
        async with self._lock:
            self._is_following = False  # A later change needs another look.
            gone = {approval.id: approval for approval in self.approvals.all()}
            for found in cast(list[list[Any]], await self._records.run(_LIST, [], *gone)):
                self._apply(found)
                gone.pop(found[0].decode(errors="replace"), None)
            for approval in gone.values():  # They would not have expired yet.
                self.approvals.drop(approval, "used", elsewhere=True)

    def _apply(self, found: list[Any], *, elsewhere: bool = True) -> Approval | None:
        """Apply one record of the store. Return None if it cannot be decrypted."""
        id, state, by = (word.decode(errors="replace") for word in found[:3])
        left = found[3] / 1000
        approval = self.approvals.find(id)
        is_new = approval is None
        if approval is None:
            approval = self._records.decrypt(id, found[4])
        if approval is None:
            return None
        if state != approval.state:
            approval.expires_at = time.time() + left
        approval.by, approval.ends = by, self.approvals.clock() + left
        if is_new:
            approval.state, approval.elsewhere = state, elsewhere
            self.approvals.add(approval, elsewhere=elsewhere)
        else:
            self.approvals.set_state(approval, state, elsewhere=elsewhere)
        return approval


class _Records:
    """Approvals in the store: names of keys, encryption, and scripts."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._store = replicas.store
        self._seals = replicas.seals

    def encrypt(self, approval: Approval) -> bytes:
        fields = {**approval.told(), "binding": approval.binding.hex()}
        return self._seals.encrypt(codec.dump(fields), f"approval{approval.id}".encode())

    def decrypt(self, id: str, text: bytes) -> Approval | None:
        plain = self._seals.decrypt(text, f"approval{id}".encode())
        if plain is None:
            return None
        fields: Json = as_object(codec.load(plain))
        binding = bytes.fromhex(fields.pop("binding"))
        return Approval(**fields, binding=binding)

    def call_key(self, binding: Binding) -> str:
        return self._store.key("call", self._seals.name(b"approved call", binding))

    def caller_key(self, kind: str, principal: str) -> str:
        name = self._seals.name(b"caller", principal.encode(errors="surrogatepass"))
        return self._store.key(kind, name)

    async def run(self, script: Script, keys: Sequence[str], *words: Word) -> Any:
        common = [self._store.key("approval-ends"), self._store.key("numbers")]
        prefix = self._store.key("approval", "")
        return await self.run_plain(script, [*common, *keys], prefix, *words)

    async def run_plain(self, script: Script, keys: Sequence[str], *words: Word) -> Any:
        if not self._replicas.joined.is_set():
            raise StoreDown(self._store.problem)
        return await self._store.run(script, keys, words)


class ClusterTokens:
    def __init__(self, records: _Records) -> None:
        self._records = records

    async def add(self, caller: str, token: bytes) -> None:
        keys, milliseconds = [self._key(caller)], int(TOKEN_SECONDS * 1000)
        try:
            await self._records.run_plain(_ADD_TOKEN, keys, token, milliseconds, MAX_TOKENS_EACH)
        except StoreDown:
            raise StoreAway("no question can be asked") from None

    async def take(self, caller: str, token: bytes) -> bool:
        try:
            return bool(await self._records.run_plain(_TAKE_TOKEN, [self._key(caller)], token))
        except StoreDown:
            raise StoreAway("an answer cannot be taken") from None

    def _key(self, caller: str) -> str:
        return self._records.caller_key("questions", caller)
