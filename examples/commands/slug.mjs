// A stateless tool: turns a title into a URL slug. One process per call.
import { readFileSync } from "node:fs";

const { arguments: { title } } = JSON.parse(readFileSync(0, "utf8"));
const slug = title.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
console.log(JSON.stringify({ slug }));
