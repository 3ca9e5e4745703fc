// What people changed, as far as the hub keeps it for undo, and the undo of an edit: what `atoll undo` writes.

import type { Change } from "./actions";
import { RequestError, getJSON, getText, sendWrite } from "./client";
import { type Location, locateObject } from "./objects";
import type { Template } from "./tree";

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

/** What the undo writes over the present object. The patches are texts, because numbers beyond 2^53 would change here. */
interface UndoStep {
  /** Empty: the object is already as it was. */
  patch?: string;
  fields?: { path: string; before: unknown; after: unknown }[];
  moreFields?: number;
  manager: string;
  applies?: boolean;
  owners?: string;
}

/** An undo that can be planned, and then applied to exactly the version that was read. */
export interface Undo {
  step: UndoStep;
  change?: Change;
}

const undoPath = "/atoll/v1alpha1/undo";
const ownersManager = "atoll-cli";
const maxConflictTries = 5;

/** Returns the kept changes in a namespace, and of objects without one. */
export function getKeptChanges(namespace: string, signal: AbortSignal): Promise<KeptChanges> {
  return getJSON<KeptChanges>(undoPath + (namespace ? "?" + new URLSearchParams({ namespace }).toString() : ""), signal);
}

/** Returns the object of a change. */
export function objectOf(c: KeptChange): Template {
  const [group = "", kind = "", namespace = "", ...name] = c.object.split("/");
  return { group, kind, namespace, name: name.join("/") };
}

/** Reports whether the console takes a change back: an edit of what holds no credential. */
export function canUndo(c: KeptChange): boolean {
  const { group, kind } = objectOf(c);
  return c.operation === "Edited" && !(group === "" && (kind === "Secret" || kind === "ServiceAccount"));
}

/** Reads the object, and asks the hub what the undo of the change writes over it. */
export async function readUndo(c: KeptChange, signal: AbortSignal): Promise<Undo> {
  const object = objectOf(c);
  const at = await locateObject(object, signal);
  const present = await getText(at.path, signal);
  const step = await askStep(c, `{"present":${present}}`, signal);
  if (!step.patch) return { step };
  const change: Change = { path: at.path, body: step.patch, intent: `undo ${c.object} ${c.revision} ${step.patch}`, manager: step.manager };
  if (step.applies) change.follow = (stored) => joinOwners(c, at, present, stored);
  return { step, change };
}

function askStep(c: KeptChange, body: string, signal?: AbortSignal): Promise<UndoStep> {
  const { group = "", kind, namespace = "", name } = objectOf(c);
  return sendWrite<UndoStep>({ method: "POST", path: undoPath + "?" + new URLSearchParams({ group, kind, namespace, name, revision: c.revision }).toString(), body }, signal);
}

/** Gives a manager that applies on the server the fields back that it applied. The hub writes the object at the same time. */
async function joinOwners(c: KeptChange, at: Location, present: string, stored: string): Promise<void> {
  for (let attempt = 1, live = stored; ; attempt++) {
    const { owners } = await askStep(c, `{"present":${present},"live":${live}}`);
    if (!owners) return;
    try {
      await sendWrite({ method: "PATCH", path: `${at.path}?fieldManager=${ownersManager}`, body: owners });
      return;
    } catch (e) {
      if (!(e instanceof RequestError) || e.code !== 409 || attempt === maxConflictTries) throw e;
      live = await getText(at.path);
    }
  }
}
