"""How a link is opened: on whose behalf, in which era, with which capabilities (PRO-3).

A server that never asked is greeted with what all its clients so far can be asked, so that one link
serves them; one that asks, or that offers different things to different clients, with exactly what
the client at hand can be asked.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mcpx.config import Server
from mcpx.model.call import Caller
from mcpx.model.errors import SERVER_DIED, Unavailable
from mcpx.upstreams.extensions import forwarded_capabilities
from mcpx.upstreams.link import PLAIN, Link, Use, through
from mcpx.upstreams.negotiate import Era, Identity
from mcpx.upstreams.owner import Owner
from mcpx.upstreams.traits import Needs, Traits, both, kind_of, older_version
from mcpx.upstreams.wishes import Wish
from mcpx.wire import era

if TYPE_CHECKING:
    from mcpx.auth.credentials import Credentials
    from mcpx.processes.stderrlog import Overhear

NOBODY_IN_PARTICULAR = Identity(through({}), {})


class Dialler:
    def __init__(
        self,
        server: Server,
        owner: Owner,
        environ: Mapping[str, str],
        traits: Traits,
        credentials: "Callable[[], Credentials | None]",
        itself: str,
        may_ask: Callable[[Caller], bool] = lambda caller: True,
        confide: Callable[[str], bool] = lambda words: False,
        overhear: "Callable[[], Overhear | None]" = lambda: None,
    ) -> None:
        """`itself`: what marks this gateway to itself, should it turn out to be the server.
        `may_ask`: whether a client may know of this server. `confide`, `overhear`: see `Dial`."""
        self.server = server
        self.annotations: dict[str, era.ParamHeaders] = {}
        """Which arguments of a tool travel as headers, for links to modern HTTP servers."""
        self._owner = owner
        self._environ = environ
        self._traits = traits
        self._credentials = credentials
        self._itself = itself
        self._may_ask = may_ask
        self._confide = confide
        self._overhear = overhear

    async def main(self, solo: Caller | None) -> Link:
        """The main link: either era, the likelier one first, so that one server gives one
        process."""
        likely: Era = self._traits.era or ("modern" if solo is None or solo.modern else "older")
        openings: tuple[Era, ...] = (
            ("modern", "older") if likely == "modern" else ("older", "modern")
        )
        link = self._main(solo)
        try:
            await self._open(link, *openings)
        except Unavailable as error:
            if likely != "modern" or error.code != SERVER_DIED:
                raise
            # Some old servers do not survive a request they do not know before `initialize`.
            link = self._main(solo)
            await self._open(link, "older")
        return link

    def _main(self, solo: Caller | None) -> Link:
        if solo is not None:
            return self._link(_identity(solo), "shared", solo)
        if self._traits.declares and self._serves_all:
            return self._link(
                replace(NOBODY_IN_PARTICULAR, capabilities=self._traits.declares), "lent"
            )
        return self._link(NOBODY_IN_PARTICULAR, "shared")

    @property
    def _serves_all(self) -> bool:
        """Whether one link can serve clients of all kinds."""
        return not self._traits.asks and not self._owner.varies()

    async def dial(
        self, wish: Wish, caller: Caller, beside: Iterable[Link], *, exact: bool = False
    ) -> Link:
        """A link for such callers; `beside` are those there are."""
        plain = wish.needs is None or not wish.needs.kind
        if plain and wish.owner is None and not caller.solo:
            link = self._link(NOBODY_IN_PARTICULAR, wish.use)
        else:
            who = _identity(caller)
            if wish.owner is None and self._serves_all and not exact:
                for other in beside:
                    if other.alive and other.use == "lent" and other.owner is None:
                        able = both(who.capabilities, other.who.capabilities)
                        who = Identity(who.client, able, max(who.version, other.who.version))
            link = self._link(
                who, wish.use, caller if wish.owner is not None or caller.solo else None
            )
        link.owner, link.why = wish.owner, wish.why
        link.lasting = self.server.isolation == "per_session" and caller.session is not None
        await self._open(link, wish.era)
        return link

    def _link(self, who: Identity, use: Use, standing: Caller | None = None) -> Link:
        """`standing`: whose voice is asked between calls."""
        needs = (
            PLAIN if who is NOBODY_IN_PARTICULAR else Needs(kind_of(who.capabilities), who.version)
        )
        voice = None if standing is None or standing.modern else standing.voice
        may_ask = self._may_ask
        link = Link(
            self.server,
            self._owner,
            who,
            self._traits,
            needs,
            use=use,
            voice=voice,
            may_ask=lambda: standing is None or may_ask(standing),
        )
        link.single = standing is not None
        return link

    async def _open(self, link: Link, *openings: Era) -> None:
        await link.open(
            openings,
            self._environ,
            self.annotations,
            self._credentials(),
            self._itself,
            self._confide,
            self._overhear(),
        )


def _identity(caller: Caller) -> Identity:
    return Identity(
        through(caller.client), forwarded_capabilities(caller.capabilities), older_version(caller)
    )
