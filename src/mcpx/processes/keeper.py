"""The keeper: one tiny `sh` that outlives mcpx and ends what it left behind.

Promise: when mcpx is gone without having said goodbye (`kill -9`, a crash, the OOM killer),
everything that carries this run's mark or brand, or that mcpx had named to the keeper, is ended
within about two seconds, and the keeper with it. A shell, because it costs about a megabyte where a
second Python costs ten; it waits in `read` and uses no CPU. No promise: where there is no `/bin/sh`
(a distroless image), or where mcpx and its keeper are killed together (a container or a control
group is stopped: then the kernel ends the children as well). Without /proc (macOS) it ends what it
was told of, the process groups of the children, and what carries the mark as far as `ps` tells. On
Windows there is none, and need be none: see `systems.windows`.
"""

import asyncio
import logging
import os
import subprocess
import threading
from collections.abc import Iterable

from mcpx.processes.systems import system
from mcpx.processes.systems.tree import brand_of

_log = logging.getLogger("mcpx.process")

# POSIX, run by dash, busybox ash and bash. Arguments: $1 the run, $2 the number its brands begin
# with, $3 what makes `ps` tell of everybody's environment, where /proc is not to be looked into.
# Each line of input is all that is alive, as `pid:start`, 0 for a start that is not known; `clean`
# says that mcpx has ended everything itself. Only `grep` and `sleep` are programs, and `ps` and
# `tr` where there is no /proc.
SCRIPT = r"""# mcpx keeper: ends what mcpx started, should mcpx die without doing so
trap '' HUP INT QUIT TERM PIPE TSTP
run=$1 brand="^Max realtime timeout  *$2[0-9][0-9][0-9][0-9][0-9] "
known=' ' clean='' first=1 self=''
while IFS= read -r line; do
  case $line in clean) clean=1 ;; ?*) known=" $line " ;; esac
done
nap() { sleep "$1" || sleep 1; }

[ "$3" ] || read -r self part < /proc/self/stat
if [ "$self" != $$ ]; then # no /proc, or one that counts otherwise than we do
  [ "$clean" ] && exit
  for signal in TERM KILL; do
    nap 0.5
    for one in $known; do
      pid=${one%%:*} start=${one#*:} now=0
      [ "$start" = 0 ] || now=$(ps -o lstart= -p "$pid" | tr -dc 0-9)
      # Some reckon the start back from now, and are a second off: the fifth digit from the right.
      if [ "$now" ]; then
        case $((now - start)) in 0 | 10000 | -10000) kill -s "$signal" "$pid" ;; *) continue ;; esac
      fi
      # Also if the leader has ended: its number is not used again while its group exists.
      kill -s "$signal" -- "-$pid"
    done
    ps $3 -o pid=,command= | grep -e "GATEWAY_OWNER=[^ ]*$run\." | while read -r pid part; do
      kill -s "$signal" "$pid"
    done
  done
  exit
fi

cd /proc || exit
# pid -> state ppid sid start. Fails if it has ended. The name may have newlines and parentheses.
fields() {
  text=''
  while read -r part; do text="$text $part"; done < "$1/stat" || return 1
  set -- ${text##*) }
  [ $# -ge 20 ] || return 1
  state=$1 ppid=$2 sid=$4 start=${20}
}
# Did mcpx name the session's leader $1? Not if another process has its number by now.
led() {
  named=${known#*" $1:"}
  [ "$named" != "$known" ] && { ! fields "$1" || [ "$start" = "${named%% *}" ]; }
}
look() { # known := what is alive of ours, as pid:start
  marked=' ' found=' ' pids=' ' rest=''
  for file in $(grep -lsF -- "$run." [0-9]*/environ; grep -ls -- "$brand" [0-9]*/limits); do
    marked="$marked${file%%/*} "
  done
  for pid in [0-9]*; do
    fields "$pid" || continue
    case $state in Z | X | x) continue ;; esac
    name=$pid:$start parent=$ppid ours=''
    case $marked in *" $pid "*) ours=1 ;; esac
    case $known in *" $name "*) ours=1 ;; esac
    [ "$first" ] && led "$sid" && ours=1 # later the number of a session proves nothing
    if [ "$ours" ]; then found="$found$name " pids="$pids$pid "; else rest="$rest $name:$parent"; fi
  done
  more=1
  while [ "$more" ]; do
    more=''
    for one in $rest; do
      pid=${one%%:*}
      case $pids in *" $pid "*) continue ;; esac
      case $pids in *" ${one##*:} "*) found="$found${one%:*} " pids="$pids$pid " more=1 ;; esac
    done
  done
  known=$found first=''
}
hit() {
  for one in $known; do
    fields "${one%%:*}" && [ "$start" = "${one#*:}" ] && kill -s "$1" "${one%%:*}"
  done
}

[ "$clean" ] && ! grep -qsF -- "$run." [0-9]*/environ &&
  ! grep -qs -- "$brand" [0-9]*/limits && exit
look
nap 0.4 # their input has ended with mcpx: most go by themselves
look
hit TERM
hit CONT
[ "$known" = ' ' ] || nap 0.5
tries=0
while look; [ "$known" != ' ' ] && [ $tries -lt 20 ]; do
  hit KILL
  nap 0.1
  tries=$((tries + 1))
done
"""


