// Drift of objects that clusters only observe, as they reported it last.

import { getJSON } from "./client";

export interface DriftedObject {
  group?: string;
  kind: string;
  namespace?: string;
  name: string;
  cluster: string;
  /** Empty where clusters only report. */
  id?: string;
  approval?: { by?: string; at?: string };
  /** NAMESPACE/NAME, or NAME of a ClusterBundle. */
  bundle: string;
  missing?: boolean;
  differentFields?: number;
  fields?: { path: string; live?: string; wanted?: string }[];
  disconnected?: boolean;
}

export interface Drifts {
  objects: DriftedObject[];
  more?: number;
}

/** Counts the differences that are not among the first listed fields. */
export function countHidden(d: DriftedObject, shown: number): number {
  const listed = d.fields?.length ?? 0;
  return Math.max(d.differentFields ?? 0, listed) - Math.min(shown, listed);
}

/** Returns the drift in a namespace; without one, all that the person may see. */
export function getDrifts(namespace: string, signal: AbortSignal): Promise<Drifts> {
  return getJSON<Drifts>("/atoll/v1alpha1/drift" + (namespace ? "?" + new URLSearchParams({ namespace }).toString() : ""), signal);
}
