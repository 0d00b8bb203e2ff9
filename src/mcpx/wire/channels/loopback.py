"""A port on loopback, where there are no Unix sockets. Everybody on the machine can connect, so
both sides show that they have read the same file, which only its owner can: `PORT KNOCK WELCOME`.
The client knocks first; a program that took the port of a gateway that is gone learns a word that
opens nothing, and cannot answer.
"""

import os
import secrets
import socket
from pathlib import Path

from mcpx.base.files import read_small, replace_private
from mcpx.wire.channels import Door, closes, mark_of

HOST = "127.0.0.1"
LONGEST = 256
"""Bytes of the file, and of a line before the other side has shown itself."""


def file_of(path: Path) -> Path:
    """Next to where the socket would be."""
    return path.with_suffix(".port")


def listen(path: Path) -> Door:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.bind((HOST, 0))
        made.listen(128)
        made.setblocking(False)
        knock, welcome = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        file = file_of(path)
        replace_private(file, f"{made.getsockname()[1]} {knock} {welcome}\n".encode())
        return Door(made, closes(file, mark_of(file)), knock.encode(), welcome.encode())
    except BaseException:
        made.close()
        raise


def dial(path: Path, timeout: float) -> socket.socket:
    port, knock, welcome = _read(file_of(path))
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        made.connect((HOST, port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.sendall(knock + b"\n")
        heard = b""
        while not heard.endswith(b"\n"):
            piece = (
                made.recv(1) if len(heard) < LONGEST else b""
            )  # what follows is not ours to read
            if not piece:
                raise ConnectionRefusedError("whoever listens there is no gateway of this user")
            heard += piece
        if not secrets.compare_digest(heard.rstrip(b"\n"), welcome):
            raise ConnectionRefusedError("whoever listens there is no gateway of this user")
        return made
    except BaseException:
        made.close()
        raise


def _read(file: Path) -> tuple[int, bytes, bytes]:
    if os.name == "posix":
        found = os.lstat(file)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise PermissionError(f"{file} can be read or written by other users")
    words = read_small(file, LONGEST).split()
    if len(words) != 3 or not words[0].isdigit() or not 0 < int(words[0]) < 65536:
        raise ConnectionRefusedError(f"{file} is damaged")
    return int(words[0]), words[1], words[2]
