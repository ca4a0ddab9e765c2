// The same call for a terminal or a program.

export interface SnippetCall {
  /** The address of the server, with its path prefix. */
  server: string;
  tool: string;
  arguments: unknown;
  threadId: string;
  needsKey: boolean;
}

/** A word of a POSIX shell. */
export const quoted = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

const url = ({ server, tool }: SnippetCall): string => `${server}/api/v1/tools/${encodeURIComponent(tool)}/calls`;
const bodyOf = (call: SnippetCall) => ({ arguments: call.arguments, ...(call.threadId && { threadId: call.threadId }) });

export function curl(call: SnippetCall): string {
  const key = call.needsKey ? ` -H "authorization: Bearer $TOOLHUB_KEY"` : "";
  return `curl -s ${quoted(url(call))} -H 'content-type: application/json'${key} -d ${quoted(JSON.stringify(bodyOf(call)))}`;
}

export const command = (call: SnippetCall): string =>
  `toolhub call --args ${quoted(JSON.stringify(call.arguments))}${call.threadId ? ` --thread ${quoted(call.threadId)}` : ""} --server ${quoted(call.server)} -- ${quoted(call.tool)}`;

export function python(call: SnippetCall): string {
  // JSON inside a string, because Python writes true, false and null in other words.
  return [
    `import ${call.needsKey ? "json, os, urllib.request" : "json, urllib.request"}`,
    "",
    `body = json.loads(${JSON.stringify(JSON.stringify(bodyOf(call)))})`,
    `headers = {"content-type": "application/json"${call.needsKey ? `, "authorization": "Bearer " + os.environ["TOOLHUB_KEY"]` : ""}}`,
    `request = urllib.request.Request(${JSON.stringify(url(call))}, json.dumps(body).encode(), headers)`,
    "print(json.load(urllib.request.urlopen(request)))",
  ].join("\n");
}
