// Toolhub as the tool layer of an existing agent: executes the calls of a model's message.
const hub = process.env.TOOLHUB_URL ?? "http://127.0.0.1:8665", thread = "node-agent";

const ask = async (path, body) => {
  const headers = { "content-type": "application/json", authorization: `Bearer ${process.env.TOOLHUB_TOKEN ?? ""}` };
  const answer = await fetch(hub + path, body && { method: "POST", headers, body: JSON.stringify(body) } || { headers });
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer.json();
};

const { tools } = await ask(`/api/v1/tools/export?format=anthropic&threadId=${thread}`); // give these to the model
console.log("offered:", tools.map((tool) => tool.name).join(", "));
const use = { type: "tool_use", id: "toolu_1", name: "weather", input: { city: "Oslo" } };
const messages = [{ role: "assistant", content: [{ type: "text", text: "Let me look." }, use] }]; // what a model answered
messages.push(...(await ask(`/api/v1/threads/${thread}/batches?format=anthropic`, messages.at(-1))).messages);
console.log("answered:", messages.at(-1).content[0].content); // and back to the model with them
