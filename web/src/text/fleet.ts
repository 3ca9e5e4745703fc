// Names of the properties by which clusters are grouped, and of their values.

import { labelPrefix } from "../model/fleet";
import { t, textOr } from "./text";

/** Names a property: a label by its key. */
export function propertyName(name: string): string {
  return name.startsWith(labelPrefix) ? name.slice(labelPrefix.length) : textOr("fleet.by." + name, name);
}

/** Names a value of a property. */
export function valueName(by: string, value: string): string {
  if (value === "") return t("fleet.group.none");
  return by === "status" ? textOr("cluster.status." + value, value) : value;
}
