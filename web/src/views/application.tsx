import { useEffect, useMemo, useState } from "preact/hooks";
import { group, inNamespace, pauseWrite } from "../api/actions";
import { type Person, sendWrite } from "../api/client";
import { collectionOf } from "../api/collection";
import { fieldSelector } from "../model/selector";
import type { Condition, KubeObject, Pod, Workload } from "../api/kubernetes";
import type { Template } from "../api/tree";
import type { Bundle } from "../api/types.gen";
import { appRow } from "../model/application";
import { type OwnedObject, ownedObjects } from "../model/owners";
import { bundleCommand } from "../model/shell";
import { listWaits } from "../model/waits";
import { Act, Do } from "../ui/act";
import { actorOf } from "../ui/reasons";
import { ChangeSection } from "./change";
import { History } from "./history";
import { WaitActions, bundleRight } from "./waitactions";
import { type Grouping, type TreeRow, countStates, treeRows } from "../model/rows";
import { t, textOr } from "../text/text";
import { linkTo, setQuery, useCollection, useRoute, useTree } from "../ui/hooks";
import { Command, Empty, Link, Pills, Reason, Refusal, Since, StatusMark, Text } from "../ui/parts";
import { Icon } from "../ui/icons";
import { isPerson } from "../model/status";
import { Conditions } from "./conditions";
import { ClusterBar, rolloutText } from "./applications";
import { LogsLink } from "./logs";
import { TerminalLink } from "./terminal";
import { Manifests } from "./manifests";
import { Placement } from "./placement";

/** Returns the policy of a Bundle; nothing where an annotation or a setting places it. */
function policyOf(b: Bundle): Template | undefined {
  const { kind, name } = b.spec.source;
  if (kind !== "PropagationPolicy" && kind !== "ClusterPropagationPolicy") return undefined;
  return { group: "atoll.dev", kind, name, namespace: kind === "PropagationPolicy" ? b.metadata.namespace : undefined };
}

export function Application({ namespace, name, person }: { namespace: string; name: string; person: Person }) {
  const path = namespace === "" ? `${group}/clusterbundles` : inNamespace("bundles", namespace);
  const { items, loaded, refusal } = useCollection<Bundle>(path, fieldSelector({ "metadata.name": name }));
  const [templates, setTemplates] = useState<Template[]>([]);
  const bundle = items[0];
  if (refusal) return <Refusal error={refusal} />;
  if (!bundle) return loaded ? <Empty title={t("error.notFound")} /> : <p class="muted pad">{t("loading")}</p>;
  const row = appRow(bundle);
  const waits = listWaits([], [row], actorOf).filter((w) => w.action !== "look");
  const policy = policyOf(bundle);
  return (
    <>
      <header class="page detail">
        <p class="crumbs"><Link to={linkTo("applications")}>{t("apps.title")}</Link> / {namespace ? <Text>{namespace}</Text> : t("app.cluster-wide")}</p>
        <h1><Text>{row.title}</Text></h1>
        <div class="headline">
          <StatusMark state={row.status} text={textOr("app.status." + row.status, row.status)} />
          <span class="muted"><Since time={row.since} /></span>
          <span class="headline-bar"><ClusterBar row={row} /></span>
          <span>{row.ready}/{row.desired} {t("apps.col.clusters")}</span>
          {row.replicas > 0 && <span>{row.readyReplicas}/{row.replicas} {t("apps.col.replicas")}</span>}
          <span class="muted"><Text>{row.source}</Text></span>
        </div>
        {row.message && (
          <p class={"waits" + (isPerson(row.actor) ? " waits-person" : "")}>
            <Icon name={isPerson(row.actor) ? "wait" : "busy"} />
            <span>
              {textOr("actor." + row.actor, row.actor)} · <Reason reason={row.reason} /> — <Text>{row.message}</Text>
            </span>
          </p>
        )}
        {namespace !== "" && <p><LogsLink of={{ kind: "Bundle", namespace, name }}>{t("logs.all")}</LogsLink></p>}
        {waits.map((w) => <WaitActions key={w.key} wait={w} person={person} />)}
      </header>
      {row.rollout && <Stages rollout={row.rollout} text={rolloutText(row.rollout)} />}
      <LiveTree namespace={namespace} name={name} onTemplates={setTemplates} />
      <Placement namespace={namespace} name={name} />
      <Manifests templates={templates} />
      <ChangeSection policy={policy} templates={templates} />
      <History namespace={namespace} objects={policy ? [policy, ...templates] : templates} />
      <Pause bundle={bundle} />
      <Conditions conditions={bundle.status?.conditions as Condition[] | undefined} />
      <Command text={`atoll explain ${namespace ? "bundle" : "clusterbundle"}/${name}${namespace ? " -n " + namespace : ""}`} />
    </>
  );
}