class Keeper:
    """Starts at the first child, is told who is alive, ends when mcpx says goodbye or is gone."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._shell: subprocess.Popen[bytes] | None = None
        self._told = ""
        self._lock = threading.Lock()
        """Several event loops of a process share the keeper."""

    @property
    def pid(self) -> int | None:
        return None if self._shell is None else self._shell.pid

    def start(self) -> None:
        """Start the keeper unless it is running. Without a shell, log a warning and continue."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        if system.NAME == "windows" or (self._shell is not None and self._shell.poll() is None):
            return
        if self._shell is not None:
            self._forget()
        try:
            self._shell = subprocess.Popen(
                [
                    "/bin/sh",
                    "-c",
                    SCRIPT,
                    "mcpx-keeper",
                    self.run,
                    str(brand_of(self.run)),
                    system.LOOK,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",  # holds no directory busy
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "LC_ALL": "C",
                },  # no mark, no secret
                start_new_session=True,  # not reached by Ctrl-C or a closing terminal
            )
        except OSError as error:
            _log.warning("no keeper (%s): servers may be left behind if mcpx is killed", error)
            return
        assert self._shell.stdin is not None
        os.set_blocking(self._shell.stdin.fileno(), False)
        self._told = ""

    def tell(self, alive: Iterable[tuple[int, int]]) -> None:
        """Name what is alive. Said again only when it changed."""
        # "none" and not silence: old names must not linger, their session numbers may be given out
        # again.
        names = " ".join(f"{pid}:{start}" for pid, start in sorted(alive)) or "none"
        if names != self._told:
            self._told = names
            self._say(names)

    async def close(self) -> None:
        """Say goodbye and see it off. Call when nothing is left to end."""
        shell = self._shell
        if shell is None:
            return
        self._say("clean")
        self._forget(wait=False)
        for _ in range(150):
            if shell.poll() is not None:
                return
            await asyncio.sleep(0.01)
        shell.kill()
        shell.wait()

    def _forget(self, *, wait: bool = True) -> None:
        shell, self._shell = self._shell, None
        assert shell is not None and shell.stdin is not None
        shell.stdin.close()
        if wait:
            shell.wait()

    def _say(self, line: str) -> None:
        if self._shell is None or self._shell.stdin is None:
            return
        try:
            # A newline on both sides: a line that was cut short by a full pipe cannot run into the
            # next.
            os.write(self._shell.stdin.fileno(), f"\n{line}\n".encode())
        except OSError:
            # it is gone (the next spawn starts another) or it is behind: the marks are enough for
            # it
            pass
