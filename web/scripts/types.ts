// Writes src/api/schema.ts from the OpenAPI document of a server or a file:
//   npm run types -- http://127.0.0.1:8665/openapi.json
import { readFile, writeFile } from "node:fs/promises";
import { typesOf } from "./api-types.ts";

const source = process.argv[2] ?? "http://127.0.0.1:8665/openapi.json";
const text = source.startsWith("http") ? await (await fetch(source)).text() : await readFile(source, "utf8");
await writeFile(new URL("../src/api/schema.ts", import.meta.url), await typesOf(text));
