import { useMemo, useState } from "preact/hooks";
import { type FleetCounts, type FleetPage, type SlimCluster, followCounts, followPage } from "../api/fleet";
import { type FleetQuery, fleetParameters, labelPrefix, leaveGroup, listCounts, pageSize, properties, readFleetQuery } from "../model/fleet";
import { formatBytes, formatCores } from "../model/quantity";
import { propertyName, valueName } from "../text/fleet";
import { safeText } from "../text/safe";
import { t, textOr } from "../text/text";
import { addressWith, linkTo, navigate, setQuery, useFollowed, useRoute, useSettled } from "../ui/hooks";
import { Empty, FilterBox, Meter, Pills, Reason, Refusal, Since, StatusMark, Text } from "../ui/parts";
import { type Column, Table } from "../ui/table";
import { FleetMap } from "./fleetmap";
import { setSort } from "./list";

/** The filter counts once it has not changed for so many milliseconds: each change begins new streams. */
const settleTime = 300;

/** The columns of the table. The hub sorts, so a column has no order of its own. */
function columns(by: string): Column<SlimCluster>[] {
  const requested = (u: SlimCluster["cpu"], format: (n: number) => string) => u && <Meter used={u.used} of={u.of} text={t("fleet.requested", { used: format(u.used), of: format(u.of) })} />;
  const all: Column<SlimCluster>[] = [
    { key: "name", title: t("fleet.col.name"), width: "minmax(160px, 1.4fr)", sortable: true, cell: (c) => <strong class="name" title={safeText(c.name)}><Text>{c.name}</Text></strong> },
    {
      key: "status", title: t("fleet.col.status"), width: "minmax(190px, 1.6fr)", sortable: true,
      cell: (c) => (
        <span class="stack">
          <StatusMark state={c.state} text={textOr("cluster.status." + c.state, c.state)} />
          <span class="muted small line">
            <Reason reason={c.reason ?? ""} message={c.message} /> · <Since time={c.since} />
          </span>
        </span>
      ),
    },
    { key: "region", title: t("fleet.col.region"), width: "minmax(70px, .7fr)", wide: true, sortable: true, cell: (c) => <Text>{c.region}</Text> },
    {
      key: "version", title: t("fleet.col.version"), width: "minmax(90px, .7fr)", wide: true, sortable: true,
      cell: (c) => (
        <span class="stack">
          <Text>{c.version}</Text>
          <span class="muted small line">{c.agent && <>agent <Text>{c.agent}</Text></>}</span>
        </span>
      ),
    },
    { key: "nodes", title: t("fleet.col.nodes"), width: "64px", wide: true, cell: (c) => <Text>{c.nodes}</Text> },
    { key: "cpu", title: t("fleet.col.cpu"), width: "minmax(96px, .8fr)", wide: true, sortable: true, cell: (c) => requested(c.cpu, formatCores) },
    { key: "memory", title: t("fleet.col.memory"), width: "minmax(96px, .8fr)", wide: true, sortable: true, cell: (c) => requested(c.memory, formatBytes) },
    { key: "taints", title: t("fleet.col.taints"), width: "64px", wide: true, cell: (c) => (c.taints ? String(c.taints) : "") },
    { key: "drift", title: t("fleet.col.drift"), width: "64px", wide: true, cell: (c) => (c.drifted ? <span title={t("fleet.drifted", { n: c.drifted })}>{c.drifted}</span> : "") },
  ];
  if (by !== "") all.splice(2, 0, { key: "group", title: propertyName(by), width: "minmax(90px, 1fr)", wide: true, cell: (c) => <Text>{(c.groups ?? []).map((v) => valueName(by, v)).join(", ")}</Text> });
  return all;
}

/** The fleet: counts, and a table in pages or a map. The hub filters, sorts and counts. */
export function Fleet() {
  const { query } = useRoute();
  const isMap = query.get("view") === "map";
  const typed = readFleetQuery(query, isMap ? "region" : "");
  const text = useSettled(typed.text, settleTime);
  const f: FleetQuery = { ...typed, text };
  const parameters = fleetParameters(isMap ? f : { ...f, by: "" }); // the table needs no groups
  const counts = useFollowed<FleetCounts>(parameters.toString(), (onChange) => followCounts(parameters, onChange));
  const c = counts.value;
  if (counts.refusal?.code === 403) return <Refusal error={counts.refusal} title={t("error.forbidden.clusters")} />;
  if (c?.all === 0) return <Empty title={t("fleet.empty")} hint={t("fleet.empty.hint")} command="atoll token create" />;
  return (
    <>
      <header class="page">
        <h1>{t("fleet.title")}</h1>
        <Pills counts={c ? listCounts(c.states) : []} selected={f.status} onSelect={(s) => setQuery("status", s)} prefix="cluster.status." />
        <FilterBox value={typed.text} onChange={(v) => setQuery("q", v)} shown={c?.matching ?? 0} all={c?.all ?? 0} />
      </header>
      <div class="fleet-choices">
        <GroupChoice by={f.by} optional={!isMap} />
        <GroupChips f={f} query={query} />
        <div class="segments" role="group" aria-label={t("fleet.view")}>
          <button type="button" aria-pressed={!isMap} onClick={() => setQuery("view", "")}>{t("fleet.view.table")}</button>
          <button type="button" aria-pressed={isMap} onClick={() => setQuery("view", "map")}>{t("fleet.view.map")}</button>
        </div>
      </div>
      {counts.refusal && <p class="problem" role="alert"><Text>{counts.refusal.message}</Text></p>}
      {!c && !counts.refusal && <p class="muted pad">{t("loading")}</p>}
      {c && c.matching === 0 && <Empty title={t("filter.none")} />}
      {c && c.matching > 0 && (isMap ? <FleetMap f={f} counts={c} /> : <FleetTable f={f} sort={query.get("sort") ?? "status"} />)}
    </>
  );
}

