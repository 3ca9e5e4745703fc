import { useMemo } from "preact/hooks";
import type { Person } from "../api/client";
import type { Source } from "../api/types.gen";
import { matchesFilter, parseFilter } from "../model/filter";
import { type SourceRow, type SourceState, searchSource, sourceRow, sourceStates } from "../model/source";
import { safeText } from "../text/safe";
import { t, textOr } from "../text/text";
import { linkTo, setQuery, useRoute } from "../ui/hooks";
import { Empty, FilterBox, Pills, Reason, Refusal, Since, StatusMark, Text } from "../ui/parts";
import { type Column, Table, sortRows } from "../ui/table";
import { NamespaceBox, useNamespaced } from "./namespaced";

const byText = (value: (r: SourceRow) => string) => (a: SourceRow, b: SourceRow) => value(a).localeCompare(value(b), "en", { numeric: true }) || (a.key < b.key ? -1 : 1);

function columns(): Column<SourceRow>[] {
  return [
    {
      key: "name", title: t("sources.col.name"), width: "minmax(150px, 1.2fr)", compare: byText((r) => r.name),
      cell: (r) => (
        <span class="stack">
          <strong class="name" title={safeText(r.name)}><Text>{r.name}</Text></strong>
          <span class="muted small line"><Text>{r.namespace}</Text></span>
        </span>
      ),
    },
    {
      key: "status", title: t("sources.col.status"), width: "minmax(190px, 1.8fr)", compare: (a, b) => sourceStates.indexOf(a.state) - sourceStates.indexOf(b.state) || (a.key < b.key ? -1 : 1),
      cell: (r) => (
        <span class="stack">
          <StatusMark state={r.state} text={textOr("source.state." + r.state, r.state)} />
          <span class="muted small line"><Reason reason={r.reason} message={r.message} /> · <Since time={r.since} /></span>
        </span>
      ),
    },
    {
      key: "revision", title: t("sources.col.revision"), width: "minmax(170px, 2fr)", wide: true,
      cell: (r) => (
        <span class="stack">
          <code class="line" title={safeText(r.source.status?.commit)}><Text>{r.revision}</Text></code>
          <span class="muted small line" title={safeText(r.commit)}><Text>{r.commit}</Text></span>
        </span>
      ),
    },
    { key: "repository", title: t("sources.col.repository"), width: "minmax(110px, 1fr)", wide: true, compare: byText((r) => r.repository), cell: (r) => <Text>{r.repository}</Text> },
    { key: "objects", title: t("sources.col.objects"), width: "90px", wide: true, compare: (a, b) => b.objects - a.objects, cell: (r) => `${r.objects}` },
    { key: "clusters", title: t("apps.col.clusters"), width: "110px", wide: true, compare: (a, b) => b.desired - a.desired, cell: (r) => `${r.ready}/${r.desired}` },
  ];
}

/** The Sources that the person may list, with their revisions. */
export function SourceList({ person }: { person: Person }) {
  const { query } = useRoute();
  const filter = query.get("q") ?? "";
  const status = query.get("status") ?? "";
  const sort = query.get("sort") ?? "status";
  const { items, loaded, refusal, namespace } = useNamespaced<Source>(person, query.get("ns") ?? "", "sources");
  const rows = useMemo(() => items.map(sourceRow), [items]);
  const counts = useMemo(() => {
    const n = new Map<SourceState, number>();
    for (const r of rows) n.set(r.state, (n.get(r.state) ?? 0) + 1);
    return sourceStates.map((s): [string, number] => [s, n.get(s) ?? 0]);
  }, [rows]);
  const cols = columns();
  const shown = useMemo(() => {
    const terms = parseFilter(filter);
    return sortRows(rows.filter((r) => (status === "" || r.state === status) && matchesFilter(terms, searchSource(r))), cols, sort);
  }, [rows, filter, status, sort]);
  const confined = namespace !== undefined && <NamespaceBox key={namespace} namespace={namespace} />;
  if (refusal) return <Refusal error={refusal}>{confined}</Refusal>;
  return (
    <>
      <header class="page">
        <h1>{t("sources.title")}</h1>
        {confined}
        <Pills counts={counts} selected={status} onSelect={(s) => setQuery("status", s)} prefix="source.state." />
        {rows.length > 0 && <FilterBox value={filter} onChange={(v) => setQuery("q", v)} shown={shown.length} all={rows.length} />}
      </header>
      {!loaded && rows.length === 0 && namespace !== "" && <p class="muted pad">{t("loading")}</p>}
      {loaded && rows.length === 0 && <Empty title={t("sources.empty")} hint={t("sources.empty.hint")} command="atoll source create git URL --name NAME" />}
      {loaded && rows.length > 0 && shown.length === 0 && <Empty title={t("filter.none")} />}
      {shown.length > 0 && (
        <Table columns={cols} rows={shown} keyOf={(r) => r.key} linkOf={(r) => linkTo("sources", r.namespace, r.name)} label={t("sources.title")} sort={sort} onSort={(s) => setQuery("sort", s === "status" ? "" : s)} />
      )}
    </>
  );
}
