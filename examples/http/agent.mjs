// Toolhub as the tool layer of an existing agent: executes the calls of a model's message, and waits for approvals.
const hub = process.env.TOOLHUB_URL ?? "http://127.0.0.1:8665", thread = "node-agent";

const ask = async (path, body, more = {}) => {
  const headers = { "content-type": "application/json", authorization: `Bearer ${process.env.TOOLHUB_TOKEN ?? ""}`, ...more };
  const answer = await fetch(hub + path, body && { method: "POST", headers, body: JSON.stringify(body) } || { headers });
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer.json();
};

// The tool messages for a model's message. A call that needs approval is made again, with the same key, until a person answered.
const execute = async (message) => {
  const key = { "idempotency-key": crypto.randomUUID(), prefer: "wait=60" };
  for (;;) {
    const done = await ask(`/api/v1/threads/${thread}/batches?format=anthropic`, message, key); // finished calls are replayed, not repeated
    const waiting = done.calls.filter((call) => call.status === "awaiting_approval");
    if (!waiting.length) return done.messages;
    console.log("waiting for approval:", ...waiting.map((call) => call.approval.url)); // for a person, not for the model
  }
};

const { tools } = await ask(`/api/v1/tools/export?format=anthropic&threadId=${thread}`); // give these to the model
console.log("offered:", tools.map((tool) => tool.name).join(", "));
const use = { type: "tool_use", id: "toolu_1", name: "weather", input: { city: "Oslo" } };
const messages = [{ role: "assistant", content: [{ type: "text", text: "Let me look." }, use] }]; // what a model answered
messages.push(...(await execute(messages.at(-1))));
console.log("answered:", messages.at(-1).content[0].content); // and back to the model with them
