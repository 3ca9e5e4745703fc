import { useMemo } from "preact/hooks";
import type { KubeEvent } from "../api/kubernetes";
import { t } from "../text/text";
import { useCollection } from "../ui/hooks";
import { Since, StatusMark, Text } from "../ui/parts";

const maxEvents = 30;

function timeOf(e: KubeEvent): string {
  return e.lastTimestamp ?? e.eventTime ?? e.metadata.creationTimestamp ?? "";
}

/** The newest Events that a selector finds. */
export function Events({ path, selector, empty }: { path: string; selector: string; empty: string }) {
  const { items, loaded, refusal } = useCollection<KubeEvent>(path, selector);
  const events = useMemo(() => [...items].sort((a, b) => (timeOf(a) < timeOf(b) ? 1 : -1)).slice(0, maxEvents), [items]);
  return (
    <section class="card">
      <h2>{t("cluster.events")}</h2>
      {refusal && <p class="muted small"><Text>{refusal.message}</Text></p>}
      {!refusal && events.length === 0 && <p class="muted">{loaded ? empty : t("loading")}</p>}
      <ul class="lines">
        {events.map((e) => (
          <li key={e.metadata.uid}>
            <StatusMark state={e.reason ?? ""} text={e.reason} tone={e.type === "Warning" ? "warn" : "none"} />
            <span class="grow"><Text>{e.message}</Text></span>
            <span class="muted small">{(e.count ?? 0) > 1 && `×${e.count} · `}<Since time={timeOf(e)} /></span>
          </li>
        ))}
      </ul>
    </section>
  );
}
