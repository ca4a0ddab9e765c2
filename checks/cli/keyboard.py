"""Drives the approval prompt of `toolhub call` on a real terminal.

In: the program, as the first argument. Out: a line for each kind of answer; exit code 1 at the first failure.
Each case has its own folder with a config. Each command opens the store itself; only the case with a concurrent answer needs a
server.
"""

import os
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from terminal import END_OF_INPUT, INTERRUPT, play, watch, wrong_with  # noqa: E402

PROMPT = "[y] allow once  [t] for this thread  [a] always  [e] edit  [n] deny  [?] more  >"
PROMPT_WITHOUT_THREAD = "[y] allow once  [a] always  [e] edit  [n] deny  [?] more  >"
ARGUMENTS = "key=value to change, or all arguments as JSON; Enter to go back:"
CALL = ["call", "dangerous", "folder=/tmp/old", "--thread", "demo"]
# Nothing listens on this port.
CONFIG = """
[server]
port = 1
[[policy]]
tool = "dangerous"
arguments = { "/folder" = "^/$" }
decision = "deny"
reason = "deleting the root folder is never allowed"
[tools.dangerous]
builtin = "dangerous"
"""

# Typed input by prompt, expected output after the first prompt, output that must not appear, and the exit code.
CASES = [
    ("a yes for once", [(PROMPT, "y\n")], ["/tmp/old is deleted"], ["error"], 0),
    ("a no with a reason", [(PROMPT, "n not today\n")], ["error", "not today"], ["is deleted"], 6),
    (
        "mistakes, then an edit",
        [
            (PROMPT, "maybe\n"),
            (PROMPT, "?\n"),
            (PROMPT, "\n"),
            (PROMPT, "e {folder\n"),
            (PROMPT, 'e {"folder": 3}\n'),
            (PROMPT, 'e {"folder": "/"}\n'),
            (PROMPT, "e\n"),
            (ARGUMENTS, "\n"),
            (PROMPT, "e\n"),
            (ARGUMENTS, '{"folder": "/tmp/new"}\n'),
        ],
        [
            "`maybe` is not one of the answers",
            "y  yes, this once",
            "that is neither key=value nor JSON",
            "expected a string",
            "deleting the root folder is never allowed",
            "/tmp/new is deleted",
        ],
        ["/tmp/old is deleted"],
        0,
    ),
    (
        "arguments changed by name",
        [(PROMPT, "e folder\n"), (PROMPT, "e folde=/tmp/new\n"), (PROMPT, "e folder=/\n"), (PROMPT, "e folder='/tmp/new one'\n")],
        ["neither key=value nor JSON", "there is no argument `folde`", "deleting the root folder is never allowed", "/tmp/new one is deleted"],
        ["/tmp/old is deleted"],
        0,
    ),
    ("the end of input", [(PROMPT, END_OF_INPUT)], ["no answer: end of input"], ["is deleted"], 6),
    ("an interrupt", [(PROMPT, INTERRUPT)], ["the request was withdrawn"], ["is deleted", "panicked"], 130),
]


def complaints(program: str, case: tuple) -> list[str]:
    """Plays one case in its own folder and returns what is wrong."""
    _, typed, expected, absent, code = case
    shown, ended = watch(program, typed, CALL)
    if any(text not in shown for text in ("dangerous wants to run", '"/tmp/old"', "rule", "requires approval", "thread")):
        return [f"the prompt does not show the call:\n{shown}"]
    return wrong_with(shown[shown.index(PROMPT):], ended, expected, absent, code)


def in_editor(program: str) -> list[str]:
    """A bare `e` opens the editor; invalid JSON and no change ask again, and the editor owns the keyboard while it is open."""
    shell = pathlib.Path("editor.sh").resolve()
    shell.write_text(
        """#!/bin/sh
        printf 'the editor has %s\\nwhat now? ' "$(tr -d '\\n' < "$1")"
        read -r word
        case "$word" in nonsense) echo '{folder' > "$1";; new) echo '{"folder": "/tmp/new"}' > "$1";; esac
        """
    )
    shell.chmod(0o755)
    os.environ["EDITOR"] = str(shell)
    ask = "what now? "
    typed = [(PROMPT, "e\n"), (ask, "nonsense\n"), (PROMPT, "e\n"), (ask, "leave\n"), (PROMPT, "e\n"), (ask, "new\n")]
    try:
        shown, ended = watch(program, typed, CALL)
    finally:
        del os.environ["EDITOR"]
    expected = ['the editor has {  "folder": "/tmp/old"}', "the saved text is not JSON", "the arguments are unchanged", "/tmp/new is deleted"]
    return wrong_with(shown[shown.index(PROMPT):], ended, expected, ["/tmp/old is deleted", ARGUMENTS], 0)


