// What people changed, as far as the hub keeps it for undo.

import { getJSON } from "./client";

export interface KeptChange {
  /** GROUP/KIND/NAMESPACE/NAME. */
  object: string;
  resource: string;
  revision: string;
  operation: string;
  at: string;
  by: string;
  fields?: string[];
  moreFields?: number;
  until: string;
}

export interface KeptChanges {
  changes: KeptChange[];
  window: string;
}

/** Returns the kept changes in a namespace, and of objects without one. */
export function getKeptChanges(namespace: string, signal: AbortSignal): Promise<KeptChanges> {
  return getJSON<KeptChanges>("/atoll/v1alpha1/undo" + (namespace ? "?" + new URLSearchParams({ namespace }).toString() : ""), signal);
}
