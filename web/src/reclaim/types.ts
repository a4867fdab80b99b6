/** Objects of reclaim as the API gives them. */
import type { Answer } from "../api/client";

export type Plan = Answer<"/api/v1/plan">;
export type Decision = Plan["items"][number];
export type Guard = Decision["answers"][number];
export type Change = Decision["changes"][number];
export type Action = Answer<"/api/v1/actions">["items"][number];
export type Savings = Answer<"/api/v1/savings">;
export type Mode = Plan["mode"];