def answered_meanwhile(program: str) -> list[str]:
    """An answer after a concurrent one is refused, with the outcome of the call."""
    serves = [program, "serve", "--port", "0"]
    with subprocess.Popen(serves, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            url = next(line.split()[-1] for line in server.stdout if "listening on" in line)
            shell = pathlib.Path("editor.sh").resolve()
            shell.write_text(
                f"""#!/bin/sh
                id=$({program} --server {url} approvals list --json | sed -n 's/.*"id": "\\(apr_[^"]*\\)".*/\\1/p')
                {program} --server {url} approvals deny "$id" --reason 'not on my watch'
                echo '{{"folder": "/tmp/new"}}' > "$1"
                """
            )
            shell.chmod(0o755)
            os.environ["EDITOR"] = str(shell)
            shown, ended = watch(program, [(PROMPT, "e\n")], ["--server", url, *CALL])
        finally:
            os.environ.pop("EDITOR", None)
            server.terminate()
    expected = ["the approval is denied already", "was not run: a person refused this call: not on my watch"]
    return wrong_with(shown[shown.index(PROMPT):], ended, expected, ["is deleted"], 6)


def always(program: str) -> list[str]:
    """Approving for the thread covers the next call in it, and no other thread."""
    first, _ = watch(program, [(PROMPT, "t\n")], CALL)
    again, code = watch(program, [], CALL)
    if "wants to run" in again or "is deleted" not in again or code != 0:
        return [f"the thread is asked again:\n{first}\n{again}"]
    other, code = watch(program, [(PROMPT, "n\n")], [*CALL[:-1], "other"])
    return [] if code == 6 else [f"another thread is not asked:\n{other}"]


def without_thread(program: str) -> list[str]:
    """A call without a thread is not offered an answer for the thread."""
    shown, ended = watch(program, [(PROMPT_WITHOUT_THREAD, "t\n"), (PROMPT_WITHOUT_THREAD, "y\n")], CALL[:-2])
    expected = ["the call belongs to no thread: answer y or a, or make it again with --thread", "/tmp/old is deleted"]
    return wrong_with(shown, ended, expected, [PROMPT, "proceed_"], 0)


def answered_elsewhere(program: str) -> list[str]:
    """A prompt that another client answers says so and ends."""
    serves = [program, "serve", "--port", "0"]
    with subprocess.Popen(serves, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            url = next(line.split()[-1] for line in server.stdout if "listening on" in line)
            shell = pathlib.Path("answer.sh").resolve()
            shell.write_text(
                f"""#!/bin/sh
                until id=$({program} --server {url} approvals list --json | grep -o 'apr_[0-9a-f-]*' | head -1) && [ -n "$id" ]; do sleep 0.2; done
                {program} --server {url} approvals deny "$id" --reason 'not on my watch'
                """
            )
            shell.chmod(0o755)
            with subprocess.Popen([str(shell)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
                shown, ended = watch(program, [], ["--server", url, *CALL])
                other.wait()
        finally:
            server.terminate()
    return wrong_with(shown[shown.index(PROMPT):], ended, ["answered elsewhere", "not on my watch"], ["is deleted"], 6)


def main() -> int:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    os.environ.pop("VISUAL", None)
    os.environ.pop("EDITOR", None)
    cases = [(case[0], lambda case=case: complaints(program, case)) for case in CASES]
    cases.append(("an edit in the editor", lambda: in_editor(program)))
    cases.append(("an answer after another one", lambda: answered_meanwhile(program)))
    cases.append(("an answer elsewhere", lambda: answered_elsewhere(program)))
    cases.append(("a call without a thread", lambda: without_thread(program)))
    cases.append(("a yes for the thread", lambda: always(program)))
    return play("asked about a call", cases, {"toolhub.toml": CONFIG})


if __name__ == "__main__":
    sys.exit(main())
