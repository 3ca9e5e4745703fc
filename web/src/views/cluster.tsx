import { useMemo } from "preact/hooks";
import { changeOf, clusterPath, clustersPath } from "../api/actions";
import type { Person } from "../api/client";
import { fieldSelector } from "../model/selector";
import type { Condition, Pod } from "../api/kubernetes";
import type { Cluster } from "../api/types.gen";
import { clusterRow, zonesOf } from "../model/cluster";
import { canDrain, drainPatch, isDrained } from "../model/drain";
import { commandOf } from "../model/shell";
import { listWaits } from "../model/waits";
import { Act } from "../ui/act";
import { actorOf } from "../ui/reasons";
import { PlannedChange } from "./planned";
import { WaitActions, clusterRight } from "./waitactions";
import { podState, shortNameOf } from "../model/owners";
import { formatBytes, formatCores } from "../model/quantity";
import { toneOf } from "../model/status";
import { t, textOr } from "../text/text";
import { linkTo, useCollection } from "../ui/hooks";
import { Empty, Link, Meter, Reason, Refusal, Since, StatusMark, Text } from "../ui/parts";
import { Conditions } from "./conditions";
import { Events } from "./events";

/** Drains a cluster, or gives it back: the plan first. */
function Drain({ cluster, back: drained }: { cluster: Cluster; back: boolean }) {
  const name = cluster.metadata.name;
  const change = useMemo(() => changeOf(clusterPath(name), cluster, drainPatch(cluster, !drained)), [cluster, drained]);
  return (
    <section class="card" id={drained ? "give-back" : "drain"}>
      <h2>{t(drained ? "drain.back" : "drain.title")}</h2>
      <p class="muted small">{t(drained ? "drain.back.what" : "drain.what")}</p>
      <Act label={t(drained ? "drain.back.open" : "drain.open")} needs={[clusterRight(name, "patch")]} command={commandOf("atoll", drained ? "uncordon" : "drain", name)}>
        <PlannedChange change={change} />
      </Act>
    </section>
  );
}

/** A cordoned cluster can be given back, and drained. */
function Taints({ cluster }: { cluster: Cluster }) {
  return (
    <>
      {canDrain(cluster) && <Drain key="drain" cluster={cluster} back={false} />}
      {isDrained(cluster) && <Drain key="back" cluster={cluster} back />}
    </>
  );
}

