"""Drives `toolhub chat` on a real terminal.

In: the program, as the first argument. Out: a line for each conversation; exit code 1 at the first failure.
Each has its own folder with a config and a scripted model, so neither a server nor a key is needed.
"""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from terminal import END_OF_INPUT, INTERRUPT, play, watch, wrong_with  # noqa: E402

# The line editor announces itself once for each line; it may draw its prompt more often.
YOU = "\x1b[?2004h"
# Without the line editor, while a prompt that got no answer still reads the terminal.
PLAIN_YOU = "you> "
ASKED = "[y] allow once  [t] for this thread  [a] always  [e] edit  [n] deny  [?] more  >"
# Nothing listens on this port.
CONFIG = """
[server]
port = 1
[llm]
provider = "scripted"
script = "script.toml"
[tools.calculator]
builtin = "calculator"
[tools.dangerous]
builtin = "dangerous"
"""
SCRIPT = r"""
[[turn]]
when = { user = 'compute (?<sum>\S+)' }
call = [{ tool = "calculator", args = { expression = "$sum" } }]
[[turn]]
when = { user = 'delete (?<folder>\S+)' }
call = [{ tool = "dangerous", args = { folder = "$folder" } }]
[[turn]]
when = { user = "think" }
say = "I have thought."
fault = { slow = "60s" }
[[turn]]
when = { user = "fall over" }
say = "I fell."
fault = { status = 400 }
[[turn]]
when = { tool_result = "*" }
say = "The tool says ${result}"
[default]
say = "Hello to you."
"""

# Typed input by prompt, expected output, output that must not appear, the exit code, and the arguments after `chat`.
CASES = [
    (
        "a conversation",
        [(YOU, "compute 2+3*4\n"), (YOU, "\n"), (YOU, "hello\n"), (YOU, END_OF_INPUT)],
        ["▸ calculator", "✓ calculator", "The tool says 14", "Hello to you.", "continue with: toolhub chat --thread"],
        ["error"],
        0,
        [],
    ),
    ("a first prompt, then a word that ends it", [(YOU, "/quit\n")], ["Hello to you."], ["error"], 0, ["hello"]),
    (
        "keys of the line editor",
        [
            (YOU, "compute 1+25\x1b[D\x7f\n"),  # Left, then Backspace.
            (YOU, "\x1b[A+4\n"),  # Up brings the line back.
            (YOU, "compute 天气\x7f\x7f20+2\n"),
            (YOU, END_OF_INPUT),
        ],
        ["The tool says 6", "The tool says 10", "The tool says 22"],
        ["error"],
        0,
        [],
    ),
    (
        "commands",
        [(YOU, "/help\n"), (YOU, "/tools\n"), (YOU, "/tolls\n"), (YOU, "/exit\n")],
        ["the tools of this conversation", "calculator", "available", "there is no command /tolls"],
        ["Hello to you.", "error"],
        0,
        [],
    ),
    ("only the answer", [], ["The tool says 3"], [YOU], 0, ["-p", "compute 1+2"]),
    (
        "a yes in the middle",
        [(YOU, "delete /tmp/old\n"), (ASKED, "y\n"), (YOU, END_OF_INPUT)],
        ["dangerous wants to run", "The tool says /tmp/old is deleted"],
        ["error"],
        0,
        [],
    ),
    (
        "a no in the middle, with a reason for the model",
        [(YOU, "delete /tmp/old\n"), (ASKED, "n not today\n"), (YOU, END_OF_INPUT)],
        ["✖ dangerous", "not today"],
        ["is deleted"],
        0,
        [],
    ),
    (
        "an interrupt stops what runs and nothing else",
        [(YOU, "think\n"), ("working", INTERRUPT), (YOU, "hello\n"), (YOU, END_OF_INPUT)],
        ["the conversation continues", "Hello to you."],
        ["I have thought", "error"],
        0,
        [],
    ),
    (
        "an interrupt instead of an answer",
        [(YOU, "delete /tmp/old\n"), (ASKED, INTERRUPT), (PLAIN_YOU, "hello\n"), (YOU, END_OF_INPUT)],
        ["the conversation continues", "Hello to you."],
        ["is deleted", "error:"],
        0,
        [],
    ),
    (
        "a model error is shown, and the conversation continues",
        [(YOU, "fall over\n"), (YOU, "hello\n"), (YOU, END_OF_INPUT)],
        ["error: the agent could not answer", "Hello to you."],
        ["I fell."],
        0,
        [],
    ),
    ("an interrupt at the prompt ends it", [(YOU, INTERRUPT)], [], ["panicked"], 0, []),
    ("an interrupt of one prompt", [("working", INTERRUPT)], [], ["I have thought", "panicked"], 130, ["-p", "think"]),
    (
        "a read-only tool needs no approval with --yes-readonly",
        [],
        ["approved automatically, because it is read-only: calculator", "The tool says 3"],
        [ASKED],
        0,
        ["compute 1+2", "--yes-readonly", "--no-input", "-p", "--set", "tools.calculator.confirm=true"],
    ),
    ("a tool with effects still does", [], ["requires approval"], ["is deleted"], 6,
     ["-p", "delete /tmp/old", "--yes-readonly", "--no-input"]),
    ("--no-input", [], ["requires approval", "toolhub approvals approve apr_"], [ASKED], 6,
     ["-p", "delete /tmp/old", "--no-input"]),
]


def complaints(program: str, case: tuple) -> list[str]:
    """Plays one case and returns what is wrong."""
    _, typed, expected, absent, code, words = case
    shown, ended = watch(program, typed, ["chat", *words])
    return wrong_with(shown, ended, expected, absent, code)


def resumed(program: str) -> list[str]:
    """Continues a conversation that ended while an approval was pending; the approval is asked for again."""
    first, code = watch(program, [], ["chat", "-p", "delete /tmp/old", "--thread", "t1", "--no-input"])
    if code != 6:
        return [f"exit code {code} instead of 6:\n{first}"]
    typed = [(ASKED, "y\n"), (YOU, "hello\n"), (YOU, END_OF_INPUT)]
    again, code = watch(program, typed, ["chat", "--thread", "t1"])
    wanted = ["continuing thread t1", "still open", "The tool says /tmp/old is deleted", "Hello to you."]
    wrong = [f"`{text}` is missing" for text in wanted if text not in again]
    if wrong or code:
        return [*wrong, again]
    watch(program, [], ["chat", "-p", "delete /tmp/old", "--thread", "t2", "--no-input"])
    stopped, code = watch(program, [(ASKED, INTERRUPT), (PLAIN_YOU, END_OF_INPUT)], ["chat", "--thread", "t2"])
    return [] if "stopped; the conversation continues" in stopped and code == 0 else [f"not stopped, exit code {code}:\n{stopped}"]


def main() -> int:
    program = str(pathlib.Path(sys.argv[1]).resolve())
    cases = [(case[0], lambda case=case: complaints(program, case)) for case in CASES]
    cases.append(("a conversation that is continued", lambda: resumed(program)))
    return play("in a chat", cases, {"toolhub.toml": CONFIG, "script.toml": SCRIPT})


if __name__ == "__main__":
    sys.exit(main())
