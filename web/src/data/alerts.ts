// The targets of alerts, and what was delivered to them.

import { get, post, segment, withQuery } from "../api/client.ts";
import type { AlertDelivery, AlertTarget, AlertTestResult, Page } from "../api/types.ts";
import { Resource } from "./resource.ts";

const items = async <T>(path: string): Promise<T[]> => (await get<Page<T>>(withQuery(path, { limit: 100 }))).items;

export const alerts = new Resource<AlertTarget[]>(() => items("/api/v1/alerts"), {
  changes: ({ event }) => event === "alert.failed" || event === "tool.status.changed" || event === "config.reloaded",
  everyMs: 5_000,
});

export const deliveriesOf = (target: string): Resource<AlertDelivery[]> =>
  new Resource(() => items(`/api/v1/alerts/${segment(target)}/deliveries`), { everyMs: 5_000 });

export const testTarget = (name: string): Promise<AlertTestResult> => post(`/api/v1/alerts/${segment(name)}/test`);

export const retryDeliveries = (name: string): Promise<unknown> => post(`/api/v1/alerts/${segment(name)}/retry`);
