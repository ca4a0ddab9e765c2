"""Drives a program on a pseudo-terminal, for checks that need one.

In: a program, its arguments, and the input to type at each prompt. Out: all output and the exit code; or what is wrong with it.
Needs nothing but python. To the program, the pseudo-terminal looks like one with a person at it.
"""

import os
import pathlib
import pty
import re
import select
import signal
import tempfile
import time
from collections.abc import Callable

END_OF_INPUT = "\x04"
INTERRUPT = "\x03"
SECONDS = 30


def watch(program: str, typed: list[tuple[str, str]], command: list[str]) -> tuple[str, int]:
    """Runs a command, types each input when its prompt appears, and returns all output and the exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(program, [program, *command])
    shown, seen, waiting, deadline = "", 0, list(typed), time.monotonic() + SECONDS
    try:
        while True:
            if not select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no output within {SECONDS} s after:\n{shown[-600:]}")
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # Linux reports the closed other end this way.
                piece = b""
            if not piece:
                break
            shown = plain(shown + piece.decode(errors="replace"))
            if waiting and waiting[0][0] in shown[seen:]:
                seen = shown.index(waiting[0][0], seen) + len(waiting[0][0])
                os.write(terminal, waiting.pop(0)[1].encode())
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        status = os.waitpid(child, 0)[1]
        os.close(terminal)
    if waiting:
        raise AssertionError(f"the prompt `{waiting[0][0]}` never appeared:\n{shown[-600:]}")
    return shown, os.waitstatus_to_exitcode(status)


def plain(text: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def wrong_with(shown: str, ended: int, expected: list[str], absent: list[str], code: int) -> list[str]:
    """What is missing, what must not be there, and a wrong exit code; empty if all is well."""
    wrong = [f"`{text}` is missing" for text in expected if text not in shown]
    wrong += [f"`{text}` was shown" for text in absent if text in shown]
    wrong += [f"exit code {ended} instead of {code}"] if ended != code else []
    return [*wrong, shown] if wrong else []


def play(what: str, cases: list[tuple[str, Callable[[], list[str]]]], files: dict[str, str]) -> int:
    """Plays each case in its own folder with these files; stops at the first failure."""
    for name in ("TOOLHUB_URL", "TOOLHUB_CONFIG", "TOOLHUB_TOKEN"):
        os.environ.pop(name, None)
    os.environ["LANG"] = "C.UTF-8"
    for name, case in cases:
        with tempfile.TemporaryDirectory() as folder:
            for file, text in files.items():
                pathlib.Path(folder, file).write_text(text)
            os.environ["HOME"] = folder
            os.chdir(folder)
            try:
                wrong = case()
            except (TimeoutError, AssertionError) as problem:
                wrong = [str(problem)]
            finally:
                os.chdir("/")
        if wrong:
            print(f"{name}: {'; '.join(wrong)}")
            return 1
        print(f"{what}, {name}: ok")
    return 0
