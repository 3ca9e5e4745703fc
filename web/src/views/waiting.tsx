import { useMemo } from "preact/hooks";
import type { Person } from "../api/client";
import type { Cluster } from "../api/types.gen";
import { appRow } from "../model/application";
import { clusterRow } from "../model/cluster";
import { type Wait, listWaits } from "../model/waits";
import { t, textOr } from "../text/text";
import { linkTo, useCollection, useRoute } from "../ui/hooks";
import { Command, Empty, Link, Reason, Since, Text } from "../ui/parts";
import { Icon } from "../ui/icons";
import { actorOf } from "../ui/reasons";
import { useApplications } from "./applications";
import { clustersPath } from "./fleet";

/** Returns the command that ends a wait, where one does. */
function commandOf(w: Wait): string | undefined {
  if (w.kind === "cluster") return w.reason === "WaitsForAdministrator" ? `atoll accept ${w.name}` : undefined;
  const target = w.namespace ? `bundle/${w.name} -n ${w.namespace}` : `clusterbundle/${w.name}`;
  return w.reason === "WaitsForConfirmation" ? `atoll confirm ${target}` : `atoll explain ${target}`;
}

export function useWaits(person: Person): { waits: Wait[]; partial: boolean } {
  const { query } = useRoute();
  const clusters = useCollection<Cluster>(clustersPath);
  const apps = useApplications(person, query.get("ns") ?? "");
  const waits = useMemo(() => listWaits(clusters.items.map(clusterRow), apps.items.map(appRow), actorOf), [clusters.items, apps.items]);
  return { waits, partial: !!clusters.refusal };
}

export function Waiting({ waits, partial }: { waits: Wait[]; partial: boolean }) {
  const byActor = new Map<string, Wait[]>();
  for (const w of waits) byActor.set(w.actor, [...(byActor.get(w.actor) ?? []), w]);
  return (
    <>
      <header class="page">
        <h1>{t("waiting.title")}</h1>
        <p class="muted">{t("waiting.hint")} {partial && t("waiting.partial")}</p>
      </header>
      {waits.length === 0 && <Empty title={t("waiting.empty")} />}
      {[...byActor].map(([actor, list]) => (
        <section class="card" key={actor}>
          <h2><span class="tone-wait"><Icon name="wait" /></span> <span class="initial">{textOr("actor." + actor, actor)}</span> <span class="muted small">{list.length}</span></h2>
          <ul class="lines waits-list">
            {list.map((w) => (
              <li key={w.key}>
                <Link to={w.kind === "cluster" ? linkTo("clusters", w.name) : linkTo("applications", w.namespace || "-", w.name)}>
                  <span class="muted">{t(w.kind === "cluster" ? "waiting.cluster" : "waiting.application")}</span> <strong><Text>{w.title}</Text></strong>
                </Link>
                <span class="grow"><Reason reason={w.reason} /> {w.message && <span class="muted"> — <Text>{w.message}</Text></span>}</span>
                <span class="muted small"><Since time={w.since} /></span>
                {commandOf(w) && <Command text={commandOf(w)!} />}
              </li>
            ))}
          </ul>
        </section>
      ))}
    </>
  );
}
