// The plan of a change, by the hub's own endpoint: what `atoll plan` asks.

import { type Change, dryRunChange } from "./actions";
import { sendWrite } from "./client";
import type { KubeObject } from "./kubernetes";

export interface FieldChange {
  path: string;
  before?: unknown;
  after?: unknown;
  hidden?: boolean;
  memberOwned?: boolean;
}

export interface ItemChange {
  key: string;
  change: ChangeKind;
  fields?: FieldChange[];
  released?: string[];
  corrected?: string[];
  /** What the cluster would report of the object instead of writing it. */
  observe?: string;
  /** It would write an object that it only observes now. */
  written?: boolean;
  /** The item's own resolutions of conflicts, where they differ; empty: that of the policy. */
  conflictBefore?: string;
  conflictAfter?: string;
  /** The ServiceAccounts of the member whose rights count, where they differ; empty: the agent's rights alone. */
  serviceAccountBefore?: string;
  serviceAccountAfter?: string;
  reassessed?: boolean;
  recreate?: boolean;
  error?: string;
}

export type ChangeKind = "Added" | "Removed" | "Changed";

export interface RowGroup {
  clusters: string[];
  change: ChangeKind;
  why?: string;
  reason?: string;
  orphaned?: boolean;
  stays?: string[];
  waits?: string;
  replicas?: Record<string, { before?: number; after?: number }>;
  items?: ItemChange[];
}

interface Refusal {
  object: string;
  why: string;
}

interface StayingCluster {
  cluster: string;
  reason: string;
  why: string;
}

export interface BundlePlan {
  namespace?: string;
  name: string;
  source: string;
  new?: boolean;
  rows?: RowGroup[];
  unchanged?: number;
  noFit?: boolean;
  unmet?: string;
  full?: (StayingCluster & { stays?: boolean })[];
  short?: { item: string; replicas: number; unplaced: number }[];
  staysDrained?: StayingCluster[];
  oldCopies?: { clusters: string[]; for: string }[];
  keptByBudget?: { clusters: string[]; for: string; actor: string }[];
  strictBudget?: string;
  rollout?: { stages: { name: string; first: number; later: number; disconnected?: number; suspended?: number; gates?: string[] }[]; waits?: string };
  unweighed?: boolean;
  evenDivision?: boolean;
  unknown?: string[];
  later?: string[];
  frozen?: string[];
  held?: string[];
  problems?: Refusal[];
  waits?: string;
}

export interface Plan {
  changes: boolean;
  bundles: BundlePlan[];
  placements?: { namespace?: string; name: string; chosen: number; added?: string[]; removed?: string[]; noFit?: boolean; unmet?: string }[];
  hidden?: number;
  more?: number;
  unplaced?: { key: string; why: string }[];
  refused?: Refusal[];
  unchecked?: Refusal[];
  droppedChanges?: number;
  holding?: string;
}

/** Plans a change: the hub validates it by a dry run, and answers what it would change. Nothing is written. */
export async function planChange(c: Change, signal: AbortSignal): Promise<Plan> {
  const text = await dryRunChange(c, signal);
  const stored = JSON.parse(text) as KubeObject;
  const isOwn = /^(engine\.)?atoll\.dev\//.test(stored.apiVersion ?? "");
  // A template goes as the hub sent it: numbers beyond 2^53 would change here, and its managers say what is stated.
  const object = isOwn ? JSON.stringify(withoutManagers(stored)) : text;
  return sendWrite<Plan>({ method: "POST", path: "/atoll/v1alpha1/plan", body: `{"objects":[${object}]}` }, signal);
}

function withoutManagers(o: KubeObject): KubeObject {
  const { managedFields: _, ...metadata } = o.metadata as KubeObject["metadata"] & { managedFields?: unknown };
  return { ...o, metadata };
}
