"""LangChain runs the tools itself; Toolhub hears how each call went, and says which tools to offer. Needs: pip install langchain-core

A reported result counts like one of a call that Toolhub made: `report` is offered once `weather` has succeeded in the thread, and a tool
that fails three times in a row is withheld.
"""
import json, os, urllib.request
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

hub, thread = os.environ.get("TOOLHUB_URL", "http://127.0.0.1:8665"), "langchain"

def ask(path, body=None):
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ.get('TOOLHUB_TOKEN', '')}"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(hub + path, data, headers)) as answer:
        return json.load(answer)

@tool
def weather(city: str) -> str:
    """The weather in a city."""
    if city == "Atlantis":
        raise ValueError("there is no such city")
    return f"4 °C in {city}"

@tool
def report(title: str, lines: list[str]) -> str:
    """A report."""
    return "\n".join([f"# {title}", *lines])

own = {it.name: it for it in (weather, report)}

def offered():
    """The tools for `model.bind_tools(...)`: those that Toolhub offers to the thread now."""
    tools = ask(f"/api/v1/tools/export?format=openai&threadId={thread}")["tools"]
    return [own[name] for name in (it["function"]["name"] for it in tools) if name in own]

def execute(message):
    """Runs the calls of a model's message here, and reports how each one went."""
    for call in message.tool_calls:
        try:
            result, went = own[call["name"]].invoke(call).content, {"success": True}
        except Exception as error:
            result, went = str(error), {"error": str(error)}
        status = ask(f"/api/v1/tools/{call['name']}/reports", {"threadId": thread, **went})
        print(f"{call['name']}: {result} | {status['status']}: {status['reason']}")

def message(name, arguments):
    """What a model would answer."""
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": "call_1"}])

print("offered:", ", ".join(it.name for it in offered()))
execute(message("weather", {"city": "Oslo"}))
print("offered:", ", ".join(it.name for it in offered()))
for _ in range(3):
    execute(message("weather", {"city": "Atlantis"}))
print("offered:", ", ".join(it.name for it in offered()))
execute(message("report", {"title": "Weather in Oslo", "lines": ["4 °C"]}))
