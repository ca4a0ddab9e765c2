// The real binary with a config of a test, on a free port.
import { resolve } from "node:path";
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";

export const binary = resolve(process.env.TOOLHUB_BIN ?? new URL("../../../target/ci/toolhub", import.meta.url).pathname);

const ownStore = `
[store]
backend = "sqlite"
path = "toolhub.db"
`;

/** Tools that every test has; more of them stand behind. */
const baseConfig = `
[status]
failure_threshold = 3
failure_duration = "3s"

[llm]
provider = "scripted"

[tools.calculator]
builtin = "calculator"
[tools.notes]
builtin = "notes"
[tools.flaky]
builtin = "flaky"
retry = { attempts = 1 }
[tools.clock]
builtin = "clock"
[tools.report]
builtin = "report"
depends_on = ["clock"]
[tools.dangerous]
builtin = "dangerous"
`;

export interface Options {
  config?: string;
  /** The section of the store, instead of one of the server's own. */
  store?: string;
  /** Keys mode, with one key for administrators. */
  keys?: boolean;
  publicUrl?: string;
  /** A config with large documents takes long to read. */
  startTimeoutMs?: number;
}

export class TestServer {
  url = "";
  /** The key of the administrator; empty in local mode. */
  adminKey = "";
  readonly folder = mkdtempSync(`${tmpdir()}/toolhub-browser-`);
  port = 0;
  private startTimeoutMs: number | undefined;
  private child: ChildProcess | null = null;
  private static readonly running = new Set<TestServer>();

  /** Stops what tests that failed left behind: a process that runs would keep the suite from ending. */
  static async stopAll(): Promise<void> {
    await Promise.all([...TestServer.running].map((server) => server.stop()));
  }

  static async start(options: Options = {}): Promise<TestServer> {
    const server = new TestServer();
    server.startTimeoutMs = options.startTimeoutMs;
    server.port = await freePort();
    server.url = `http://127.0.0.1:${server.port}`;
    let config = (options.store ?? ownStore) + baseConfig + (options.config ?? "");
    if (options.keys) {
      const made = JSON.parse(execFileSync(binary, ["keys", "create", "boss", "--scope", "admin", "--json"], { cwd: server.folder, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }));
      server.adminKey = made.key;
      config = `[auth]\nmode = "keys"\n${made.config}\n${config}`;
    }
    if (options.publicUrl) config = `[server]\npublic_url = "${options.publicUrl}"\n${config}`;
    writeFileSync(`${server.folder}/toolhub.toml`, config);
    try {
      await server.run();
    } catch (error) {
      await server.stop();
      throw error;
    }
    return server;
  }

  /** Starts the process; a second time on the port of the first. */
  async run(): Promise<void> {
    const child = spawn(binary, ["serve", "--port", String(this.port), "--no-input"], { cwd: this.folder, stdio: ["ignore", "pipe", "pipe"] });
    this.child = child;
    TestServer.running.add(this);
    const output: string[] = [];
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text: string) => output.push(text));
    await until("the server to be ready", async () => {
      if (child.exitCode !== null) throw new Error(`toolhub ended with ${child.exitCode}:\n${output.join("")}`);
      return (await fetch(`${this.url}/livez`).catch(() => null))?.ok;
    }, this.startTimeoutMs);
  }

  /** A file in the folder in which the server and its programs run. */
  write(name: string, text: string): void {
    writeFileSync(`${this.folder}/${name}`, text);
  }

  async kill(): Promise<void> {
    const child = this.child;
    this.child = null;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((done) => child.once("exit", done));
    child.kill("SIGKILL");
    await ended;
  }

  /** Lets the process stand still until `go`: its connections stay open, and nothing comes. */
  stand(): void {
    this.child?.kill("SIGSTOP");
  }

  go(): void {
    this.child?.kill("SIGCONT");
  }

  async stop(): Promise<void> {
    TestServer.running.delete(this);
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  readConfig(): string {
    return readFileSync(`${this.folder}/toolhub.toml`, "utf8");
  }

  writeConfig(text: string): void {
    writeFileSync(`${this.folder}/toolhub.toml`, text);
  }

  /** A request as the administrator. */
  async api<T = any>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
    const init: RequestInit = { method, headers: { ...headers } };
    if (this.adminKey) Object.assign(init.headers!, { authorization: `Bearer ${this.adminKey}` });
    if (body !== undefined) {
      Object.assign(init.headers!, { "content-type": "application/json" });
      init.body = JSON.stringify(body);
    }
    const response = await fetch(this.url + path, init);
    const text = await response.text();
    const answer = text ? JSON.parse(text) : null;
    return typeof answer === "object" && answer !== null && !Array.isArray(answer) ? { httpStatus: response.status, ...answer } : answer;
  }

  call(tool: string, args: unknown = {}, threadId?: string): Promise<any> {
    return this.api("POST", `/api/v1/tools/${tool}/calls`, { arguments: args, ...(threadId && { threadId }) });
  }

  /** A call that waits for an approval; the id of the approval. */
  async ask(tool: string, args: unknown, threadId?: string): Promise<string> {
    const answer = await this.call(tool, args, threadId);
    if (!answer.approval) throw new Error(`no approval: ${JSON.stringify(answer)}`);
    return answer.approval.id;
  }

  async key(name: string, scopes: string[]): Promise<{ id: string; key: string }> {
    const made = await this.api("POST", "/api/v1/keys", { name, scopes });
    if (!made.key) throw new Error(`no key: ${JSON.stringify(made)}`);
    return made;
  }
}

/** A port that is free now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Waits until the condition holds, and says what did not. */
export async function until<T>(what: string, condition: () => Promise<T> | T, timeoutMs = 10_000): Promise<T> {
  const end = Date.now() + timeoutMs;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`waited ${timeoutMs} ms for ${what}`);
    await new Promise((next) => setTimeout(next, 20));
  }
}
