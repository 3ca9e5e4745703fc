// The sentences of a plan, in the order in which a person needs them.

import type { BundlePlan, FieldChange, ItemChange, Plan, RowGroup } from "../api/plan";
import { type TextKey, t } from "../text/text";

export type Sign = "+" | "-" | "~" | "!";

export interface PlanLine {
  sign: Sign;
  text: string;
  details: string[];
}

export interface PlanPart {
  title: string;
  lines: PlanLine[];
}

const maxNames = 12;
const maxDetails = 200;
/** So many applications are told, and so many groups of clusters of each; the others are counted. */
const maxParts = 100;
const maxRows = 200;
const maxValue = 120;

/** Returns the first names, and counts the others. */
export function joinNames(names: readonly string[]): string {
  const more = names.length - maxNames;
  return names.slice(0, maxNames).join(", ") + (more > 0 ? " " + t("more", { n: more }) : "");
}

/** Returns the short name of an item's key, GROUP/KIND/NAMESPACE/NAME. */
export function nameOfKey(key: string): string {
  const parts = key.split("/");
  return parts.length < 4 ? key : `${parts[1]} ${parts.slice(3).join("/")}`;
}

function formatValue(f: FieldChange, value: unknown): string {
  if (f.hidden) return "•••";
  if (value === undefined || value === null) return "∅";
  const text = JSON.stringify(value);
  return text.length > maxValue ? text.slice(0, maxValue) + "…" : text;
}

/** Returns what a cluster would do with an item instead of applying its fields; nothing: it applies them. */
function noteOf(i: ItemChange): string | undefined {
  if (i.error) return t(i.change === "Added" ? "plan.failed.new" : "plan.failed", { why: i.error });
  if (i.observe === "Approve") return t("plan.observe.approval");
  if (i.observe) return t(i.observe === "Drift" ? "plan.observe.drift" : "plan.observe");
  if (i.recreate) return t("plan.recreate");
  return i.written ? t("plan.written") : undefined;
}

function resolutionOf(text: string | undefined): string {
  return text || t("plan.conflict.policy");
}

function accountOf(text: string | undefined): string {
  return text || t("plan.account.agent");
}

function itemDetails(i: ItemChange): string[] {
  const sign = { Added: "+", Removed: "-", Changed: "~" }[i.change];
  const name = nameOfKey(i.key);
  const note = noteOf(i);
  const out = note ? [`! ${name}: ${note}`] : [];
  const add = (text: string) => out.push(`~ ${name}: ${text}`);
  if (i.conflictBefore !== i.conflictAfter) add(t("plan.conflict", { before: resolutionOf(i.conflictBefore), after: resolutionOf(i.conflictAfter) }));
  if (i.serviceAccountBefore !== i.serviceAccountAfter) {
    add(i.change === "Added" ? t("plan.account.new", { after: accountOf(i.serviceAccountAfter) }) : t("plan.account", { before: accountOf(i.serviceAccountBefore), after: accountOf(i.serviceAccountAfter) }));
  }
  if (i.reassessed) add(t("plan.reassessed"));
  for (const path of i.released ?? []) add(t("plan.released", { path }));
  for (const path of i.corrected ?? []) add(t("plan.corrected", { path }));
  for (const f of i.fields ?? []) out.push(`${sign} ${name}: ${f.path}: ${formatValue(f, f.before)} → ${formatValue(f, f.after)}${f.memberOwned ? " " + t("plan.memberOwned") : ""}`);
  return out.length > 0 ? out : [`${sign} ${name}`];
}

/** Returns what becomes of an item's replicas. An item that stays without a share has those that its template states. */
function replicasText(r: RowGroup, item: string, n: { before?: number; after?: number }): string {
  const isUndivided = r.change === "Changed" && n.after === undefined && !(r.items ?? []).some((i) => i.change === "Removed" && i.key === item);
  return isUndivided ? t("plan.undivided") : t("plan.replicas", { before: n.before ?? 0, after: n.after ?? 0 });
}

function rowLine(r: RowGroup): PlanLine {
  const key: TextKey = r.change === "Removed" && r.orphaned ? "plan.Orphaned" : `plan.${r.change}`;
  const details: string[] = [];
  for (const [item, n] of Object.entries(r.replicas ?? {})) details.push(`~ ${nameOfKey(item)}: ${replicasText(r, item, n)}`);
  for (const i of r.items ?? []) details.push(...itemDetails(i));
  for (const s of r.stays ?? []) details.push(`· ${t("plan.stays", { object: nameOfKey(s) })}`);
  if (r.waits) details.push(`! ${t("plan.waits", { what: r.waits })}`);
  if (details.length > maxDetails) details.splice(maxDetails, details.length, t("more", { n: details.length - maxDetails }));
  return { sign: r.change === "Added" ? "+" : r.change === "Removed" ? "-" : "~", text: t(key, { clusters: joinNames(r.clusters), n: r.clusters.length }) + (r.why ? ` — ${r.why}` : ""), details };
}

