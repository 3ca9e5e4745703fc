import { useMemo, useState } from "preact/hooks";
import type { Person } from "../api/client";
import { type FleetPage, followPage } from "../api/fleet";
import type { Bundle } from "../api/types.gen";
import { appRow } from "../model/application";
import { waitingCluster } from "../model/fleet";
import { sourceRow } from "../model/source";
import { type Wait, listWaits } from "../model/waits";
import { t, textOr } from "../text/text";
import { linkTo, useFollowed, useRoute } from "../ui/hooks";
import { Empty, Link, Reason, Since, Text } from "../ui/parts";
import { Icon } from "../ui/icons";
import { actorOf } from "../ui/reasons";
import { useApplications } from "./applications";
import { DriftSection } from "./drift";
import { type Namespaced, useSources } from "./namespaced";
import { WaitActions } from "./waitactions";

/** So many waits of one actor are drawn at first: each has buttons, and asks for their rights. */
const shownAtFirst = 30;

/** The clusters that wait for a person, the longest wait first. Further ones are counted. */
const waitingClusters = new URLSearchParams({ waiting: "true", sort: "since", limit: "500" });

interface Waits {
  waits: Wait[];
  /** Clusters that wait, too, and are not among the waits. */
  more: number;
  bundles: readonly Bundle[];
  apps: Namespaced<Bundle>;
  /** Clusters are not among them. */
  partial: boolean;
  loaded: boolean;
}

export function useWaits(person: Person): Waits {
  const { query } = useRoute();
  const clusters = useFollowed<FleetPage>("waiting", (onChange) => followPage(waitingClusters, onChange));
  const apps = useApplications(person, query.get("ns") ?? "");
  const sources = useSources(person, query.get("ns") ?? "");
  const page = clusters.value;
  const waits = useMemo(() => listWaits((page?.clusters ?? []).map(waitingCluster), apps.items.map(appRow), actorOf, sources.items.map(sourceRow)), [page, apps.items, sources.items]);
  return {
    waits, bundles: apps.items, apps, partial: !!clusters.refusal, more: page ? page.matching - page.clusters.length : 0,
    loaded: apps.loaded && (!!page || !!clusters.refusal) && (sources.loaded || !!sources.refusal || sources.namespace === ""),
  };
}

export function Waiting({ waits: w, person }: { waits: Waits; person: Person }) {
  const byActor = new Map<string, Wait[]>();
  for (const one of w.waits) byActor.set(one.actor, [...(byActor.get(one.actor) ?? []), one]);
  return (
    <>
      <header class="page">
        <h1>{t("waiting.title")}</h1>
        <p class="muted">{t("waiting.hint")} {w.partial && t("waiting.partial")} {w.more > 0 && t("waiting.more", { n: w.more })}</p>
      </header>
      {w.waits.length === 0 && <Empty title={t(w.loaded ? "waiting.empty" : "loading")} />}
      {[...byActor].map(([actor, list]) => <Actor key={actor} actor={actor} list={list} person={person} />)}
      <DriftSection person={person} bundles={w.bundles} confined={w.apps.namespace !== undefined} />
    </>
  );
}

function addressOf(w: Wait): string {
  if (w.kind === "cluster") return linkTo("clusters", w.name);
  return w.kind === "source" ? linkTo("sources", w.namespace, w.name) : linkTo("applications", w.namespace || "-", w.name);
}

function Actor({ actor, list, person }: { actor: string; list: Wait[]; person: Person }) {
  const [all, showAll] = useState(false);
  const shown = all ? list : list.slice(0, shownAtFirst);
  return (
    <section class="card">
      <h2><span class="tone-wait"><Icon name="wait" /></span> <span class="initial">{textOr("actor." + actor, actor)}</span> <span class="muted small">{list.length}</span></h2>
      <ul class="lines waits-list">
        {shown.map((w) => (
          <li key={w.key}>
            <Link to={addressOf(w)}>
              <span class="muted">{t(`waiting.${w.kind}`)}</span> <strong><Text>{w.title}</Text></strong>
            </Link>
            <span class="grow"><Reason reason={w.reason} /> {w.message && <span class="muted"> — <Text>{w.message}</Text></span>}</span>
            <span class="muted small"><Since time={w.since} /></span>
            <WaitActions wait={w} person={person} />
          </li>
        ))}
      </ul>
      {list.length > shown.length && <button type="button" class="ghost small" onClick={() => showAll(true)}>{t("more", { n: list.length - shown.length })}</button>}
    </section>
  );
}
