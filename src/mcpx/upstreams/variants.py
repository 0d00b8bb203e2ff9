"""Where a server offers different things to different clients: what each of them is offered.

Two reasons are known. A server may show a tool only to a client that can be asked what the tool needs (sampling,
elicitation, roots): found out once for each set of such capabilities. And a session with a link of its own may find
things there that were made on it: known when the server says on that link that its lists have changed.
"""

from collections.abc import Mapping
from typing import Any

from mcpx.model.call import QUESTION_CAPABILITIES, Json
from mcpx.model.offer import Kind

Offers = dict[Kind, list[Json]]


def answers_key(capabilities: Mapping[str, Any]) -> str:
    """The same for clients that can be asked the same things."""
    return repr([(name, capabilities[name]) for name in QUESTION_CAPABILITIES if name in capabilities])


class Variants:
    def __init__(self) -> None:
        self.known: set[str] = set()
        """Sets of capabilities for which it was found out."""
        self._by_answers: dict[str, Offers] = {}
        self._by_session: dict[str, Offers] = {}

    def __bool__(self) -> bool:
        return bool(self._by_answers or self._by_session)

    def find(self, session: str | None, capabilities: Mapping[str, Any]) -> Offers | None:
        own = self._by_session.get(session) if session is not None else None
        if own is not None or not self._by_answers:
            return own
        return self._by_answers.get(answers_key(capabilities))

    def learn(self, key: str, offers: Offers, common: Offers) -> bool:
        """Note what callers with these capabilities are offered; whether it differs from what all are."""
        self.known.add(key)
        if offers == common:
            return self._by_answers.pop(key, None) is not None
        differs = self._by_answers.get(key) != offers
        self._by_answers[key] = offers
        return differs

    def learn_session(self, session: str, offers: Offers) -> None:
        self._by_session[session] = offers

    def forget_session(self, session: str) -> bool:
        return self._by_session.pop(session, None) is not None

    def inherit(self, other: "Variants") -> None:
        """What a session made on its own link is not among it: that link goes."""
        self._by_answers = dict(other._by_answers)

    def forget_answers(self) -> None:
        """The server was started anew, perhaps another version of it: find out again."""
        self.known.clear()
        self._by_answers.clear()
