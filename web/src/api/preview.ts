// Why something runs where it does, and what clusters get, by the hub's own endpoints.

import { getJSON } from "./client";
import type { Template } from "./tree";

const root = "/atoll/v1alpha1";

/** An override that set a field of the object, or was left out. */
export interface FieldOverride {
  item?: string;
  path?: string;
  policy: string;
  rule: number;
  overrider?: string;
  skipped?: string;
  value?: unknown;
  hidden?: boolean;
}

export interface ClusterExplanation {
  cluster: string;
  verdict: "Placed" | "Kept" | "Leaves" | "Out" | "Gone";
  filter?: string;
  reasonCode?: string;
  reason?: string;
  keptLost?: string;
  failureText?: string;
  weight?: number;
  score?: { total: number };
  row?: {
    phase: string;
    number?: number;
    assigned?: Record<string, number>;
    online: boolean;
    state?: string;
    waitsFor?: string;
    waitsReason?: string;
    waitsSince?: string;
    next?: string;
  };
  overrides?: FieldOverride[];
}

export interface BundleExplanation {
  name: string;
  quarantined?: string;
  unmet?: string;
  choice?: { most?: number; fit: number; chosen: number; lowest?: string; lowestScore?: number; spread?: { over: string }[] };
  group?: string;
  unknown?: string[];
  clusters: ClusterExplanation[];
}

export interface Explanation {
  verdict: string;
  bundles?: BundleExplanation[];
}

export interface RenderedContent {
  clusters: string[];
  apiVersion: string;
  object?: Record<string, unknown>;
  memberOwned?: string[];
  error?: string;
}

export interface Rendered {
  contents: RenderedContent[];
  more?: number;
}

function parametersOf(o: Template): string {
  const out = new URLSearchParams({ kind: o.kind, name: o.name });
  if (o.group) out.set("group", o.group);
  if (o.namespace) out.set("namespace", o.namespace);
  return out.toString();
}

/** Explains a Bundle, or a ClusterBundle when there is no namespace. */
export function explainBundle(namespace: string, name: string, signal: AbortSignal): Promise<Explanation> {
  const bundle = { group: "atoll.dev", kind: namespace ? "Bundle" : "ClusterBundle", namespace, name };
  return getJSON<Explanation>(`${root}/explain?${parametersOf(bundle)}`, signal);
}

/** Returns what the clusters get of a template. */
export function renderTemplate(template: Template, signal: AbortSignal): Promise<Rendered> {
  return getJSON<Rendered>(`${root}/render?${parametersOf(template)}`, signal);
}
