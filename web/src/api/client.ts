// Requests to the server. Every answer that is not a success is an ApiError.

import { base } from "../base/page.ts";
import { observeServerTime } from "../base/clock.ts";
import { parseWithExact } from "../base/exact-json.ts";
import type { Page, Problem } from "./types.ts";

export class ApiError extends Error {
  /** 0 where no answer came. */
  readonly status: number;
  readonly problem: Problem | null;
  readonly retryAfterMs: number | null;

  constructor(status: number, message: string, problem: Problem | null = null, retryAfterMs: number | null = null) {
    super(message);
    this.status = status;
    this.problem = problem;
    this.retryAfterMs = retryAfterMs;
  }

  get code(): string {
    return this.problem?.code ?? "";
  }
}

/** What was thrown, as a failure that can be shown. */
export const toApiError = (thrown: unknown): ApiError => (thrown instanceof ApiError ? thrown : new ApiError(0, String(thrown)));

let language = "en";
let onUnauthenticated: () => void = () => {};

/** The language in which the server answers where it can. */
export const setRequestLanguage = (tag: string): void => void (language = tag);

/** What happens when the server no longer knows who asks. */
export const whenUnauthenticated = (act: () => void): void => void (onUnauthenticated = act);

/** How a request is made beside its path and body. */
interface Options {
  /** After how long without an answer it fails. */
  timeoutMs?: number;
  /** The names of members of the answer, at any depth, in which numbers keep their text. */
  exact?: readonly string[];
}

async function send(method: string, path: string, body?: unknown, more: Record<string, string> = {}, { timeoutMs = 30_000 }: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { accept: "application/json", "accept-language": language, ...more };
  if (body !== undefined) headers["content-type"] = "application/json";
  const init: RequestInit = { method, headers, signal: AbortSignal.timeout(timeoutMs), credentials: "same-origin", cache: "no-store" };
  if (body !== undefined) init.body = JSON.stringify(body);
  let response: Response;
  try {
    response = await fetch(base + path, init);
  } catch (error) {
    throw new ApiError(0, error instanceof Error ? error.message : String(error));
  }
  observeServerTime(response.headers.get("date"));
  if (response.ok) return response;
  const problem = await readProblem(response);
  if (response.status === 401 && !path.startsWith("/ui/")) onUnauthenticated();
  const after = Number(response.headers.get("retry-after"));
  throw new ApiError(response.status, problem?.detail || `HTTP ${response.status}`, problem, after > 0 ? after * 1000 : null);
}

async function readProblem(response: Response): Promise<Problem | null> {
  try {
    return (await response.json()) as Problem;
  } catch {
    return null;
  }
}

async function request<T>(method: string, path: string, body?: unknown, headers?: Record<string, string>, options?: Options): Promise<T> {
  const response = await send(method, path, body, headers, options);
  const text = await response.text();
  return (text ? parseWithExact(text, options?.exact ?? []) : undefined) as T;
}

export const get = <T>(path: string, options?: Options): Promise<T> => request<T>("GET", path, undefined, undefined, options);
export const post = <T>(path: string, body?: unknown, headers?: Record<string, string>, options?: Options): Promise<T> => request<T>("POST", path, body, headers, options);
export const put = <T>(path: string, body: unknown, headers?: Record<string, string>): Promise<T> => request<T>("PUT", path, body, headers);
export const remove = (path: string): Promise<void> => request<void>("DELETE", path);
export const getText = async (path: string): Promise<string> => (await send("GET", path)).text();

/** A path with its parameters; empty ones are left out. */
export function withQuery(path: string, parameters: Record<string, string | number | null | undefined>): string {
  const [name = "", own] = path.split("?");
  const query = new URLSearchParams(own);
  for (const [key, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(key, String(value));
  }
  const text = query.toString();
  return text ? `${name}?${text}` : name;
}

/** All items of a list, page by page, up to `limit`. */
export async function getAll<T>(path: string, limit = 20_000): Promise<T[]> {
  const items: T[] = [];
  let cursor: string | null | undefined = "";
  do {
    const page: Page<T> = await get(withQuery(path, { limit: 500, cursor }));
    items.push(...page.items);
    cursor = page.nextCursor;
  } while (cursor && items.length < limit);
  return items;
}

export const segment = encodeURIComponent;
