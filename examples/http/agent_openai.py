"""An agent on the official package `openai`, with Toolhub as its tool layer. Needs: pip install openai

The model is whatever OPENAI_BASE_URL and OPENAI_API_KEY name; `toolhub stub-llm` prints an address that needs no real key.
"""
import json, os, urllib.request
from openai import OpenAI

hub, thread = os.environ.get("TOOLHUB_URL", "http://127.0.0.1:8665"), "agent-openai"

def ask(path, body=None):
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ.get('TOOLHUB_TOKEN', '')}"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(hub + path, data, headers)) as answer:
        return json.load(answer)

model, called = OpenAI(), []
messages = [{"role": "user", "content": "weather in Oslo, then a report"}]
while True:
    tools = ask(f"/api/v1/tools/export?format=openai&threadId={thread}")["tools"]  # what works now; `report` only after `weather`
    answer = model.chat.completions.create(model="scripted", messages=messages, tools=tools).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        break
    called += [call.function.name for call in answer.tool_calls]
    messages += ask(f"/api/v1/threads/{thread}/batches?format=openai", messages[-1])["messages"]  # a result for each call
print("called:", ", ".join(called))
print(answer.content)
