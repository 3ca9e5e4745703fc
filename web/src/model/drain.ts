// The taints by which a cluster is drained and given back.

import type { Cluster } from "../api/types.gen";
import type { Fields } from "./edit";

type Taint = NonNullable<Cluster["spec"]["taints"]>[number];

const drainKey = "atoll.dev/drain";
const cordonKey = "node.kubernetes.io/unschedulable";

/** Taints that an uncordon removes. */
function endsWithUncordon(x: Taint): boolean {
  return isDrain(x) || (x.key === cordonKey && x.effect === "NoSchedule");
}

function isDrain(x: Taint): boolean {
  return x.key === drainKey && x.effect === "NoExecute";
}

/** A cluster that is drained or cordoned takes no new work. */
export function isDrained(c: Cluster): boolean {
  return (c.spec.taints ?? []).some(endsWithUncordon);
}

/** A cluster that is only cordoned keeps what it has, and can be drained. */
export function canDrain(c: Cluster): boolean {
  return !(c.spec.taints ?? []).some(isDrain);
}

/** Returns the patch that drains a cluster, or gives it back, as `atoll drain` and `atoll uncordon` do. */
export function drainPatch(c: Cluster, drained: boolean): Fields {
  const before = c.spec.taints ?? [];
  const added: Taint[] = before.some(isDrain) ? [] : [{ key: drainKey, effect: "NoExecute" }];
  const taints = drained ? [...before, ...added] : before.filter((x) => !endsWithUncordon(x));
  return { spec: { taints: taints.length > 0 ? taints : null } };
}
