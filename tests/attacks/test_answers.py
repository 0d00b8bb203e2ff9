"""Nobody gets another client's answer, whatever a server sends in place of its own.

The promise is that of PRO-6 and SRC-8: a reply counts only with the id that was asked on its
request. What a broken server (or a proxy before it) sends instead is an error that names the
server, and ends the connection it came on.
"""

import threading
from collections import Counter
from dataclasses import dataclass, field

import pytest

from attacks.harness import Hostile, Siege
from kit.client import Session

CLIENTS, CALLS = 20, 25

BAD_REPLY = -33005
"""What mcpx answers when a server's reply is none."""

HABITS = {
    "twice": True,
    "twice_later": True,
    "surplus": True,
    "surplus_stream": True,
    "others_first": True,
    "twice_in_stream": True,
    "one_behind": False,
    "one_behind_stream": False,
    "no_id": False,
    "text_id": False,
}
"""How answers are broken -> whether the right one is there as well, and comes first or alone under
its id."""


@dataclass
class Account:
    right: int = 0
    wrong: list[str] = field(default_factory=list)
    errors: Counter[int] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


def ask(port: int, name: str, account: Account) -> None:
    session = Session(port)
    for number in range(CALLS):
        text = f"{name}, call {number}"
        reply = session.call("bad_echo", text=text)
        with account.lock:
            if "error" in reply:
                account.errors[reply["error"]["code"]] += 1
            elif reply["result"].get("isError") or reply["result"]["content"][0]["text"] != text:
                account.wrong.append(f"asked {text!r}: {reply}")
            else:
                account.right += 1


@pytest.mark.parametrize("habit", HABITS)
def test_twenty_clients_of_a_server_that_mixes_up_its_replies_never_get_each_others(
    habit: str,
) -> None:
    """PRO-6, SRC-8: each call has its own answer or an error, and the right answer passes where
    there is one."""
    account = Account()
    with Hostile() as hostile, Siege([hostile.server("bad", habit)]) as siege:
        clients = [
            threading.Thread(
                target=ask, args=(siege.port, f"client {number}", account), daemon=True
            )
            for number in range(CLIENTS)
        ]
        siege.healthy.begin()
        for client in clients:
            client.start()
        for client in clients:
            client.join(60)
        figures = siege.healthy.end()
        assert not any(client.is_alive() for client in clients), siege.said()[-2000:]
    total = account.right + len(account.wrong) + account.errors.total()
    assert account.wrong == [], (
        f"{len(account.wrong)} of {total} are wrong, such as {account.wrong[:3]}"
    )
    assert total == CLIENTS * CALLS, account
    assert set(account.errors) <= {BAD_REPLY}, account.errors
    assert not figures.bad(), figures.bad()
    if HABITS[habit]:
        assert account.right > 0, account.errors