/** Keeps all clusters at their revision until a person resumes. */
function Pause({ bundle }: { bundle: Bundle }) {
  const [message, setMessage] = useState("");
  if (bundle.spec.pause) return null;
  return (
    <section class="card" id="pause">
      <h2>{t("pause.title")}</h2>
      <Act label={t("pause.open")} needs={[bundleRight(bundle, "patch")]} command={bundleCommand(["rollout", "pause"], bundle.metadata)}>
        <p>{t("pause.what")}</p>
        <label class="forms">{t("pause.message")}<input type="text" maxLength={200} value={message} onInput={(e) => setMessage(e.currentTarget.value)} /></label>
        <Do label={t("pause.do")} run={() => sendWrite(pauseWrite(bundle, message.trim()))} />
      </Act>
    </section>
  );
}

function Stages({ rollout, text }: { rollout: NonNullable<ReturnType<typeof appRow>["rollout"]>; text: string }) {
  return (
    <section class="card">
      <h2>{t("apps.col.rollout")} <span class="muted small">{text}</span></h2>
      <ol class="stages">
        {(rollout.stages ?? []).map((s) => (
          <li key={s.name} class={s.name === rollout.currentStage ? "current" : ""}>
            <StatusMark state={s.failed > 0 ? "Failed" : s.changing > 0 ? "Progressing" : s.waiting > 0 ? "Waiting" : "Ready"} text={s.name} />
            <span class="muted small">{s.updated}/{s.clusters}</span>
          </li>
        ))}
      </ol>
      {rollout.message && <p class="muted small"><Reason reason={rollout.reason ?? ""} /> — <Text>{rollout.message}</Text> · <Since time={rollout.since} /></p>}
    </section>
  );
}

/** Follows the objects of open clusters: their pods, and what controls these. */
function useObjects(namespace: string, clusters: string[]) {
  const [, redraw] = useState(0);
  const key = clusters.join(" ");
  const collections = useMemo(() => {
    const out = new Map<string, { pods: ReturnType<typeof collectionOf<Pod>>; controllers: ReturnType<typeof collectionOf<Workload>>[] }>();
    for (const c of clusters) {
      const selector = "labelSelector=" + encodeURIComponent("atoll.dev/cluster=" + c);
      const ns = `/namespaces/${encodeURIComponent(namespace)}`;
      out.set(c, { pods: collectionOf<Pod>(`/api/v1${ns}/pods`, selector), controllers: [collectionOf<Workload>(`/apis/apps/v1${ns}/replicasets`, selector), collectionOf<Workload>(`/apis/batch/v1${ns}/jobs`, selector)] });
    }
    return out;
  }, [namespace, key]);
  useEffect(() => {
    const changed = () => redraw((n) => n + 1);
    const stops = [...collections.values()].flatMap((c) => [c.pods.subscribe(changed), ...c.controllers.map((x) => x.subscribe(changed))]);
    return () => stops.forEach((stop) => stop());
  }, [collections]);
  return (cluster: string, template: { kind: string; name: string }): OwnedObject[] | undefined => {
    const c = collections.get(cluster);
    if (!c?.pods.current.loaded) return undefined;
    const kinds = ["ReplicaSet", "Job"];
    const controllers = c.controllers.flatMap((x, i) => x.current.items.map((o) => ({ ...(o as KubeObject), kind: kinds[i] }) as Workload));
    return ownedObjects(template, controllers, c.pods.current.items);
  };
}

