// Short names of the API's types.

import type { components } from "./schema.ts";

type Schemas = components["schemas"];

export type Tool = Schemas["Tool"];
export type ToolStatus = Schemas["ToolStatus"];
export type ToolLimits = Schemas["ToolLimits"];
export type ToolStats = Schemas["ToolStats"];
export type ToolStatusInfo = Schemas["ToolStatusInfo"];
export type Explanation = Schemas["ExplainResponse"];
export type Approval = Schemas["Approval"];
export type ApprovalState = Schemas["ApprovalState"];
export type ApprovalOutcome = Schemas["ApprovalOutcome"];
export type AnswerBody = Schemas["AnswerBody"];
export type Grant = Schemas["Grant"];
export type Call = Schemas["Call"];
export type CallForecast = Schemas["CallForecast"];
export type CallSeries = Schemas["CallSeries"];
export type CallStatus = Schemas["CallStatus"];
export type ErrorKind = Schemas["ErrorKind"];
export type Refusal = Schemas["Refusal"];
export type Run = Schemas["RunRecord"];
export type RunStatus = Schemas["RunStatus"];
export type RunCall = Schemas["RunCall"];
export type Message = Schemas["StoredMessage"];
export type Thread = Schemas["ListedThread"];
export type Agent = Schemas["AgentInfo"];
export type TimelineStep = Schemas["TimelineStep"];
export type Instance = Schemas["InstanceInfo"];
export type ContextInfo = Schemas["ContextInfo"];
export type Info = Schemas["Info"];
export type McpServer = Schemas["McpServerSummary"];
export type McpServerInfo = Schemas["SourceInfo"];
export type DefinitionChange = Schemas["DefinitionChange"];
export type NodeReload = Schemas["NodeReload"];
export type Node = Schemas["Node2"];
export type Key = Schemas["Key"];
export type Graph = Schemas["Graph"];
export type CreatedKey = Schemas["CreatedKey"];
export type ActiveAlert = Schemas["ActiveAlert"];
export type AlertTarget = Schemas["AlertTarget"];
export type AlertDelivery = Schemas["AlertDelivery"];
export type AlertTestResult = Schemas["AlertTestResult"];
export type AuditEntry = Schemas["AuditEntry"];
export type Backup = Schemas["Backup"];
export type ConfigValue = Schemas["ConfigValue"];
export type ConfigErrorItem = Schemas["ConfigErrorItem"];
export type StateEntry = Schemas["StateEntry"];
export type StateKind = Schemas["StateKind"];
export type StateVersion = Schemas["StateVersion"];
export type HistoryEntry = Schemas["HistoryEntry"];
export type Problem = Schemas["Problem"];
export type ReloadReport = Schemas["ReloadReport"];
export type Scope = Schemas["Scope"];
export type RateLimit = Schemas["RateLimit"];

export interface Page<T> {
  items: T[];
  nextCursor?: string | null;
}

/** Who uses the page, from `GET /ui/session`. */
export interface Session {
  loginNeeded: boolean;
  local: boolean;
  tenant?: string | null;
  caller?: string | null;
  scopes: Scope[];
  expiresAt?: string | null;
  version: string;
  /** The version of the page's files that the server has. */
  uiVersion: string;
  features: string[];
}

/** An event of the stream; its members depend on its type. */
export interface HubEvent {
  id?: number;
  event: string;
  timestamp: string;
  threadId?: string;
  toolName?: string;
  approvalId?: string;
  [member: string]: unknown;
}
