"""What links beside the main one list, where something of it is held back (SEC-5).

Kept to judge the calls on these links, and to be looked at and approved: also for a while after a
link was let go, for one that is opened for a single call is gone before anybody can look.
"""

from collections.abc import Iterator

from mcpx.model.call import as_object
from mcpx.model.offer import Kind, Offers
from mcpx.upstreams.admission import Admission
from mcpx.upstreams.budget import Account
from mcpx.upstreams.link import Link


class HeldLists:
    def __init__(self, account: Account) -> None:
        self._account = account
        """Where each list stands under its link and kind."""
        self.by_link: dict[Link, Offers] = {}
        self._gone: Link | None = None
        """The last of them that was let go."""

    def __iter__(self) -> Iterator[Offers]:
        return iter(self.by_link.values())

    def __contains__(self, link: Link) -> bool:
        return link in self.by_link

    def of(self, link: Link) -> Offers | None:
        return self.by_link.get(link)

    def keep(self, link: Link, listed: Offers, admission: Admission) -> bool:
        """Whether something of it is held back, or was."""
        offers: Offers = {**self.by_link.get(link, {}), **listed}
        if admission.admitted(offers) is offers:
            return self.drop(link)
        self.by_link[link] = offers
        return True

    def read_by_all(self, link: Link) -> None:
        """A main link was read: what it lists is everybody's, and if it is a new one, newer than
        what is gone."""
        self.drop(link)
        if self._gone is not None and not link.told:
            self.drop(self._gone)

    def link_gone(self, link: Link) -> None:
        if link in self.by_link:
            if self._gone is not None:
                self.drop(self._gone)
            self._gone = link

    def drop(self, link: Link) -> bool:
        """Whether there was something."""
        offers = self.by_link.pop(link, None)
        for kind in offers or ():
            self._account.drop((link, kind))
        if link is self._gone:
            self._gone = None
        return offers is not None


def is_held(admission: Admission, offers: Offers, kind: Kind, name: str) -> bool:
    """What is not listed at all is not held: the server answers that itself."""
    let = admission.admitted(offers)
    return let is not offers and not lists(let, kind, name) and lists(offers, kind, name)


def lists(offers: Offers, kind: Kind, name: str) -> bool:
    return any(as_object(one).get("name") == name for one in offers.get(kind, ()))
