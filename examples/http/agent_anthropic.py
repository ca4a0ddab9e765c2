"""An agent on the official package `anthropic`, with Toolhub as its tool layer. Needs: pip install anthropic

The model is whatever ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY name; `toolhub stub-llm` prints an address (leave its /v1 out here).
"""
import json, os, urllib.request
from anthropic import Anthropic

hub, thread = os.environ.get("TOOLHUB_URL", "http://127.0.0.1:8665"), "agent-anthropic"

def ask(path, body=None):
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ.get('TOOLHUB_TOKEN', '')}"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(hub + path, data, headers)) as answer:
        return json.load(answer)

model, called = Anthropic(), []
messages = [{"role": "user", "content": "weather in Oslo, then a report"}]
while True:
    tools = ask(f"/api/v1/tools/export?format=anthropic&threadId={thread}")["tools"]  # what works now; `report` only after `weather`
    answer = model.messages.create(model="scripted", max_tokens=1024, messages=messages, tools=tools)
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})
    if answer.stop_reason != "tool_use":
        break
    called += [block.name for block in answer.content if block.type == "tool_use"]
    messages += ask(f"/api/v1/threads/{thread}/batches?format=anthropic", messages[-1])["messages"]  # a result for each call
print("called:", ", ".join(called))
print("".join(block.text for block in answer.content if block.type == "text"))
