"""Runs the official packages `openai` and `anthropic` against the scripted model.

usage: check.py TOOLHUB     TOOLHUB: the binary

Their types accept every response, whole and streamed, with and without calls; errors arrive as the packages' own exceptions;
and the agents of examples/http that use these packages work, as does the one on LangChain that runs its tools itself.
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import anthropic
import httpx2
import openai
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CITY = {"type": "object", "properties": {"city": {"type": "string"}, "note": {"type": "string"}}, "required": ["city"]}
NOTHING = {"type": "object", "properties": {}}
TOOLS = {"weather": ("Weather of a city", CITY), "clock": ("What time it is", NOTHING)}
OPENAI_TOOLS = [
    {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}
    for name, (text, schema) in TOOLS.items()
]
ANTHROPIC_TOOLS = [{"name": name, "description": text, "input_schema": schema} for name, (text, schema) in TOOLS.items()]
CALLS = [("weather", {"city": "Oslo", "note": "北京 🙂, and long enough for several pieces"}), ("clock", {})]
RESULTS = ['{"temp": 4}', "noon"]
FIRST, LAST = "Let me look, in several pieces of text.", "It is 4 °C in Oslo at noon."


def expect(got, wanted, what):
    if got != wanted:
        sys.exit(f"{what}: {got!r} instead of {wanted!r}")


def raises(error, ask, what):
    try:
        got = ask()
    except error as raised:
        return raised
    sys.exit(f"{what}: no {error}, but {got!r}")


@contextlib.contextmanager
def served(program, *words):
    """Starts a server of the binary; yields the URL it prints."""
    process = subprocess.Popen([program, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        output = ""
        while '"url": "' not in output:
            line = process.stdout.readline() or sys.exit(f"{words[0]} did not print its URL")
            output += line
        yield output.split('"url": "')[1].split('"')[0]
        if process.poll() is not None:
            sys.exit(f"{words[0]} exited unexpectedly with code {process.returncode}")
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            sys.exit(f"{words[0]} did not stop within 30 s")
    expect(process.returncode, 0, f"the exit code of {words[0]}")


def same(type_, value):
    """Validates a value with the package's own type: the packages themselves accept anything."""
    TypeAdapter(type_).validate_python(value.model_dump(exclude_unset=True))
    return value


class OpenAi:
    name = "openai"

    def __init__(self, url):
        self.url = url

    def client(self, retries=0, timeout=30):
        return openai.OpenAI(base_url=self.url, api_key="any", max_retries=retries, timeout=timeout)

    def ask(self, messages, stream, **client):
        """The text, the calls as (id, name, text of arguments), the message to send back, and the token usage."""
        asked = {"model": "m", "messages": messages, "tools": OPENAI_TOOLS}
        completions = self.client(**client).chat.completions
        if not stream:
            answer = same(ChatCompletion, completions.create(**asked))
            choice, usage = answer.choices[0], answer.usage
        else:
            pieces = 0
            # The package's own helper assembles the chunks, and fails if they do not fit.
            with completions.stream(**asked, stream_options={"include_usage": True}) as events:
                for event in events:
                    if event.type == "chunk":
                        same(ChatCompletionChunk, event.chunk)
                        pieces += 1
                answer = events.get_final_completion()
            choice, usage = answer.choices[0], answer.usage
            if pieces < 4:
                sys.exit(f"openai: only {pieces} pieces in a stream")
        message = choice.message
        calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []]
        expect(choice.finish_reason, "tool_calls" if calls else "stop", "openai: why it stopped")
        back = {"role": "assistant", "content": message.content}
        if calls:
            functions = [{"id": id, "type": "function", "function": {"name": name, "arguments": text}} for id, name, text in calls]
            back["tool_calls"] = functions
        return message.content or "", calls, back, (usage.prompt_tokens, usage.completion_tokens)

    def results(self, calls):
        return [{"role": "tool", "tool_call_id": id, "content": text} for (id, _, _), text in zip(calls, RESULTS)]

    busy, limited, failed, refused = "busy for openai", openai.RateLimitError, openai.InternalServerError, openai.BadRequestError
    late, cut = openai.APITimeoutError, openai.APIConnectionError

    def malformed(self, messages):
        answer = self.client().chat.completions.create(model="m", messages=messages, tools=OPENAI_TOOLS)
        raises(ValueError, lambda: json.loads(answer.choices[0].message.tool_calls[0].function.arguments), "openai: malformed")