/** The pages of the table. Each further one begins after the last cluster of the one before. */
function FleetTable({ f, sort }: { f: FleetQuery; sort: string }) {
  const parameters = fleetParameters(f);
  parameters.set("sort", sort);
  parameters.set("limit", String(pageSize));
  const question = parameters.toString();
  const [turned, setTurned] = useState<{ question: string; tokens: string[] }>({ question, tokens: [] });
  const tokens = turned.question === question ? turned.tokens : [];
  const token = tokens.at(-1);
  if (token) parameters.set("continue", token);
  const { value: page, refusal, pending } = useFollowed<FleetPage>(parameters.toString(), (onChange) => followPage(parameters, onChange));
  const cols = useMemo(() => columns(f.by), [f.by]);
  const turn = (next: string[]) => {
    setTurned({ question, tokens: next });
    scrollTo({ top: 0 });
  };
  if (refusal) return <Refusal error={refusal} />;
  if (!page) return <p class="muted pad">{t("loading")}</p>;
  const last = page.before + page.clusters.length;
  const next = page.continue;
  return (
    <>
      <Table columns={cols} rows={page.clusters} keyOf={(c) => c.name} linkOf={(c) => linkTo("clusters", c.name)} label={t("fleet.title")} sort={sort} onSort={setSort} />
      {(tokens.length > 0 || next) && (
        <nav class="pager" aria-label={t("fleet.pages")}>
          <button type="button" class="action" disabled={pending || tokens.length === 0} onClick={() => turn(tokens.slice(0, -1))}>{t("fleet.page.previous")}</button>
          <span class="muted" role="status">{t("fleet.page", { first: page.clusters.length > 0 ? page.before + 1 : last, last, all: page.matching })}</span>
          <button type="button" class="action" disabled={pending || !next} onClick={() => next && turn([...tokens, next])}>{t("fleet.page.next")}</button>
        </nav>
      )}
    </>
  );
}

/** Chooses the property by which clusters are grouped. A label has its key in a field of its own. */
function GroupChoice({ by, optional }: { by: string; optional: boolean }) {
  const isLabel = by.startsWith(labelPrefix);
  const [asksKey, askKey] = useState(false);
  const [label, setLabel] = useState(isLabel ? by.slice(labelPrefix.length) : "");
  const choose = (value: string) => {
    askKey(value === labelPrefix);
    if (value !== labelPrefix) setQuery("by", value);
  };
  const showsKey = isLabel || asksKey;
  return (
    <form class="fleet-by" onSubmit={(e) => (e.preventDefault(), label.trim() !== "" && setQuery("by", labelPrefix + label.trim()))}>
      <label for="group-by" class="muted small">{t("fleet.by")}</label>
      <select id="group-by" class="pick" value={showsKey ? labelPrefix : by} onChange={(e) => choose(e.currentTarget.value)}>
        {optional && <option value="">{t("fleet.by.none")}</option>}
        {properties.map((p) => <option key={p} value={p}>{propertyName(p)}</option>)}
        <option value={labelPrefix}>{t("fleet.by.label")}</option>
      </select>
      {showsKey && <input aria-label={t("fleet.by.key")} placeholder={t("fleet.by.key")} value={label} maxLength={316} spellcheck={false} autocomplete="off" onInput={(e) => setLabel(e.currentTarget.value)} />}
      {showsKey && <button type="submit" class="ghost small">{t("fleet.by.apply")}</button>}
    </form>
  );
}

/** The groups that a person has gone into, each with a button that leaves it. */
function GroupChips({ f, query }: { f: FleetQuery; query: URLSearchParams }) {
  if (f.groups.length === 0) return null;
  return (
    <ul class="group-chips">
      {f.groups.map(([name, value], i) => {
        const text = `${safeText(propertyName(name))}: ${safeText(valueName(name, value))}`;
        return (
          <li key={name + "=" + value}>
            <button type="button" class="pill" aria-label={t("fleet.group.leave", { group: text })} onClick={() => navigate(addressWith(leaveGroup(query, f, i)))}>
              <bdi>{text}</bdi> <span aria-hidden="true">×</span>
            </button>
          </li>
        );
      })}
    </ul>
  );
}
