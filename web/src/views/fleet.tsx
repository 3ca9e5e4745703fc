import { useMemo } from "preact/hooks";
import type { Cluster } from "../api/types.gen";
import { type ClusterRow, clusterRow, clusterStatuses, searchCluster } from "../model/cluster";
import { formatBytes, formatCores } from "../model/quantity";
import { t, textOr } from "../text/text";
import { linkTo, setQuery, useCollection } from "../ui/hooks";
import { Empty, FilterBox, Meter, Pills, Reason, Refusal, Since, StatusMark, Text } from "../ui/parts";
import { type Column, Table, compareText } from "../ui/table";
import { safeText } from "../text/safe";
import { setSort, useListing } from "./list";

export const clustersPath = "/apis/atoll.dev/v1alpha1/clusters";

const byText = (value: (r: ClusterRow) => string) => compareText(value, (r) => r.name);

const part = (u: ClusterRow["cpu"]) => (u ? u.used / u.of : -1);

function columns(): Column<ClusterRow>[] {
  return [
    { key: "name", title: t("fleet.col.name"), width: "minmax(160px, 1.4fr)", compare: byText((r) => r.name), cell: (r) => <strong class="name" title={safeText(r.name)}><Text>{r.name}</Text></strong> },
    {
      key: "status", title: t("fleet.col.status"), width: "minmax(190px, 1.6fr)",
      compare: (a, b) => clusterStatuses.indexOf(a.status) - clusterStatuses.indexOf(b.status) || (a.name < b.name ? -1 : 1),
      cell: (r) => (
        <span class="stack">
          <StatusMark state={r.status} text={textOr("cluster.status." + r.status, r.status)} />
          <span class="muted small line">
            <Reason reason={r.reason} message={r.message} /> · <Since time={r.since} />
          </span>
        </span>
      ),
    },
    { key: "region", title: t("fleet.col.region"), width: "minmax(70px, .7fr)", wide: true, compare: byText((r) => r.region), cell: (r) => <Text>{r.region}</Text> },
    {
      key: "version", title: t("fleet.col.version"), width: "minmax(90px, .7fr)", wide: true, compare: byText((r) => r.version),
      cell: (r) => (
        <span class="stack">
          <Text>{r.version}</Text>
          <span class="muted small line">{r.agent && <>agent <Text>{r.agent}</Text></>}</span>
        </span>
      ),
    },
    { key: "nodes", title: t("fleet.col.nodes"), width: "64px", wide: true, cell: (r) => <Text>{r.nodes}</Text> },
    {
      key: "cpu", title: t("fleet.col.cpu"), width: "minmax(96px, .8fr)", wide: true, compare: (a, b) => part(b.cpu) - part(a.cpu),
      cell: (r) => r.cpu && <Meter used={r.cpu.used} of={r.cpu.of} text={t("fleet.requested", { used: formatCores(r.cpu.used), of: formatCores(r.cpu.of) })} />,
    },
    {
      key: "memory", title: t("fleet.col.memory"), width: "minmax(96px, .8fr)", wide: true, compare: (a, b) => part(b.memory) - part(a.memory),
      cell: (r) => r.memory && <Meter used={r.memory.used} of={r.memory.of} text={t("fleet.requested", { used: formatBytes(r.memory.used), of: formatBytes(r.memory.of) })} />,
    },
    { key: "labels", title: t("fleet.col.labels"), width: "minmax(160px, 2fr)", wide: true, cell: (r) => <Chips row={r} /> },
  ];
}

function Chips({ row }: { row: ClusterRow }) {
  const labels = row.labels.map(([key, value]) => (value === "" ? key : `${key}=${value}`));
  return (
    <span class="chips" title={safeText([...row.taints, ...labels].join("\n")).replaceAll("\\u000a", "\n")}>
      {row.taints.map((x) => <span key={x} class="chip chip-taint"><Text>{x}</Text></span>)}
      {labels.map((x) => <span key={x} class="chip"><Text>{x}</Text></span>)}
    </span>
  );
}

export function Fleet() {
  const { items, loaded, refusal } = useCollection<Cluster>(clustersPath);
  const rows = useMemo(() => items.map(clusterRow), [items]);
  const cols = columns();
  const { filter, status, sort, counts, shown } = useListing(rows, { columns: cols, states: clusterStatuses, stateOf: (r) => r.status, search: searchCluster });
  if (refusal) return <Refusal error={refusal} title={refusal.code === 403 ? t("error.forbidden.clusters") : undefined} />;
  if (loaded && rows.length === 0) return <Empty title={t("fleet.empty")} hint={t("fleet.empty.hint")} command="atoll token create" />;
  return (
    <>
      <header class="page">
        <h1>{t("fleet.title")}</h1>
        <Pills counts={counts} selected={status} onSelect={(s) => setQuery("status", s)} prefix="cluster.status." />
        <FilterBox value={filter} onChange={(v) => setQuery("q", v)} shown={shown.length} all={rows.length} />
      </header>
      {!loaded && rows.length === 0 && <p class="muted pad">{t("loading")}</p>}
      {loaded && shown.length === 0 && <Empty title={t("filter.none")} />}
      {shown.length > 0 && (
        <Table columns={cols} rows={shown} keyOf={(r) => r.name} linkOf={(r) => linkTo("clusters", r.name)} label={t("fleet.title")} sort={sort} onSort={setSort} />
      )}
    </>
  );
}