function LiveTree({ namespace, name, onTemplates }: { namespace: string; name: string; onTemplates: (templates: Template[]) => void }) {
  const { query } = useRoute();
  const grouping: Grouping = query.get("by") === "cluster" ? "cluster" : "template";
  const { tree, refusal } = useTree(namespace, name);
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const [selected, setSelected] = useState(0);
  const openClusters = useMemo(() => [...new Set([...opened].map((id) => /^(?:t\d+)?\/c([^/]+)(?:\/t\d+)?$/.exec(id)?.[1]).filter((c): c is string => !!c))].sort(), [opened]);
  const objectsOf = useObjects(namespace, namespace === "" ? [] : openClusters);
  const templates = JSON.stringify(tree?.templates ?? []);
  useEffect(() => onTemplates(JSON.parse(templates) as Template[]), [templates]);
  if (refusal && !tree) return <Refusal error={refusal} />;
  if (!tree) return <p class="muted pad">{t("loading")}</p>;
  const rows = treeRows(tree, grouping, opened, (cluster, at) => (namespace === "" ? [] : objectsOf(cluster, tree.templates[at]!)));
  const toggle = (row: TreeRow, open = !row.open) => {
    if (row.open === undefined || row.open === open) return;
    const next = new Set(opened);
    next.delete(row.id);
    next.delete("-" + row.id);
    next.add(open ? row.id : "-" + row.id);
    setOpened(next);
  };
  const keys = (e: KeyboardEvent) => {
    const row = rows[selected];
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (step) setSelected(Math.max(0, Math.min(rows.length - 1, selected + step)));
    else if (row && e.key === "ArrowRight") toggle(row, true);
    else if (row && e.key === "ArrowLeft") toggle(row, false);
    else if (row && (e.key === "Enter" || e.key === " ")) toggle(row);
    else return;
    e.preventDefault();
    requestAnimationFrame(() => (e.currentTarget as HTMLElement | null)?.querySelector("[data-selected]")?.scrollIntoView({ block: "nearest" }));
  };
  return (
    <section class="card tree-card">
      <div class="tree-head">
        <h2>{t("app.tree")} <span class="muted small">{tree.revision > 0 && t("app.revision", { n: tree.revision })}</span></h2>
        <Pills counts={countStates(tree)} selected="" onSelect={() => setQuery("by", "cluster")} prefix="state." />
        <div class="segments" role="group">
          <button type="button" aria-pressed={grouping === "template"} onClick={() => setQuery("by", "")}>{t("app.tree.byTemplate")}</button>
          <button type="button" aria-pressed={grouping === "cluster"} onClick={() => setQuery("by", "cluster")}>{t("app.tree.byCluster")}</button>
        </div>
      </div>
      {tree.clusters.length === 0 && <p class="muted pad">{t("app.tree.empty")}</p>}
      <div class="tree" role="tree" aria-label={t("app.tree")} tabIndex={0} title={t("app.tree.keys")} aria-activedescendant={rows[selected] ? `tree-${selected}` : undefined} onKeyDown={keys}>
        {rows.map((row, i) => <TreeLine key={row.id} id={`tree-${i}`} row={row} selected={i === selected} onSelect={() => setSelected(i)} onToggle={() => toggle(row)} />)}
      </div>
      {!!tree.hiddenTemplates && <p class="muted small">{t("app.tree.hidden", { n: tree.hiddenTemplates })}</p>}
      {!!tree.moreClusters && <p class="muted small">{t("app.tree.more", { n: tree.moreClusters })}</p>}
    </section>
  );
}

function TreeLine({ id, row, selected, onSelect, onToggle }: { id: string; row: TreeRow; selected: boolean; onSelect: () => void; onToggle: () => void }) {
  if (row.icon === "group" && row.open === undefined) {
    return <div id={id} class="node node-none muted small" role="treeitem" aria-level={row.depth + 1} aria-selected={selected} style={{ "--depth": row.depth }}>{t(row.detail === "loading" ? "loading" : "app.tree.objects.none")}</div>;
  }
  return (
    <div
      id={id} class={"node node-" + row.icon} role="treeitem" aria-level={row.depth + 1} aria-expanded={row.open} aria-selected={selected} data-selected={selected || undefined}
      style={{ "--depth": row.depth }} onClick={() => (onSelect(), onToggle())}
    >
      <span class="node-head">
      <span class={"twist" + (row.open ? " twist-open" : "")}>{row.open !== undefined && <Icon name="chevron" label={t(row.open ? "app.tree.collapse" : "app.tree.expand")} />}</span>
      {row.kind && row.icon !== "cluster" && <span class="kind">{row.kind}</span>}
      {row.icon === "cluster" && <Icon name="fleet" />}
      {row.name && (row.icon === "cluster" ? <Link to={linkTo("clusters", row.name)} class="node-name"><Text>{row.name}</Text></Link> : row.logs && row.icon === "object" ? <Link to={linkTo("pods", row.logs.namespace, row.logs.name)} class="node-name"><Text>{row.name}</Text></Link> : <span class="node-name"><Text>{row.name}</Text></span>)}
      </span>
      <StatusMark state={row.state} text={row.state === "Nowhere" ? t("app.tree.absent") : undefined} />
      <span class="node-detail">{row.detail}</span>
      <span class="node-why muted small"><Reason reason={row.reason} message={row.message} />{row.message && <> — <Text>{row.message}</Text></>}</span>
      {row.logs && <span class="node-logs" onClick={(e) => e.stopPropagation()}><LogsLink of={row.logs} />{row.logs.kind === "Pod" && <TerminalLink namespace={row.logs.namespace} name={row.logs.name} />}</span>}
      <span class="node-since muted small"><Since time={row.since} /></span>
    </div>
  );
}
