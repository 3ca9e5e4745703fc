import { useMemo } from "preact/hooks";
import type { Person } from "../api/client";
import type { Bundle } from "../api/types.gen";
import { type AppRow, type AppStatus, appRow, appStatuses, searchApp } from "../model/application";
import { matchesFilter, parseFilter } from "../model/filter";
import { t, textOr } from "../text/text";
import { linkTo, setQuery, useCollection, useRoute } from "../ui/hooks";
import { Empty, FilterBox, Parts, Pills, Reason, Refusal, Since, StatusMark, Text } from "../ui/parts";
import { type Column, Table, sortRows } from "../ui/table";
import { safeText } from "../text/safe";
import { NamespaceBox, type Namespaced, group, useNamespaced } from "./namespaced";

/** Follows all Bundles that the person may list: of all namespaces, or of one. */
export function useApplications(person: Person, chosen: string): Namespaced<Bundle> {
  const bundles = useNamespaced<Bundle>(person, chosen, "bundles");
  const wide = useCollection<Bundle>(group + "/clusterbundles");
  return useMemo(() => {
    if (bundles.namespace === "" || wide.refusal) return bundles;
    return { ...bundles, items: [...bundles.items, ...wide.items] };
  }, [bundles, wide]);
}

const byText = (value: (r: AppRow) => string) => (a: AppRow, b: AppRow) => value(a).localeCompare(value(b), "en", { numeric: true }) || (a.key < b.key ? -1 : 1);

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
  const filter = query.get("q") ?? "";
  const status = query.get("status") ?? "";
  const sort = query.get("sort") ?? "status";
  const { items, loaded, refusal, namespace } = useApplications(person, query.get("ns") ?? "");
  const rows = useMemo(() => items.map(appRow), [items]);
  const counts = useMemo(() => {
    const n = new Map<AppStatus, number>();
    for (const r of rows) n.set(r.status, (n.get(r.status) ?? 0) + 1);
    return appStatuses.map((s): [string, number] => [s, n.get(s) ?? 0]);
  }, [rows]);
  const cols = columns();
  const shown = useMemo(() => {
    const terms = parseFilter(filter);
    return sortRows(rows.filter((r) => (status === "" || r.status === status) && matchesFilter(terms, searchApp(r))), cols, sort);
  }, [rows, filter, status, sort]);
  const confined = namespace !== undefined && <NamespaceBox key={namespace} namespace={namespace} />;
  if (refusal) return <Refusal error={refusal}>{confined}</Refusal>;
  return (
    <>
      <header class="page">
        <h1>{t("apps.title")}</h1>
        {confined}
        <Pills counts={counts} selected={status} onSelect={(s) => setQuery("status", s)} prefix="app.status." />
        {rows.length > 0 && <FilterBox value={filter} onChange={(v) => setQuery("q", v)} shown={shown.length} all={rows.length} />}
      </header>
      {!loaded && rows.length === 0 && namespace !== "" && <p class="muted pad">{t("loading")}</p>}
      {loaded && rows.length === 0 && <Empty title={t("apps.empty")} hint={t("apps.empty.hint")} command="kubectl annotate deployment NAME atoll.dev/clusters='*'" />}
      {loaded && rows.length > 0 && shown.length === 0 && <Empty title={t("filter.none")} />}
      {shown.length > 0 && (
        <Table columns={cols} rows={shown} keyOf={(r) => r.key} linkOf={(r) => linkTo("applications", r.namespace || "-", r.name)} label={t("apps.title")} sort={sort} onSort={(s) => setQuery("sort", s === "status" ? "" : s)} />
      )}
    </>
  );
}
