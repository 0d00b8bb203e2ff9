"""Approvals as they lie in the store of replicas, and the scripts that work on them there.

Of each approval there is a line of facts in a hash (a signature that stands for its call, one that
stands for its caller, a letter for its state, who decided) and a text that only replicas can read:
what people are shown. One sorted set says when each ends, by the store's clock; what has ended is
swept out by whichever script comes next, and everything together ends by itself should none come.
An id that was used is remembered for longer than anybody could bring it back to life. Uses are
numbered, for one that was given back counts no more, though replicas may have heard of it. Of the
latest uses the record stays, for whoever claimed one and was not answered: such a claim can be
taken back though nobody knows what it has got, and is void, should it arrive after all. Every
change makes the number `approvals` grow in the same script, so that no replica misses it.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

from mcpx.model.call import as_object
from mcpx.policy.approvals import GRANTED, MOST, WAITS, Approval
from mcpx.replicas.seals import Seals
from mcpx.replicas.store import Script, Store
from mcpx.wire import codec

TOPIC: Final = "approvals"
REMEMBERED: Final = 2 * (WAITS + GRANTED)
"""Seconds an id that was used is remembered, and after which nothing is left of any of it."""
MOST_USED: Final = 4_096
"""Ids that were used, of which that is remembered."""
AT_A_TIME: Final = 64
"""Texts that are told in one answer."""
LONGEST_BY: Final = 100
_SIGNATURE: Final = 43
_WHERE: Final = b"approval"

State = Literal["pending", "approved", "denied"]
_LETTERS: Final[dict[State, str]] = {"pending": "p", "approved": "a", "denied": "d"}
_STATES: Final[dict[str, State]] = {letter: state for state, letter in _LETTERS.items()}
_TEXT: Final = (
    "principal",
    "profile",
    "server",
    "tool",
    "method",
    "arguments",
    "rule",
    "reason",
    "asked_at",
)

# Every script answers with the store's time in milliseconds and the number `approvals`, then what
# it is about. Of one approval that is its id, its facts, when it ends, its text.
_COMMON: Final = f"""
local ends, facts, calls, texts, used, claims, spent, backs, void, numbers, epoch = unpack(KEYS)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local LASTS, MOST_USED, MOST = {int(REMEMBERED * 1000)}, {MOST_USED}, {MOST}
local function call_of(fact) return string.sub(fact, 1, {_SIGNATURE}) end
local function caller_of(fact) return string.sub(fact, {_SIGNATURE + 1}, {2 * _SIGNATURE}) end
local function state_of(fact) return string.sub(fact, {2 * _SIGNATURE + 1}, {2 * _SIGNATURE + 1}) end
local function drop(id)
  local fact = redis.call('HGET', facts, id)
  if fact and redis.call('HGET', calls, call_of(fact)) == id then redis.call('HDEL', calls, call_of(fact)) end
  redis.call('HDEL', facts, id)
  redis.call('HDEL', texts, id)
  redis.call('ZREM', ends, id)
end
local function put(id, fact, text, until_then)
  redis.call('HSET', facts, id, fact)
  redis.call('HSET', texts, id, text)
  redis.call('HSET', calls, call_of(fact), id)
  redis.call('ZADD', ends, until_then, id)
end
local function use_of(id) return tonumber(redis.call('HGET', backs, id) or '0') + 1 end
local function unspend(id)
  redis.call('ZREM', used, id)
  redis.call('HDEL', claims, id)
  redis.call('HDEL', spent, id)
end
local function forget(id)
  unspend(id)
  redis.call('HDEL', backs, id)
end
local function spend(id, claim)
  redis.call('ZADD', used, now + LASTS, id)
  redis.call('HSET', claims, id, claim)
  while redis.call('ZCARD', used) > MOST_USED do forget(redis.call('ZRANGE', used, 0, 0)[1]) end
end
local function take_back(id, fact, text, until_then)
  local other = redis.call('HGET', calls, call_of(fact))
  if until_then <= now or (other and state_of(redis.call('HGET', facts, other)) ~= 'p') then return false end
  if other then drop(other) end
  unspend(id)
  redis.call('HINCRBY', backs, id, 1)
  put(id, fact, text, until_then)
  return true
end
local function annul(claim)
  redis.call('ZADD', void, now + LASTS, claim)
  redis.call('ZREMRANGEBYRANK', void, 0, -1 - MOST_USED)
  redis.call('PEXPIRE', void, LASTS)
