"""An agent loop on LangChain that runs its tools itself and reports each result to Toolhub. Needs: pip install langchain-core

A reported result counts like one of a call that Toolhub made: `report` is offered once `weather` has succeeded in the thread, and a tool
that fails three times in a row is withheld. The model is scripted, so that the example needs no key; any chat model of LangChain with
`bind_tools` takes its place.
"""
import json, os, urllib.request
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
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
    """The tools that Toolhub offers to the thread now."""
    tools = ask(f"/api/v1/tools/export?format=openai&threadId={thread}")["tools"]
    return [own[name] for name in (it["function"]["name"] for it in tools) if name in own]

def execute(call):
    """Runs a call of the model here, and reports how it went."""
    try:
        result, went = own[call["name"]].invoke(call).content, {"success": True}
    except Exception as error:
        result, went = str(error), {"error": str(error)}
    status = ask(f"/api/v1/tools/{call['name']}/reports", {"threadId": thread, **went})
    print(f"{call['name']}: {result} | {status['status']}: {status['reason']}")
    return ToolMessage(result, tool_call_id=call["id"])

def converse(model, question):
    """The loop: each step offers the tools that may be used now, until the model answers without a call."""
    messages = [HumanMessage(question)]
    while True:
        tools = offered()
        print("offered:", ", ".join(it.name for it in tools))
        messages.append(model.bind_tools(tools).invoke(messages))
        if not messages[-1].tool_calls:
            return messages[-1].content
        messages += [execute(call) for call in messages[-1].tool_calls]

class Scripted(FakeMessagesListChatModel):
    """Answers with the next of its messages."""
    def bind_tools(self, tools, **options):
        return self

def wants(name, **arguments):
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{name}"}])

model = Scripted(responses=[
    wants("weather", city="Oslo"),
    wants("weather", city="Atlantis"), wants("weather", city="Atlantis"), wants("weather", city="Atlantis"),
    wants("report", title="Weather in Oslo", lines=["4 °C"]),
    AIMessage("The report is done."),
])
print(converse(model, "Weather in Oslo and in Atlantis, then a report"))
