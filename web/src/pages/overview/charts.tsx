export function Charts(_: { tool: string }) { return null; }
