import { useMemo } from "preact/hooks";
import type { Person } from "../api/client";
import { type SourceRow, searchSource, sourceRow, sourceStates } from "../model/source";
import { safeText } from "../text/safe";
import { t, textOr } from "../text/text";
import { linkTo, useRoute } from "../ui/hooks";
import { Empty, Reason, Since, StatusMark, Text } from "../ui/parts";
import { type Column, compareText } from "../ui/table";
import { NamespacedList } from "./list";
import { useSources } from "./namespaced";

const byText = (value: (r: SourceRow) => string) => compareText(value, (r) => r.key);

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
  const { items, loaded, refusal, namespace } = useSources(person, query.get("ns") ?? "");
  const rows = useMemo(() => items.map(sourceRow), [items]);
  return (
    <NamespacedList
      title={t("sources.title")} rows={rows} loaded={loaded} refusal={refusal} namespace={namespace} prefix="source.state." linkOf={(r) => linkTo("sources", r.namespace, r.name)}
      listing={{ columns: columns(), states: sourceStates, stateOf: (r) => r.state, search: searchSource }}
      empty={<Empty title={t("sources.empty")} hint={t("sources.empty.hint")} command="atoll source create git URL --name NAME" />}
    />
  );
}