end
local function changed()
  for key = 1, 9 do redis.call('PEXPIRE', KEYS[key], LASTS) end
  return redis.call('HINCRBY', numbers, '{TOPIC}', 1)
end
local function number() return tonumber(redis.call('HGET', numbers, '{TOPIC}') or '0') end
local function told(id)
  return redis.call('HGET', facts, id), redis.call('ZSCORE', ends, id), redis.call('HGET', texts, id)
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now)) do
  drop(id)
  redis.call('HDEL', backs, id)
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', used, '-inf', now)) do forget(id) end
redis.call('ZREMRANGEBYSCORE', void, '-inf', now)
"""

WAIT: Final = Script(
    _COMMON
    + """
local id, fact, text, lasts, most, most_each = unpack(ARGV)
local known = redis.call('HGET', calls, call_of(fact))
if known then return {now, number(), known, told(known)} end
if redis.call('HEXISTS', facts, id) == 1 or redis.call('ZSCORE', used, id) then return {now, number(), 'taken'} end
local waiting, own = redis.call('HVALS', facts), 0
for _, other in ipairs(waiting) do if caller_of(other) == caller_of(fact) then own = own + 1 end end
if #waiting >= tonumber(most) or own >= tonumber(most_each) then return {now, number(), 'full'} end
put(id, fact, text, now + lasts)
return {now, changed(), id, told(id)}
"""
)
"""A call waits: the one it waits under; or `taken`, by another call, or `full`."""

CLAIM: Final = Script(
    _COMMON
    + """
