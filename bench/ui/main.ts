// Measures the dashboard: frames and memory of its pages under load, and what its event streams cost the server.
//
// usage: main.ts --bin TOOLHUB [--long] [--only frames,streams] [--seconds N] [--tools N]
//
// `--seconds` and `--tools` are for a quick look; the targets are for their defaults.
//
// Out: tables with targets. Exits with 1 if a target is missed.

import { parseArgs } from "node:util";
import type { Row } from "./table.ts";

const { values } = parseArgs({ options: { bin: { type: "string" }, long: { type: "boolean" }, only: { type: "string" }, seconds: { type: "string" }, tools: { type: "string", default: "10000" } } });
if (values.bin) process.env.TOOLHUB_BIN = values.bin;
// Read after the binary is named: the test server takes its path when it is loaded.
const { printTable } = await import("./table.ts");
const { measureFrames } = await import("./frames.ts");
const { measureStreams } = await import("./streams.ts");

const chosen = (values.only ?? "frames,streams").split(",");
const rows: Row[] = [];
if (chosen.includes("frames")) rows.push(...(await measureFrames({ seconds: Number(values.seconds ?? 60), isLong: values.long ?? false, tools: Number(values.tools) })));
if (chosen.includes("streams")) rows.push(...(await measureStreams({ rounds: 7, seconds: Number(values.seconds ?? 5) })));
printTable(rows);
process.exit(rows.some(({ isMet }) => isMet === false) ? 1 : 0);
