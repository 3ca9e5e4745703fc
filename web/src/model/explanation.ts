// What the views show of an explanation.

import type { ClusterExplanation, FieldOverride } from "../api/preview";

/** A cluster of an explanation, as a row of a table. */
export interface PlacementRow {
  cluster: string;
  verdict: ClusterExplanation["verdict"];
  why: string;
  reason: string;
  score?: number;
  replicas?: number;
  revision?: number;
  waitsFor: string;
  overrides: number;
}

const verdictOrder = ["Leaves", "Kept", "Placed", "Gone", "Out"];

/** Returns a row for each cluster: those that hold something first, and the unfinished ones before them. */
export function placementRows(clusters: readonly ClusterExplanation[]): PlacementRow[] {
  const out = clusters.map((c): PlacementRow => ({
    cluster: c.cluster,
    verdict: c.verdict,
    why: c.reason || c.keptLost || c.failureText || "",
    reason: c.reasonCode || c.filter || "",
    score: c.score?.total,
    replicas: c.row?.assigned && Object.values(c.row.assigned).reduce((sum, n) => sum + n, 0),
    revision: c.row?.number,
    waitsFor: c.row?.waitsFor ?? "",
    overrides: new Set((c.overrides ?? []).filter((o) => !o.skipped).map((o) => o.policy)).size,
  }));
  const rank = (r: PlacementRow) => (r.waitsFor ? 0 : 1) + 2 * verdictOrder.indexOf(r.verdict);
  return out.sort((a, b) => rank(a) - rank(b) || (a.cluster < b.cluster ? -1 : a.cluster > b.cluster ? 1 : 0));
}

/** Returns a rendered object without the values of a Secret. */
export function withoutSecretValues(o: Record<string, unknown>): Record<string, unknown> {
  if (o["kind"] !== "Secret") return o;
  const hide = (v: unknown) => (v && typeof v === "object" ? Object.fromEntries(Object.keys(v).map((key) => [key, "•••"])) : v);
  const out = { ...o };
  for (const field of ["data", "stringData"]) if (field in out) out[field] = hide(out[field]);
  return out;
}

/** A rule that set a field, in one line. */
export function describeOverride(o: FieldOverride): string {
  const rule = `${o.policy} #${o.rule}${o.overrider ? " " + o.overrider : ""}`;
  if (o.skipped) return `${rule}: ${o.skipped}`;
  const value = o.hidden ? "•••" : o.value === undefined || o.value === null ? "∅" : JSON.stringify(o.value);
  return `${o.path ?? ""} = ${value} (${rule})`;
}
