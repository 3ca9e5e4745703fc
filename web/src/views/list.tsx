import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { RequestError } from "../api/client";
import { type Searchable, matchesFilter, parseFilter } from "../model/filter";
import { t } from "../text/text";
import { setQuery, useRoute } from "../ui/hooks";
import { Empty, FilterBox, Pills, Refusal } from "../ui/parts";
import { type Column, Table, sortRows } from "../ui/table";
import { NamespaceBox } from "./namespaced";

/** How the rows of a list are shown. */
export interface Listing<R, S extends string> {
  columns: Column<R>[];
  /** The states, in the order of their pills. */
  states: readonly S[];
  stateOf: (row: R) => S;
  search: (row: R) => Searchable;
}

export interface ListedRows<R> {
  filter: string;
  status: string;
  sort: string;
  /** How many rows each state has. */
  counts: [string, number][];
  shown: readonly R[];
}

/** Filters, counts and sorts rows by the address. */
export function useListing<R, S extends string>(rows: readonly R[], l: Listing<R, S>): ListedRows<R> {
  const { query } = useRoute();
  const filter = query.get("q") ?? "";
  const status = query.get("status") ?? "";
  const sort = query.get("sort") ?? "status";
  const counts = useMemo(() => {
    const n = new Map<S, number>();
    for (const r of rows) n.set(l.stateOf(r), (n.get(l.stateOf(r)) ?? 0) + 1);
    return l.states.map((s): [string, number] => [s, n.get(s) ?? 0]);
  }, [rows]);
  const shown = useMemo(() => {
    const terms = parseFilter(filter);
    return sortRows(rows.filter((r) => (status === "" || l.stateOf(r) === status) && matchesFilter(terms, l.search(r))), l.columns, sort);
  }, [rows, filter, status, sort]);
  return { filter, status, sort, counts, shown };
}

/** Sets the order of a list in the address. */
export function setSort(sort: string): void {
  setQuery("sort", sort === "status" ? "" : sort);
}

interface NamespacedListProps<R extends { key: string }, S extends string> {
  title: string;
  rows: readonly R[];
  loaded: boolean;
  refusal?: RequestError;
  /** The one namespace of a person without rights on all. */
  namespace?: string;
  listing: Listing<R, S>;
  linkOf: (row: R) => string;
  /** What precedes a state in the keys of texts. */
  prefix: string;
  /** What is shown while there are no rows. */
  empty: ComponentChildren;
}

/** A list of objects of all namespaces, or of one. */
export function NamespacedList<R extends { key: string }, S extends string>(p: NamespacedListProps<R, S>) {
  const { filter, status, sort, counts, shown } = useListing(p.rows, p.listing);
  const confined = p.namespace !== undefined && <NamespaceBox key={p.namespace} namespace={p.namespace} />;
  if (p.refusal) return <Refusal error={p.refusal}>{confined}</Refusal>;
  const all = p.rows.length;
  return (
    <>
      <header class="page">
        <h1>{p.title}</h1>
        {confined}
        <Pills counts={counts} selected={status} onSelect={(s) => setQuery("status", s)} prefix={p.prefix} />
        {all > 0 && <FilterBox value={filter} onChange={(v) => setQuery("q", v)} shown={shown.length} all={all} />}
      </header>
      {!p.loaded && all === 0 && p.namespace !== "" && <p class="muted pad">{t("loading")}</p>}
      {p.loaded && all === 0 && p.empty}
      {p.loaded && all > 0 && shown.length === 0 && <Empty title={t("filter.none")} />}
      {shown.length > 0 && <Table columns={p.listing.columns} rows={shown} keyOf={(r) => r.key} linkOf={p.linkOf} label={p.title} sort={sort} onSort={setSort} />}
    </>
  );
}
