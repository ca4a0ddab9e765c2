// Renders the page from openapi.json: inputs and responses of each route, and a form to try it.
// Text from the document and from responses is only ever inserted as text, never as HTML.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];
let spec = {};

const byId = (id) => document.getElementById(id);

/** Creates an element with properties and children; children that are strings become text. */
function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Turns the parts of a text between backticks into code elements. */
function withCode(text) {
  return (text || "").split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

/** Follows `$ref`s. */
function resolve(schema) {
  const seen = new Set();
  while (schema && schema.$ref && !seen.has(schema.$ref)) {
    seen.add(schema.$ref);
    schema = schema.$ref.slice(2).split("/").reduce((at, part) => at && at[part], spec);
  }
  return schema || {};
}

/** A short name of a schema's type. */
function typeName(schema) {
  if (schema === true || !schema) return "anything";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const alternatives = schema.oneOf || schema.anyOf;
  if (alternatives) return alternatives.map(typeName).join(" | ");
  if (schema.allOf) return schema.allOf.map(typeName).join(" & ");
  const types = [].concat(schema.type || "anything");
  return types.map((type) => {
    if (type === "array") return `[${typeName(schema.items)}]`;
    return schema.format ? `${type} (${schema.format})` : type;
  }).join(" | ");
}

/** The members of a schema, one per line, at most five levels deep. */
function shape(schema, depth = 0, ancestors = []) {
  const name = schema && schema.$ref;
  if (name && ancestors.includes(name)) return typeName(schema);
  const resolved = resolve(schema);
  const inner = name ? [...ancestors, name] : ancestors;
  const pad = "  ".repeat(depth + 1);
  if (depth > 4) return typeName(schema);
  const alternatives = resolved.oneOf || resolved.anyOf;
  if (alternatives && alternatives.some((one) => resolve(one).properties)) {
    return alternatives.map((one) => shape(one, depth, inner)).join(` or `);
  }
  if ([].concat(resolved.type).includes("array") && resolved.items) return `[${shape(resolved.items, depth, inner)}]`;
  const parts = (resolved.allOf || []).map(resolve);
  const properties = Object.assign({}, ...parts.map((part) => part.properties || {}), resolved.properties || {});
  const names = Object.keys(properties);
  if (names.length === 0) return resolved === schema || !name ? typeName(resolved) : typeName(resolved) === "anything" ? typeName(schema) : typeName(resolved);
  const required = new Set([...(resolved.required || []), ...parts.flatMap((part) => part.required || [])]);
  const lines = names.map((member) => {
    const one = properties[member];
    const text = resolve(one).description || one.description;
    const note = text ? `  — ${text.split("\n")[0]}` : "";
    return `${pad}${member}${required.has(member) ? "" : "?"}: ${shape(one, depth + 1, inner)}${note}`;
  });
  return `{\n${lines.join("\n")}\n${"  ".repeat(depth)}}`;
}

/** An example value for a schema, to edit. */
function example(schema, depth = 0) {
  const resolved = resolve(schema);
  if (resolved.example !== undefined) return resolved.example;
  if (resolved.examples && resolved.examples.length) return resolved.examples[0];
  if (resolved.default !== undefined && resolved.default !== null) return resolved.default;
  if (resolved.const !== undefined) return resolved.const;
  if (resolved.enum) return resolved.enum[0];
  const alternatives = resolved.oneOf || resolved.anyOf;
  if (alternatives) return example(alternatives.find((one) => resolve(one).type !== "null") || alternatives[0], depth);
  const type = [].concat(resolved.type || (resolved.properties ? "object" : "any")).find((one) => one !== "null");
  if (type === "object") {
    const object = {};
    if (depth > 4) return object;
    const required = resolved.required || [];
    const names = Object.keys(resolved.properties || {});
    for (const name of names) {
      if (required.includes(name) || names.length <= 3) object[name] = example(resolved.properties[name], depth + 1);
    }
    return object;
  }
  if (type === "array") return depth > 4 ? [] : [example(resolved.items, depth + 1)];
  if (type === "integer" || type === "number") return resolved.minimum || 1;
  if (type === "boolean") return true;
  if (type === "string") return "";
  return {};
}

/** The input element of a parameter. */
function field(parameter) {
  const schema = resolve(parameter.schema);
  const hint = (schema.examples && String(schema.examples[0])) || (schema.default !== undefined ? String(schema.default) : typeName(schema));
  if (schema.enum) {
    const empty = parameter.required ? [] : [make("option", { value: "" }, "")];
    return make("select", {}, empty, schema.enum.map((value) => make("option", { value }, String(value))));
  }
  return make("input", { type: "text", placeholder: hint, spellcheck: false, autocomplete: "off" });
}

function parameters(list) {
  const rows = list.map((parameter) => {
    const input = field(parameter);
    input.setAttribute("aria-label", parameter.name);
    input.dataset.name = parameter.name;
    input.dataset.place = parameter.in;
    const name = make("code", { className: parameter.required ? "must" : "" }, parameter.name);
    const what = make("span", {}, withCode(parameter.description));
    const type = make("div", { className: "soft" }, `${parameter.in} · ${typeName(parameter.schema)}`);
    return make("tr", {}, make("td", {}, name), make("td", {}, what, type), make("td", {}, input));
  });
  return make("table", { className: "fields" }, rows);
}

function responseList(responses) {
  const each = Object.entries(responses).sort(([a], [b]) => a.localeCompare(b)).map(([status, answer]) => {
    const content = Object.entries(answer.content || {});
    const head = make("summary", {}, make("span", { className: `status ${status < 400 ? "ok" : "no"}` }, status), " ", withCode(answer.description));
    const bodies = content.map(([media, one]) => [
      make("div", { className: "soft" }, media),
      one.schema ? make("pre", { className: "shape" }, shape(one.schema)) : null,
    ]);
    return make("details", {}, head, bodies.length ? bodies.flat() : make("p", { className: "soft" }, "No body."));
  });
  return make("div", { className: "answers" }, each);
}

/** Builds a request from the form. */
function request(method, path, form, body) {
  const query = new URLSearchParams();
  const headers = {};
  let filled = path;
  for (const input of form.querySelectorAll("[data-place]")) {
    const { name, place } = input.dataset;
    const value = input.value;
    if (place === "path") filled = filled.replace(`{${name}}`, encodeURIComponent(value));
    else if (value === "") continue;
    else if (place === "query") query.append(name, value);
    else headers[name] = value;
  }
  const key = byId("key").value.trim();
  if (key) headers.Authorization = `Bearer ${key}`;
  const text = body && body.value.trim() !== "" ? body.value : undefined;
  if (text !== undefined) headers["Content-Type"] = "application/json";
  const url = new URL(filled.replace(/^\//, ""), new URL(".", document.baseURI));
  url.search = query.toString();
  return { url, init: { method: method.toUpperCase(), headers, body: text } };
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The same request as a curl command; the key is replaced by a variable. */
function curl({ url, init }) {
  const headerArgs = Object.entries(init.headers).map(([name, value]) =>
    name === "Authorization" ? ' -H "Authorization: Bearer $TOOLHUB_TOKEN"' : ` -H ${quoted(`${name}: ${value}`)}`);
  const methodArg = init.method === "GET" ? "" : ` -X ${init.method}`;
  return `curl -s${methodArg}${headerArgs.join("")}${init.body === undefined ? "" : ` -d ${quoted(init.body)}`} ${quoted(url.href)}`;
}

function pretty(text, media) {
  if (!/json/.test(media)) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Shows a response: a stream as it arrives, its last 100,000 characters; anything else when it is complete. */
async function show(response, place) {
  const media = response.headers.get("content-type") || "";
  const shownHeaders = ["content-type", "etag", "link", "location", "retry-after", "durability"]
    .filter((name) => response.headers.has(name)).map((name) => `${name}: ${response.headers.get(name)}`);
  const status = make("span", { className: `status ${response.ok ? "ok" : "no"}` }, `${response.status} ${response.statusText}`);
  const body = make("pre", {});
  place.replaceChildren(status, make("div", { className: "soft" }, shownHeaders.join(" · ")), body);
  if (!media.startsWith("text/event-stream")) {
    body.textContent = pretty(await response.text(), media);
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    body.textContent = (body.textContent + part.value).slice(-100000);
    body.scrollTop = body.scrollHeight;
  }
}

function operationForm(method, path, operation) {
  const box = make("div", { className: "inside" });
  const scope = operation["x-toolhub-scope"];
  box.append(make("p", { className: "soft" }, scope ? `Needs the scope ${scope}.` : "Needs no key."));
  if (operation.description) box.append(make("p", {}, withCode(operation.description)));
  const list = operation.parameters || [];
  if (list.length) box.append(make("h3", {}, "Parameters"), parameters(list));
  let body = null;
  if (operation.requestBody) {
    const { schema } = Object.values(operation.requestBody.content)[0];
    const value = operation.requestBody.required ? JSON.stringify(example(schema), null, 2) : "";
    body = make("textarea", { spellcheck: false, value, placeholder: JSON.stringify(example(schema)) });
    body.setAttribute("aria-label", "Body");
    const needed = operation.requestBody.required ? "Body" : "Body (optional)";
    box.append(make("h3", {}, needed), make("pre", { className: "shape" }, shape(schema)), body);
  }
  const answer = make("div", { className: "answer" });
  answer.setAttribute("aria-live", "polite");
  const command = make("pre", { hidden: true });
  let stop = null;
  const send = make("button", { type: "button" }, "Send");
  send.addEventListener("click", async () => {
    if (stop) return stop.abort();
    const missing = [...box.querySelectorAll('[data-place="path"]')].find((input) => input.value === "");
    if (missing) {
      missing.focus();
      return answer.replaceChildren(make("p", { className: "error" }, `${missing.dataset.name} is required.`));
    }
    stop = new AbortController();
    send.textContent = "Stop";
    answer.replaceChildren(make("p", { className: "soft" }, "Waiting…"));
    try {
      const { url, init } = request(method, path, box, body);
      await show(await fetch(url, { ...init, signal: stop.signal, cache: "no-store" }), answer);
    } catch (error) {
      if (error.name !== "AbortError") answer.replaceChildren(make("p", { className: "error" }, String(error)));
      else if (!answer.querySelector("pre")) answer.replaceChildren(make("p", { className: "soft" }, "Stopped."));
    } finally {
      stop = null;
      send.textContent = "Send";
    }
  });
  const terminal = make("button", { type: "button", className: "plain" }, "As curl");
  terminal.addEventListener("click", () => {
    command.hidden = !command.hidden;
    command.textContent = curl(request(method, path, box, body));
  });
  box.append(make("h3", {}, "Try it"), make("div", { className: "act" }, send, terminal), command, answer);
  box.append(make("h3", {}, "Responses"), responseList(operation.responses || {}));
  return box;
}

function route(method, path, operation) {
  const summary = make("summary", {},
    make("span", { className: `method ${method}` }, method.toUpperCase()), make("code", {}, path),
    make("span", { className: "what" }, withCode(operation.summary)));
  const details = make("details", { className: "route", id: operation.operationId || "" }, summary);
  details.dataset.words = `${method} ${path} ${operation.summary || ""} ${(operation.tags || []).join(" ")}`.toLowerCase();
  // Rendered when it is first opened: most routes never are.
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) details.append(operationForm(method, path, operation));
  });
  return details;
}

function find() {
  const terms = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of document.querySelectorAll("section")) {
    let visible = 0;
    for (const item of section.querySelectorAll("details.route")) {
      item.hidden = !terms.every((term) => item.dataset.words.includes(term));
      visible += item.hidden ? 0 : 1;
    }
    section.hidden = visible === 0;
  }
}

async function render() {
  const answer = await fetch(new URL("openapi.json", document.baseURI));
  if (!answer.ok) throw new Error(`openapi.json: ${answer.status}`);
  spec = await answer.json();
  byId("version").textContent = spec.info.version;
  byId("about").append(...withCode(spec.info.description));
  const groups = new Map();
  for (const [path, methods] of Object.entries(spec.paths)) {
    for (const method of METHODS.filter((one) => methods[one])) {
      const tag = (methods[method].tags || ["other"])[0];
      groups.set(tag, [...(groups.get(tag) || []), route(method, path, methods[method])]);
    }
  }
  const main = byId("routes");
  main.replaceChildren();
  for (const [tag, routes] of [...groups].sort(([a], [b]) => a.localeCompare(b))) {
    byId("tags").append(make("a", { href: `#group-${tag}` }, tag, make("span", {}, String(routes.length))));
    main.append(make("section", { id: `group-${tag}` }, make("h2", {}, tag), routes));
  }
  byId("find").addEventListener("input", find);
  const target = location.hash && byId(location.hash.slice(1));
  if (target) {
    target.open = true;
    target.scrollIntoView();
  }
}

render().catch((error) => {
  byId("state").textContent = `Could not load openapi.json: ${error.message}`;
  byId("state").className = "error";
});
