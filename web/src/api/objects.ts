// The address of any object by its kind: as the hub's discovery has it.

import { RequestError, getJSON } from "./client";
import type { APIResource } from "./kubernetes";
import type { Template } from "./tree";

export interface Location {
  path: string;
  group: string;
  resource: string;
}

/** Returns where an object is. */
export async function locateObject(o: Template, signal: AbortSignal): Promise<Location> {
  const group = o.group ?? "";
  const root = group === "" ? "/api/v1" : `/apis/${encodeURIComponent(group)}/${await preferredVersion(group, signal)}`;
  const list = await getJSON<{ resources: APIResource[] }>(root, signal);
  const found = list.resources.find((r) => r.kind === o.kind && !r.name.includes("/"));
  if (!found) throw new RequestError(404, "NotFound", `${o.kind} ${group}`);
  const namespace = found.namespaced ? `/namespaces/${encodeURIComponent(o.namespace ?? "")}` : "";
  return { path: `${root}${namespace}/${found.name}/${encodeURIComponent(o.name)}`, group, resource: found.name };
}

async function preferredVersion(group: string, signal: AbortSignal): Promise<string> {
  const answer = await getJSON<{ preferredVersion: { version: string } }>(`/apis/${encodeURIComponent(group)}`, signal);
  return encodeURIComponent(answer.preferredVersion.version);
}