export function ClusterPage({ name, person }: { name: string; person: Person }) {
  const { items, loaded, refusal } = useCollection<Cluster>(clustersPath, fieldSelector({ "metadata.name": name }));
  const cluster = items[0];
  if (refusal) return <Refusal error={refusal} />;
  if (!cluster) return loaded ? <Empty title={t("error.notFound")} /> : <p class="muted pad">{t("loading")}</p>;
  const r = clusterRow(cluster);
  const s = cluster.spec;
  const labels = r.labels.map(([key, value]) => (value === "" ? key : `${key}=${value}`));
  const facts: [string, string][] = [
    [t("fleet.col.version"), r.version], [t("fleet.col.agent"), r.agent], [t("fleet.col.nodes"), r.nodes],
    [t("cluster.fact.region"), r.region], [t("cluster.fact.zone"), zonesOf(cluster).join(", ")], [t("cluster.fact.provider"), s.provider ?? ""],
    [t("cluster.fact.mode"), textOr("cluster.fact.mode." + (s.mode ?? "Pull"), s.mode ?? "")],
  ];
  return (
    <>
      <header class="page detail">
        <p class="crumbs"><Link to={linkTo("fleet")}>{t("fleet.title")}</Link></p>
        <h1><Text>{name}</Text></h1>
        <div class="headline">
          <StatusMark state={r.status} text={textOr("cluster.status." + r.status, r.status)} />
          <span class="muted"><Reason reason={r.reason} message={r.message} /> · <Since time={r.since} /></span>
        </div>
        {r.status !== "Ready" && r.message && <p class={"waits" + (r.status === "Joining" ? " waits-person" : "")}><Text>{r.message}</Text></p>}
        {listWaits([r], [], actorOf).filter((w) => w.action === "join").map((w) => <WaitActions key={w.key} wait={w} person={person} />)}
      </header>
      <div class="columns">
        <section class="card">
          <h2>{t("cluster.facts")}</h2>
          <dl class="facts">
            {facts.filter(([, v]) => v !== "").map(([k, v]) => <div key={k}><dt>{k}</dt><dd><Text>{v}</Text></dd></div>)}
            <div><dt>{t("cluster.fact.joined")}</dt><dd><Since time={cluster.metadata.creationTimestamp} /></dd></div>
            {r.cpu && <div><dt>{t("fleet.col.cpu")}</dt><dd><Meter {...r.cpu} text={t("fleet.requested", { used: formatCores(r.cpu.used), of: formatCores(r.cpu.of) })} spoken /></dd></div>}
            {r.memory && <div><dt>{t("fleet.col.memory")}</dt><dd><Meter {...r.memory} text={t("fleet.requested", { used: formatBytes(r.memory.used), of: formatBytes(r.memory.of) })} spoken /></dd></div>}
            {r.pods && <div><dt>{t("cluster.fact.pods")}</dt><dd><Meter {...r.pods} text={`${r.pods.used} / ${r.pods.of}`} spoken /></dd></div>}
          </dl>
          {r.taints.length + labels.length > 0 && (
            <p class="chips wrap">
              {r.taints.map((x) => <span key={x} class="chip chip-taint"><Text>{x}</Text></span>)}
              {labels.map((x) => <span key={x} class="chip"><Text>{x}</Text></span>)}
            </p>
          )}
        </section>
        <Conditions conditions={cluster.status?.conditions as Condition[] | undefined} />
      </div>
      {cluster.spec.accepted && !cluster.spec.removal && <Taints cluster={cluster} />}
      <Runs cluster={name} />
      <Events path="/api/v1/events" selector={fieldSelector({ "involvedObject.kind": "Cluster", "involvedObject.name": name })} empty={t("cluster.events.empty")} />
    </>
  );
}

/** The pods of placed workloads in the cluster, by namespace. */
function Runs({ cluster }: { cluster: string }) {
  const { items, loaded, refusal } = useCollection<Pod>("/api/v1/pods", "labelSelector=" + encodeURIComponent("atoll.dev/cluster=" + cluster));
  const pods = useMemo(() => [...items].sort((a, b) => ((a.metadata.namespace ?? "") + a.metadata.name < (b.metadata.namespace ?? "") + b.metadata.name ? -1 : 1)), [items]);
  return (
    <section class="card">
      <h2>{t("cluster.runs")} <span class="muted small">{pods.length > 0 && pods.length}</span></h2>
      {refusal && <p class="muted small"><Text>{refusal.message}</Text></p>}
      {!refusal && pods.length === 0 && <p class="muted">{t(loaded ? "cluster.runs.empty" : "loading")}</p>}
      <ul class="lines">
        {pods.slice(0, 200).map((p) => {
          const { state, detail } = podState(p);
          return (
            <li key={p.metadata.namespace + "/" + p.metadata.name}>
              <span class="muted"><Text>{p.metadata.namespace}</Text></span>
              <Link to={linkTo("pods", p.metadata.namespace ?? "", p.metadata.name)} class="grow"><Text>{shortNameOf(p)}</Text></Link>
              <StatusMark state={state} tone={toneOf(state)} />
              <span class="muted">{detail}</span>
              <span class="muted small"><Since time={p.metadata.creationTimestamp} /></span>
            </li>
          );
        })}
      </ul>
      {pods.length > 200 && <p class="muted small">{t("more", { n: pods.length - 200 })}</p>}
    </section>
  );
}
