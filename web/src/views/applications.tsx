import { useMemo } from "preact/hooks";
import { group } from "../api/actions";
import type { Person } from "../api/client";
import type { Bundle } from "../api/types.gen";
import { type AppRow, appRow, appStatuses, searchApp } from "../model/application";
import { t, textOr } from "../text/text";
import { linkTo, useCollection, useRoute } from "../ui/hooks";
import { Empty, Parts, Reason, Since, StatusMark, Text } from "../ui/parts";
import { type Column, compareText } from "../ui/table";
import { safeText } from "../text/safe";
import { NamespacedList } from "./list";
import { type Namespaced, useNamespaced } from "./namespaced";

/** Follows all Bundles that the person may list: of all namespaces, or of one. */
export function useApplications(person: Person, chosen: string): Namespaced<Bundle> {
  const bundles = useNamespaced<Bundle>(person, chosen, "bundles");
  const wide = useCollection<Bundle>(group + "/clusterbundles");
  return useMemo(() => {
    if (bundles.namespace === "" || wide.refusal) return bundles;
    return { ...bundles, items: [...bundles.items, ...wide.items] };
  }, [bundles, wide]);
}

const byText = (value: (r: AppRow) => string) => compareText(value, (r) => r.key);

export function rolloutText(r: AppRow["rollout"]): string {
  if (!r) return "";
  if (r.pausedBy) return t("app.rollout.paused");
  const at = r.stages?.findIndex((s) => s.name === r.currentStage) ?? -1;
  return at < 0 ? "" : t("app.rollout.stage", { n: at + 1, all: r.stages!.length });
}

function columns(): Column<AppRow>[] {
  return [
    {
      key: "name", title: t("apps.col.name"), width: "minmax(170px, 1.6fr)", compare: byText((r) => r.title),
      cell: (r) => (
        <span class="stack">
          <strong class="name" title={safeText(r.name)}><Text>{r.title}</Text></strong>
          <span class="muted small line">{r.namespace ? <Text>{r.namespace}</Text> : t("app.cluster-wide")} · {r.items === 1 ? t("app.items.one") : t("app.items", { n: r.items })}</span>
        </span>
      ),
    },
    {
      key: "status", title: t("apps.col.status"), width: "minmax(200px, 2fr)", compare: (a, b) => appStatuses.indexOf(a.status) - appStatuses.indexOf(b.status) || (a.key < b.key ? -1 : 1),
      cell: (r) => (
        <span class="stack">
          <StatusMark state={r.status} text={textOr("app.status." + r.status, r.status)} />
          <span class="muted small line">
            <Reason reason={r.reason} message={r.message} /> · <Since time={r.since} />
          </span>
        </span>
      ),
    },
    {
      key: "clusters", title: t("apps.col.clusters"), width: "minmax(120px, 1fr)", wide: true, compare: (a, b) => b.desired - a.desired,
      cell: (r) => (
        <span class="meter">
          <ClusterBar row={r} />
          <span class="meter-text">{r.ready}/{r.desired}</span>
        </span>
      ),
    },
    { key: "replicas", title: t("apps.col.replicas"), width: "90px", wide: true, compare: (a, b) => b.replicas - a.replicas, cell: (r) => (r.replicas > 0 ? `${r.readyReplicas}/${r.replicas}` : "") },
    { key: "source", title: t("apps.col.source"), width: "minmax(130px, 1.2fr)", wide: true, compare: byText((r) => r.source), cell: (r) => <span class="stack"><Text>{r.bundle.spec.source.name}</Text><span class="muted small line">{r.bundle.spec.source.kind}</span></span> },
    { key: "rollout", title: t("apps.col.rollout"), width: "minmax(80px, .8fr)", wide: true, cell: (r) => rolloutText(r.rollout) },
  ];
}

export function ClusterBar({ row }: { row: AppRow }) {
  const rest = Math.max(0, row.desired - row.ready - row.away);
  return (
    <Parts
      total={row.desired}
      parts={[
        { tone: "good", n: row.ready, label: t("state.Ready") },
        { tone: row.status === "Failed" ? "bad" : row.status === "Degraded" ? "warn" : "rest", n: rest, label: t("state.Progressing") },
        { tone: "away", n: row.away, label: t("state.Away") },
      ]}
    />
  );
}

export function ApplicationList({ person }: { person: Person }) {
  const { query } = useRoute();
  const { items, loaded, refusal, namespace } = useApplications(person, query.get("ns") ?? "");
  const rows = useMemo(() => items.map(appRow), [items]);
  return (
    <NamespacedList
      title={t("apps.title")} rows={rows} loaded={loaded} refusal={refusal} namespace={namespace} prefix="app.status." linkOf={(r) => linkTo("applications", r.namespace || "-", r.name)}
      listing={{ columns: columns(), states: appStatuses, stateOf: (r) => r.status, search: searchApp }}
      empty={<Empty title={t("apps.empty")} hint={t("apps.empty.hint")} command="kubectl annotate deployment NAME atoll.dev/clusters='*'" />}
    />
  );
}