local call, claim, usable = unpack(ARGV)
local id = redis.call('HGET', calls, call)
if not id then return {now, number()} end
local fact, until_then, text = told(id)
if usable == '1' and state_of(fact) == 'a' and not redis.call('ZSCORE', void, claim) then
  drop(id)
  spend(id, claim)
  redis.call('HSET', spent, id, string.format('%013d%05d', until_then, #fact) .. fact .. text)
  local older = redis.call('ZCARD', used) - MOST - 1
  if older >= 0 then redis.call('HDEL', spent, redis.call('ZRANGE', used, older, older)[1]) end
  return {now, changed(), id, fact, until_then, text, use_of(id)}
end
return {now, number(), id, fact, until_then, text, 0}
"""
)
"""What there is about a call; and if it was approved, the number of its use, which is whoever asked
from now on."""

DECIDE: Final = Script(
    _COMMON
    + f"""
local id, letter, by, lasts = unpack(ARGV)
local fact = redis.call('HGET', facts, id)
if not fact or state_of(fact) ~= 'p' then return {{now, number()}} end
redis.call('HSET', facts, id, string.sub(fact, 1, {2 * _SIGNATURE}) .. letter .. by)
redis.call('ZADD', ends, now + lasts, id)
return {{now, changed(), id, told(id)}}
"""
)

GIVE_BACK: Final = Script(
    _COMMON
    + """
local id, claim, fact, text, lasts = unpack(ARGV)
annul(claim)
if redis.call('HGET', claims, id) ~= claim or not take_back(id, fact, text, now + lasts) then
  return {now, number(), 0}
end
return {now, changed(), 1}
"""
)
"""What was used is there again, if that very claim had used it, in place of what waits for the same
call by now: what was decided about that meanwhile counts."""

UNCLAIM: Final = Script(
    _COMMON
    + """
local claimed, news = {}, false
local all = redis.call('HGETALL', claims)
for n = 1, #all, 2 do claimed[all[n + 1]] = all[n] end
for _, claim in ipairs(ARGV) do
  annul(claim)
  local id = claimed[claim]
  local kept = id and redis.call('HGET', spent, id)
  if kept then
    local fact_ends = 18 + tonumber(string.sub(kept, 14, 18))
    local fact, text = string.sub(kept, 19, fact_ends), string.sub(kept, fact_ends + 1)
    news = take_back(id, fact, text, tonumber(string.sub(kept, 1, 13))) or news
  end
end
return {now, news and changed() or number()}
"""
)
"""The same of claims whose answers nobody has heard, whatever they have got. None of them is good
for anything from now on: what was sent before a connection broke may arrive later than what is sent
over the next one."""

ANEW: Final = Script(
    _COMMON
    + """
local id, fact, text, lasts, most = unpack(ARGV)
local known = redis.call('HEXISTS', facts, id) == 1 or redis.call('HEXISTS', calls, call_of(fact)) == 1
if known or redis.call('ZSCORE', used, id) then return {now, number()} end
if redis.call('ZCARD', ends) >= tonumber(most) then return {now, number()} end
put(id, fact, text, now + lasts)
return {now, changed()}
"""
)
"""Written again by a replica that knows of it, if the store does not, and it was not used."""

USED: Final = Script(
    _COMMON
    + """
local news = false
for n = 1, #ARGV, 2 do
  local id = ARGV[n]
  if not redis.call('ZSCORE', used, id) and tonumber(ARGV[n + 1]) >= use_of(id) then
    news = true
    drop(id)
    spend(id, '')
  end
end
return {now, news and changed() or number()}
"""
)
"""The same of what was used, each with the number of its use: unless that was given back."""

LOOK: Final = Script(
    _COMMON
    + f"""
local missing, records, gone, room = {{}}, {{}}, {{}}, {AT_A_TIME}
for _, id in ipairs(ARGV) do missing[id] = true end
for _, id in ipairs(redis.call('ZRANGE', ends, 0, -1)) do
  local text = ''
  if not missing[id] and room > 0 then
    text, room = redis.call('HGET', texts, id), room - 1
  end
  missing[id] = nil
  records[#records + 1] = {{id, redis.call('HGET', facts, id), redis.call('ZSCORE', ends, id), text, use_of(id)}}
end
for id, _ in pairs(missing) do
  if redis.call('ZSCORE', used, id) then gone[#gone + 1] = {{id, use_of(id)}} end
end
return {{now, number(), redis.call('GET', epoch) or '', records, gone}}
"""
)
"""All there are, with the texts of some that whoever looks does not know, and the number of the use
that would be next; and which of those it knows were used, with the number of that use."""


def keys_in(store: Store) -> list[str]:
    parts = ("ends", "facts", "calls", "texts", "used", "claims", "spent", "backs", "void")
    return [*(store.key(TOPIC, part) for part in parts), store.key("numbers"), store.key("epoch")]


@dataclass(frozen=True, slots=True)
class Record:
    """One approval as a script told of it."""

    id: str
    state: State
    by: str
    expires_at: float
    """By the store's calendar."""
    left: float
    """Seconds."""
    text: bytes
    """Empty: not told."""

    @classmethod
    def read(cls, raw: list[Any], now: int) -> "Record":
        id, fact, ends, text = raw[:4]
        rest = bytes(fact)[2 * _SIGNATURE :].decode(errors="replace")
        at = float(ends)
        state = _STATES.get(rest[:1], "denied")
        return cls(
            bytes(id).decode(errors="replace"),
            state,
            rest[1:],
            at / 1000,
            (at - now) / 1000,
            bytes(text),
        )


class Sealing:
    """What is written about approvals, in a form that only replicas understand."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals

    def call(self, binding: bytes) -> str:
        """Stands for a call."""
        return self._seals.sign(b"approved call", binding)

    def facts(self, approval: Approval, state: State | None = None) -> bytes:
        caller = self._seals.sign(b"caller", approval.principal.encode(errors="replace"))
        line = f"{self.call(approval.binding)}{caller}{_LETTERS[state or approval.state]}"
        return line.encode() + (b"" if state == "pending" else by_line(approval.by))

    def text(self, approval: Approval) -> bytes:
        about = {name: getattr(approval, name) for name in _TEXT} | {
            "binding": approval.binding.hex()
        }
        return self._seals.encrypt(codec.dump(about), _WHERE + approval.id.encode())

    def approval(self, record: Record, ends: float) -> Approval | None:
        """None: it was written by who has another key, or is damaged."""
        plain = self._seals.decrypt(record.text, _WHERE + record.id.encode())
        if plain is None:
            return None
        try:
            about = as_object(codec.load(plain))
            binding = bytes.fromhex(about.pop("binding"))
            given: dict[str, Any] = {name: about[name] for name in _TEXT}
        except (codec.BadJson, KeyError, ValueError, TypeError):
            return None
        given |= {
            "state": record.state,
            "by": record.by,
            "expires_at": record.expires_at,
            "ends": ends,
        }
        return Approval(id=record.id, binding=binding, **given)


def letter(state: State) -> str:
    return _LETTERS[state]


def by_line(by: str) -> bytes:
    return by[:LONGEST_BY].encode(errors="replace")
