"""Toolhub as the tool layer of an existing agent: executes the calls of a model's message, and waits for approvals."""
import json, os, urllib.request, uuid

hub, thread = os.environ.get("TOOLHUB_URL", "http://127.0.0.1:8665"), "python-agent"

def ask(path, body=None, **more):
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ.get('TOOLHUB_TOKEN', '')}", **more}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(hub + path, data, headers)) as answer:
        return json.load(answer)

def execute(message):
    """The tool messages for a model's message. A call that needs approval is made again, with the same key, until a person answered."""
    key = {"Idempotency-Key": str(uuid.uuid4()), "Prefer": "wait=60"}
    while True:
        done = ask(f"/api/v1/threads/{thread}/batches?format=openai", message, **key)  # finished calls are replayed, not repeated
        waiting = [call for call in done["calls"] if call["status"] == "awaiting_approval"]
        if not waiting:
            return done["messages"]
        print("waiting for approval:", *(call["approval"]["url"] for call in waiting))  # for a person, not for the model

tools = ask(f"/api/v1/tools/export?format=openai&threadId={thread}")["tools"]  # give these to the model
print("offered:", ", ".join(tool["function"]["name"] for tool in tools))
call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]  # what a model answered
messages += execute(messages[-1])
print("answered:", messages[-1]["content"])  # and back to the model with them
