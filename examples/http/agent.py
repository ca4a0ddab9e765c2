"""Toolhub as the tool layer of an existing agent: executes the calls of a model's message."""
import json, os, urllib.request

hub, thread = os.environ.get("TOOLHUB_URL", "http://127.0.0.1:8665"), "python-agent"

def ask(path, body=None):
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ.get('TOOLHUB_TOKEN', '')}"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(hub + path, data, headers)) as answer:
        return json.load(answer)

tools = ask(f"/api/v1/tools/export?format=openai&threadId={thread}")["tools"]  # give these to the model
print("offered:", ", ".join(tool["function"]["name"] for tool in tools))
call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]  # what a model answered
messages += ask(f"/api/v1/threads/{thread}/batches?format=openai", messages[-1])["messages"]
print("answered:", messages[-1]["content"])  # and back to the model with them
