// The hub's table of reasons: what each means, and its actor.

import { getReasons } from "../api/client";

interface ReasonText {
  reason: string;
  subject: string;
  actor: string;
  sentence: string;
}

const byReason = new Map<string, ReasonText>();

export async function loadReasons(): Promise<void> {
  for (const r of await getReasons<ReasonText[]>()) if (!byReason.has(r.reason)) byReason.set(r.reason, r);
}

export function sentenceOf(reason: string): string {
  return byReason.get(reason)?.sentence ?? "";
}

export function actorOf(reason: string): string {
  return byReason.get(reason)?.actor ?? "";
}
