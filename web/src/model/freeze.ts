// The freeze of all changes.

import type { HubSettings } from "../api/types.gen";

export type Freeze = NonNullable<HubSettings["spec"]["freeze"]>;

/** Returns the freeze that holds changes at a time; nothing when there is none, or when it has ended. */
export function activeFreeze(settings: HubSettings | undefined, now: number): Freeze | undefined {
  const freeze = settings?.spec.freeze;
  if (!freeze) return undefined;
  return freeze.until && Date.parse(freeze.until) <= now ? undefined : freeze;
}
