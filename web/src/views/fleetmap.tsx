// The fleet as a map: a tile for each cluster where there are few, and else a block for each group.

import { useMemo, useRef, useState } from "preact/hooks";
import { type FleetCounts, type FleetGroup, type FleetPage, type SlimCluster, type StateCounts, followPage } from "../api/fleet";
import { type FleetQuery, type TileGroup, blockGroups, countStates, drillInto, fleetParameters, listCounts, maxNamedTiles, maxTiles, nextCell, stateSigns, tileGroups } from "../model/fleet";
import { type Tone, toneOf } from "../model/status";
import { valueName } from "../text/fleet";
import { safeText } from "../text/safe";
import { t, textOr } from "../text/text";
import { addressWith, linkTo, useFollowed, useRoute } from "../ui/hooks";
import { Link, Parts, Refusal, Text } from "../ui/parts";

/** Shows tiles or blocks by the number of clusters that the filter selects. */
export function FleetMap({ f, counts }: { f: FleetQuery; counts: FleetCounts }) {
  return counts.matching <= maxTiles ? <Tiles f={f} /> : <Blocks f={f} counts={counts} />;
}

function statusText(state: string): string {
  return textOr("cluster.status." + state, state);
}

/** The states with their signs and numbers. */
function Legend({ states }: { states: StateCounts }) {
  return (
    <ul class="map-legend small">
      {listCounts(states).filter(([, n]) => n > 0).map(([s, n]) => (
        <li key={s}><span class={"tile tile-sign tone-" + toneOf(s)} aria-hidden="true">{stateSigns[s]}</span> {statusText(s)} <strong>{n}</strong></li>
      ))}
    </ul>
  );
}

function proportions(states: StateCounts): { tone: Tone; n: number; label: string }[] {
  return listCounts(states).map(([s, n]) => ({ tone: toneOf(s), n, label: statusText(s) }));
}

/** The cells of a map are one stop of the Tab key: arrow keys move among them. */
function useCellKeys() {
  const box = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState("");
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.shiftKey) return;
    const cells = [...(box.current?.querySelectorAll<HTMLElement>("[data-cell]") ?? [])];
    const at = cells.indexOf((e.target as HTMLElement).closest<HTMLElement>("[data-cell]")!);
    const to = at < 0 ? undefined : nextCell(cells.map((c) => c.getBoundingClientRect()), at, e.key);
    if (to === undefined) return;
    e.preventDefault();
    cells[to]!.focus();
  };
  const onFocusIn = (e: FocusEvent) => setActive((e.target as HTMLElement).closest<HTMLElement>("[data-cell]")?.dataset["cell"] ?? "");
  return { active, props: { ref: box, onKeyDown, onFocusIn } };
}

/** A tile for each cluster, by group. */
function Tiles({ f }: { f: FleetQuery }) {
  const parameters = fleetParameters(f);
  parameters.set("view", "tiles");
  parameters.set("limit", String(maxTiles));
  const { value: page, refusal } = useFollowed<FleetPage>(parameters.toString(), (onChange) => followPage(parameters, onChange));
  const groups = useMemo(() => tileGroups(page?.clusters ?? []), [page]);
  const { active, props } = useCellKeys();
  if (refusal) return <Refusal error={refusal} />;
  if (!page) return <p class="muted pad">{t("loading")}</p>;
  const isNamed = page.clusters.length <= maxNamedTiles;
  const keys = groups.flatMap((g) => g.clusters.map((c) => cellKey(g.value, c.name)));
  const stop = keys.includes(active) ? active : keys[0];
  return (
    <div class="map" role="region" aria-label={t("fleet.map")} {...props}>
      <Legend states={countStates(page.clusters)} />
      <p class="muted small">{t("fleet.map.keys")}</p>
      {groups.map((g) => <TileSection key={g.value} group={g} by={f.by} isNamed={isNamed} stop={stop} />)}
      {page.continue && <p class="muted small">{t("more", { n: page.matching - page.clusters.length })}</p>}
    </div>
  );
}

function cellKey(group: string, name: string): string {
  return name + "\n" + group;
}

function TileSection({ group, by, isNamed, stop }: { group: TileGroup; by: string; isNamed: boolean; stop: string | undefined }) {
  const states = countStates(group.clusters);
  return (
    <section class="card map-group">
      <h2><Text>{valueName(by, group.value)}</Text> <span class="muted small">{group.clusters.length}</span></h2>
      <Parts total={group.clusters.length} parts={proportions(states)} />
      <ul class={"tiles" + (isNamed ? " tiles-named" : "")}>
        {group.clusters.map((c) => <li key={c.name}><Tile c={c} group={group.value} isNamed={isNamed} isStop={stop === cellKey(group.value, c.name)} /></li>)}
      </ul>
    </section>
  );
}

function Tile({ c, group, isNamed, isStop }: { c: SlimCluster; group: string; isNamed: boolean; isStop: boolean }) {
  const text = [c.name, statusText(c.state), c.reason].filter(Boolean).map((x) => safeText(x)).join(", ");
  return (
    <Link to={linkTo("clusters", c.name)} class={"tile tone-" + toneOf(c.state)} cell={cellKey(group, c.name)} stop={isStop} label={text}>
      <span aria-hidden="true">{stateSigns[c.state]}</span>
      {isNamed && <span class="tile-name" aria-hidden="true"><Text>{c.name}</Text></span>}
    </Link>
  );
}

/** A block for each group, with the proportions of its states. It leads to the clusters of the group. */
function Blocks({ f, counts }: { f: FleetQuery; counts: FleetCounts }) {
  const { query } = useRoute();
  const { active, props } = useCellKeys();
  const groups = useMemo(() => blockGroups(counts), [counts]);
  const shown = { ...f, by: counts.by ?? f.by }; // the counts may still be those by the property before
  const stop = groups.some((g) => g.value === active) ? active : groups[0]?.value;
  return (
    <div class="map" role="region" aria-label={t("fleet.map")} {...props}>
      <Legend states={counts.states} />
      <p class="muted small">{t("fleet.map.blocks", { n: maxTiles })} {t("fleet.map.keys")}</p>
      <ul class="blocks">
        {groups.map((g) => <li key={g.value}><Block g={g} by={shown.by} to={addressWith(drillInto(query, shown, g))} isStop={stop === g.value} /></li>)}
      </ul>
      {!!counts.moreGroups && <p class="muted small">{t("fleet.map.more", { n: counts.moreGroups, clusters: counts.moreClusters ?? 0 })}</p>}
    </div>
  );
}

function Block({ g, by, to, isStop }: { g: FleetGroup; by: string; to: string; isStop: boolean }) {
  return (
    <Link to={to} class="block" cell={g.value} stop={isStop}>
      <strong class="line"><Text>{valueName(by, g.value)}</Text></strong>
      <span class="muted">{g.clusters}</span>
      <Parts total={g.clusters} parts={proportions(g.states)} />
      <span class="block-states small" aria-hidden="true">
        {listCounts(g.states).filter(([, n]) => n > 0).map(([s, n]) => <span key={s}><span class={"tile tile-sign tone-" + toneOf(s)}>{stateSigns[s]}</span> {n}</span>)}
      </span>
    </Link>
  );
}
