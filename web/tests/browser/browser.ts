// One Chromium for all tests. Every page is watched: an error of a script, a violation of the content security policy, a
// dialog or a request to another host fails the test.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { chromium, type Browser, type BrowserContext, type BrowserContextOptions, type Locator, type Page } from "playwright-core";
import type { TestServer } from "./server.ts";

let browser: Promise<Browser> | null = null;

/** The headless shell is the same browser without windows: a new page costs it a quarter. */
const program = process.env.CHROMIUM ?? ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"].find((path) => existsSync(path)) ?? "chromium";

export function launch(): Promise<Browser> {
  browser ??= chromium.launch({
    executablePath: program,
    args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
  return browser;
}

export async function quit(): Promise<void> {
  await (await browser)?.close();
}

export interface Watched {
  context: BrowserContext;
  page: Page;
  /** What must not happen; a test that expects some of it empties the list. */
  problems: string[];
  /** The requests of the page, without those of the API. */
  files: string[];
}

export interface Setup extends BrowserContextOptions {
  language?: "en" | "zh" | "pseudo";
  theme?: "light" | "dark";
}

const expectedErrors = /Failed to load resource|net::ERR_/;

export function watch(page: Page, server: { url: string }, problems: string[], files: string[]): void {
  page.on("pageerror", (error) => problems.push(`error: ${error.stack}`));
  page.on("console", (message) => {
    if (/Content Security Policy|violates/.test(message.text())) problems.push(`policy: ${message.text()}`);
    else if (message.type() === "error" && !expectedErrors.test(message.text())) problems.push(`console: ${message.text()}`);
  });
  page.on("dialog", (dialog) => {
    problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(server.url)) problems.push(`foreign request: ${url}`);
    else if (!url.includes("/api/") && !url.includes("/ui/session") && !url.includes("/metrics")) files.push(url);
  });
}

/** A browser without cookies and settings. */
export async function newContext({ language = "en", theme, ...options }: Setup = {}): Promise<BrowserContext> {
  const context = await (await launch()).newContext({ viewport: { width: 1280, height: 800 }, reducedMotion: "reduce", ...(theme && { colorScheme: theme }), ...options });
  // Only where nothing was chosen: a test may choose another one and load the page again.
  await context.addInitScript((chosen) => localStorage.getItem("toolhub.language") ?? localStorage.setItem("toolhub.language", chosen), language);
  await useFiles(context);
  return context;
}

export async function open(server: { url: string }, path = "/ui/", setup: Setup = {}): Promise<Watched> {
  const context = await newContext(setup);
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  const [problems, files]: [string[], string[]] = [[], []];
  watch(page, server, problems, files);
  await page.goto(server.url + path);
  return { context, page, problems, files };
}

/** With UI_DIR the page and its script and style come from that folder: a changed page needs no new binary. */
async function useFiles(context: BrowserContext): Promise<void> {
  const folder = process.env.UI_DIR;
  if (!folder) return;
  const index = readFileSync(`${folder}/index.html`, "utf8");
  await context.route(/\/ui\/(?!session|login|logout)([^.]*)$/, async (route) => {
    if (!route.request().isNavigationRequest()) return route.fallback();
    const response = await route.fetch();
    const [, base, version] = /data-base="([^"]*)" data-version="([^"]*)"/.exec(await response.text()) ?? [];
    return base === undefined ? route.fulfill({ response }) : route.fulfill({ response, body: index.replaceAll("{{base}}", base).replaceAll("{{version}}", version!) });
  });
  await context.route(/\/ui\/[0-9a-f]{16}\/app\.(js|css)$/, (route) => route.fulfill({ path: `${folder}/${route.request().url().split("/").pop()}` }));
}

/** Opens the page with a key. */
export async function openAs(server: TestServer, key: string, path = "/ui/"): Promise<Watched> {
  const opened = await open(server, path);
  await logIn(opened.page, key);
  return opened;
}

export async function logIn(page: Page, key: string): Promise<void> {
  await page.getByLabel("API key").fill(key);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
}

export async function close(opened: Watched): Promise<void> {
  await opened.context.close();
  assert.deepEqual(opened.problems, []);
}

/** Runs `act` with an opened page and closes it. */
export async function withPage(server: { url: string }, path: string, act: (opened: Watched) => Promise<void>, setup: Setup = {}): Promise<void> {
  const opened = await open(server, path, setup);
  try {
    await act(opened);
  } catch (error) {
    if (process.env.KEEP) await opened.page.screenshot({ path: `${process.env.KEEP}/failed-${Date.now()}.png`, fullPage: true });
    if (opened.problems.length > 0) console.error(opened.problems.join("\n"));
    await opened.context.close();
    throw error;
  }
  await close(opened);
}

export const visible = (locator: Locator): Promise<void> => locator.first().waitFor({ state: "visible" });
export const gone = (locator: Locator): Promise<void> => locator.first().waitFor({ state: "hidden" });