class Anthropic:
    name = "anthropic"

    def __init__(self, url):
        self.url = url.removesuffix("/v1")

    def client(self, retries=0, timeout=30):
        return anthropic.Anthropic(base_url=self.url, api_key="any", max_retries=retries, timeout=timeout)

    def ask(self, messages, stream, **client):
        asked = {"model": "m", "max_tokens": 100, "messages": messages, "tools": ANTHROPIC_TOOLS}
        api = self.client(**client).messages
        if not stream:
            message = same(Message, api.create(**asked))
        else:
            for event in (raw := api.create(**asked, stream=True)):
                same(RawMessageStreamEvent, event)
            raw.close()
            with api.stream(**asked) as events:
                message = same(Message, events.get_final_message())
        text = "".join(block.text for block in message.content if block.type == "text")
        used = [block for block in message.content if block.type == "tool_use"]
        expect(message.stop_reason, "tool_use" if used else "end_turn", "anthropic: why it stopped")
        calls = [(block.id, block.name, json.dumps(block.input)) for block in used]
        back = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}
        return text, calls, back, (message.usage.input_tokens, message.usage.output_tokens)

    def results(self, calls):
        blocks = [{"type": "tool_result", "tool_use_id": id, "content": text} for (id, _, _), text in zip(calls, RESULTS)]
        return [{"role": "user", "content": blocks}]

    busy, limited, failed, refused = "busy for anthropic", anthropic.RateLimitError, anthropic.InternalServerError, anthropic.BadRequestError
    # A broken stream raises an exception of the HTTP library underneath.
    late, cut = anthropic.APITimeoutError, (anthropic.APIConnectionError, httpx2.RemoteProtocolError)

    def malformed(self, messages):
        answer = self.client().messages.create(model="m", max_tokens=9, messages=messages, tools=ANTHROPIC_TOOLS)
        expect(type(answer.content[0].input), str, "anthropic: malformed")


def conversation(api, stream):
    what = f"{api.name}, {'streamed' if stream else 'whole'}"
    user = lambda text: [{"role": "user", "content": text}]
    text, calls, _, cost = api.ask(user("hello"), stream)
    expect((text, calls), ("I can use: weather, clock", []), what)
    if min(cost) < 1:
        sys.exit(f"{what}: the usage is {cost} tokens")
    messages = user("weather in Oslo")
    text, calls, back, _ = api.ask(messages, stream)
    expect(text, FIRST, what)
    expect([(name, json.loads(written)) for _, name, written in calls], CALLS, what)
    text, calls, _, _ = api.ask(messages + [back] + api.results(calls), stream)
    expect((text, calls), (LAST, []), what)
    text, calls, back, _ = api.ask(user("silent call"), stream)
    expect((text, [name for _, name, _ in calls]), ("", ["clock"]), what)
    raises(api.refused, lambda: api.ask(user("silent call") + [back], stream), f"{what}: a call without a result")
    error = raises(api.limited, lambda: api.ask(user("busy for ever"), stream), f"{what}: 429")
    expect((error.status_code, error.response.headers["retry-after"]), (429, "1"), f"{what}: 429")
    expect(raises(api.failed, lambda: api.ask(user("broken"), stream), f"{what}: 500").status_code, 500, f"{what}: 500")
    raises(api.cut, lambda: api.ask(user("cut"), stream), f"{what}: a cut answer")
    raises(api.late, lambda: api.ask(user("slow"), stream, timeout=0.2), f"{what}: a slow answer")
    print(f"{what}: ok")


def once(api):
    """What the server counts, or what differs between the packages."""
    text, _, _, _ = api.ask([{"role": "user", "content": api.busy}], False, retries=2)
    expect(text, "At the third try.", f"{api.name}: an error that passes")
    expect([model.id for model in api.client().models.list().data], ["scripted"], f"{api.name}: models")
    api.malformed([{"role": "user", "content": "malformed"}])
    print(f"{api.name}: retries, models, malformed arguments: ok")


def examples(program):
    """The agents of examples/http, with the demo's tools and the demo's model."""
    with served(program, "demo", "--port", "0") as hub, served(program, "stub-llm") as model:
        for name in ("agent_openai.py", "agent_anthropic.py"):
            environment = {
                **os.environ, "TOOLHUB_URL": hub,
                "OPENAI_BASE_URL": model, "OPENAI_API_KEY": "any",
                "ANTHROPIC_BASE_URL": model.removesuffix("/v1"), "ANTHROPIC_API_KEY": "any",
            }
            command = [sys.executable, ROOT / "examples" / "http" / name]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
            if done.returncode or "# Weather in Oslo" not in done.stdout or "weather, report" not in done.stdout:
                sys.exit(f"examples/http/{name} failed:\n{done.stdout}{done.stderr}")
            print(f"examples/http/{name}: ok")


def reports(program):
    """LangChain runs tools and reports their results; the offers follow from them."""
    name = "langchain_reports.py"
    with served(program, "demo", "--port", "0") as hub:
        command = [sys.executable, ROOT / "examples" / "http" / name]
        environment = {**os.environ, "TOOLHUB_URL": hub}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    if done.returncode:
        sys.exit(f"examples/http/{name} failed:\n{done.stdout}{done.stderr}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("offered: ")]
    both, rest = ["offered: report, weather"] * 3, ["offered: report"] * 2
    expect(lines, ["offered: weather", *both, *rest], name)
    if "failed: failed 3 times in a row" not in done.stdout or not done.stdout.endswith("The report is done.\n"):
        sys.exit(f"examples/http/{name} printed:\n{done.stdout}")
    print(f"examples/http/{name}: ok")


def main():
    program = sys.argv[1]
    with served(program, "stub-llm", "--script", str(HERE / "script.toml")) as url:
        for api in (OpenAi(url), Anthropic(url)):
            for stream in (False, True):
                conversation(api, stream)
            once(api)
    examples(program)
    reports(program)


if __name__ == "__main__":
    main()
