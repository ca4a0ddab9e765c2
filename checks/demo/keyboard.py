"""Sits at the keyboard of the demo, on a real terminal.

In: the program, as the first argument. Out: a line for each way to answer; exit code 1 at the first that goes wrong.
Needs nothing but python. A pair of pseudo-terminals makes the demo believe that a person is there.
"""

import os
import pty
import re
import select
import signal
import sys
import time

PROMPT = "[y] once  [t] thread  [a] always  [e] edit  [n] deny  [?]"
ARGUMENTS = "the new arguments as JSON, or Enter to go back:"
END_OF_INPUT = "\x04"
INTERRUPT = "\x03"
SECONDS = 30

# What is typed at which prompt, what must be shown, what must not, and the exit code.
CASES = [
    ("a yes for once", [(PROMPT, "y\n")], ["answered by: you", "/tmp/old is deleted", "Not built yet"], ["/tmp/older"], 0),
    ("a yes for the thread", [(PROMPT, "t\n")], ["/tmp/older is deleted", '"scope":"thread"'], [], 0),
    ("a yes for good", [(PROMPT, "a\n")], ["/tmp/older is deleted", '"scope":"tool"'], [], 0),
    ("a no with a reason", [(PROMPT, "n not today\n")], ["A person refused this call: not today"], ["is deleted"], 0),
    (
        "mistakes, then an edit",
        [
            (PROMPT, "maybe\n"),
            (PROMPT, "?\n"),
            (PROMPT, "e\n"),
            (ARGUMENTS, "{folder\n"),
            (PROMPT, 'e {"folder": 3}\n'),
            (PROMPT, 'e {"folder": "/"}\n'),
            (PROMPT, "e\n"),
            (ARGUMENTS, "\n"),
            (PROMPT, "e\n"),
            (ARGUMENTS, '{"folder": "/tmp/new"}\n'),
        ],
        [
            "`maybe` is none of the answers",
            "y  yes, this once",
            "that is no JSON",
            "folder: expected a string",
            "nobody deletes everything",
            "/tmp/new is deleted",
            "A person changed the arguments",
        ],
        ["/tmp/old is deleted"],
        0,
    ),
    ("the end of input", [(PROMPT, END_OF_INPUT)], ["nobody was there to answer", "Not built yet"], ["is deleted"], 0),
    ("the end of input in an edit", [(PROMPT, "e\n"), (ARGUMENTS, END_OF_INPUT)], ["nobody was there"], ["is deleted"], 0),
    ("an interrupt", [(PROMPT, INTERRUPT)], ["The tour was interrupted"], ["is deleted", "Not built yet", "panicked"], 130),
]


TOUR = ["demo", "--tour"]


def watch(program: str, typed: list[tuple[str, str]], command: list[str] = TOUR) -> tuple[str, int]:
    """Runs a command, types each text once its prompt is there, and answers all that was shown and the exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(program, [program, *command])
    shown, seen, waiting, deadline = "", 0, list(typed), time.monotonic() + SECONDS
    try:
        while True:
            if not select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"nothing more came within {SECONDS} s after:\n{shown[-600:]}")
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # Linux says so when the other end is closed.
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
        raise AssertionError(f"it never asked `{waiting[0][0]}`:\n{shown[-600:]}")
    return shown, os.waitstatus_to_exitcode(status)


def plain(text: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def main() -> int:
    for name, typed, expected, absent, code in CASES:
        try:
            shown, ended = watch(sys.argv[1], typed)
        except (TimeoutError, AssertionError) as wrong:
            print(f"{name}: {wrong}")
            return 1
        # What came before the first prompt is the same for all.
        shown = shown[shown.index(PROMPT):]
        wrong = [f"`{text}` is missing" for text in expected if text not in shown]
        wrong += [f"`{text}` was shown" for text in absent if text in shown]
        wrong += [f"exit code {ended} instead of {code}"] if ended != code else []
        if wrong:
            print(f"{name}: {'; '.join(wrong)}\n{shown}")
            return 1
        print(f"at the keyboard, {name}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