/** Returns the lines of the first groups of clusters. Where not all are told, removals are the first. */
function rowLines(rows: RowGroup[]): PlanLine[] {
  const more = rows.length - maxRows;
  if (more <= 0) return rows.map(rowLine);
  const order = [...rows.filter((r) => r.change === "Removed"), ...rows.filter((r) => r.change !== "Removed")];
  return [...order.slice(0, maxRows).map(rowLine), { sign: "!", text: t("plan.cut", { n: more }), details: [] }];
}

function bundlePart(b: BundlePlan): PlanPart {
  const lines: PlanLine[] = [];
  const warn = (text: string, details: string[] = []) => lines.push({ sign: "!", text, details });
  if (b.held?.length) warn(t("plan.held", { n: b.held.length }), b.held.slice(0, maxDetails));
  lines.push(...rowLines(b.rows ?? []));
  if (b.noFit) warn(t("plan.noFit"));
  if (b.unmet) warn(b.unmet);
  if (b.waits) warn(t("plan.nothingSent", { why: b.waits }));
  for (const s of b.short ?? []) warn(t("plan.short", { item: nameOfKey(s.item), unplaced: s.unplaced, replicas: s.replicas }));
  for (const f of b.full ?? []) warn(t(f.stays ? "plan.full.stays" : "plan.full", { cluster: f.cluster, why: f.why }));
  for (const s of b.staysDrained ?? []) warn(t("plan.staysDrained", { cluster: s.cluster, why: s.why }));
  for (const o of b.oldCopies ?? []) warn(t("plan.oldCopies", { clusters: joinNames(o.clusters), what: o.for }));
  for (const k of b.keptByBudget ?? []) warn(t("plan.keptByBudget", { clusters: joinNames(k.clusters), what: k.for }));
  if (b.strictBudget) warn(b.strictBudget);
  for (const p of b.problems ?? []) warn(`${p.object}: ${p.why}`);
  if (b.unknown?.length) warn(t("plan.unknown", { clusters: joinNames(b.unknown) }));
  if (b.frozen?.length) warn(t("plan.frozen", { objects: joinNames(b.frozen.map(nameOfKey)) }));
  if (b.later?.length) warn(t("plan.later", { clusters: joinNames(b.later) }));
  if (b.unweighed) warn(t("plan.unweighed"));
  if (b.evenDivision) warn(t("plan.evenDivision"));
  if (b.rollout) {
    const stages = b.rollout.stages.map((s) => t("plan.stage", { name: s.name, first: s.first, later: s.later }) + (s.disconnected ? t("plan.disconnected", { n: s.disconnected }) : "") + (s.suspended ? t("plan.suspended", { n: s.suspended }) : "") + (s.gates?.length ? ` · ${s.gates.join(", ")}` : ""));
    lines.push({ sign: "~", text: t("plan.stages") + (b.rollout.waits ? ` — ${b.rollout.waits}` : ""), details: stages });
  }
  return { title: `${b.namespace ? b.namespace + "/" : ""}${b.name} (${b.source})`, lines };
}

/** Returns the parts of a plan: first what concerns the whole, then each application. */
export function planParts(p: Plan): PlanPart[] {
  const lines: PlanLine[] = [];
  const warn = (text: string) => lines.push({ sign: "!", text, details: [] });
  if (p.holding) warn(t("plan.holding", { why: p.holding }));
  for (const r of [...(p.refused ?? []), ...(p.unchecked ?? [])]) warn(`${r.object}: ${r.why}`);
  for (const u of p.unplaced ?? []) warn(`${nameOfKey(u.key)}: ${u.why}`);
  if (p.hidden) warn(t("plan.hidden", { n: p.hidden }));
  if (p.more) warn(t("plan.more", { n: p.more }));
  if (p.droppedChanges) warn(t("plan.dropped", { n: p.droppedChanges }));
  for (const pl of p.placements ?? []) {
    const details = [...(pl.added ?? []).map((c) => "+ " + c), ...(pl.removed ?? []).map((c) => "- " + c)];
    lines.push({ sign: pl.noFit || pl.unmet ? "!" : "~", text: t("plan.placement", { name: pl.name, n: pl.chosen }) + (pl.unmet ? ` — ${pl.unmet}` : pl.noFit ? ` — ${t("plan.noFit")}` : ""), details: details.slice(0, maxDetails) });
  }
  if (p.bundles.length > maxParts) warn(t("plan.cut", { n: p.bundles.length - maxParts }));
  const out = p.bundles.slice(0, maxParts).map(bundlePart);
  return lines.length > 0 ? [{ title: "", lines }, ...out] : out;
}
