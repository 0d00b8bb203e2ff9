"""A server with relatives, for the tests of `process`. Run with `python -I -S`: it starts in 10 ms.

    family.py NOTES [word ...]      echoes lines until its input ends
    family.py NOTES --sleep NAME    a relative that never ends by itself

Everyone who is ready leaves a note `NOTES/<name>` with "pid start". Words: `deaf` ignores SIGTERM,
`stays` does not end with its input, `crashes` exits with 3 when its relatives are ready; and one
relative each for `plain`, `setsid` (a session of its own), `daemon` (double fork, all descriptors
closed), `bare` (session of its own, empty environment), `stubborn` (session of its own, ignores
SIGTERM), `holder` (keeps our output open), `clinger` (keeps it open and ignores SIGTERM), `odd` (a
name with newlines and parentheses).
"""

import os
import signal
import sys
import time

NOTES = sys.argv[1]


def note(name: str) -> None:
    with open("/proc/self/stat", "rb") as file:
        start = file.read().rpartition(b")")[2].split()[19].decode()
    with open(f"{NOTES}/.{name}", "w") as file:
        file.write(f"{os.getpid()} {start}")
    os.rename(f"{NOTES}/.{name}", f"{NOTES}/{name}")


def relative(name: str) -> None:
    if os.fork():
        return
    if name == "daemon":
        os.setsid()
        if os.fork():
            os._exit(0)
    elif name in ("setsid", "bare", "stubborn", "odd"):
        os.setsid()
    if name not in ("holder", "clinger"):
        void = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(void, fd)
        os.closerange(3, 64)
    env = {} if name == "bare" else os.environ
    os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, NOTES, "--sleep", name], env)


def sleep(name: str) -> None:
    if name in ("stubborn", "clinger"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if name == "odd":
        with open("/proc/self/comm", "w") as file:
            file.write("a) S\n1 (b")
    note(name)
    while True:
        signal.pause()


def main(words: list[str]) -> None:
    if "deaf" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kin = [word for word in words if word not in ("deaf", "stays", "crashes")]
    for name in kin:
        relative(name)
    while not all(os.path.exists(f"{NOTES}/{name}") for name in kin):
        time.sleep(0.002)
    note("server")
    if "crashes" in words:
        os.write(2, b"last words\n")
        os._exit(3)
    while data := os.read(0, 65536):
        os.write(1, data)
    while "stays" in words:
        signal.pause()


signal.alarm(60)  # should a test fail: nobody stays for ever
if sys.argv[2:3] == ["--sleep"]:
    sleep(sys.argv[3])
main(sys.argv[2:])
