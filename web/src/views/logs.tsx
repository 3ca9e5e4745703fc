import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RequestError } from "../api/client";
import { collectionOf } from "../api/collection";
import { type FollowedSource, LogFollower, applicationKind, findWorkloads } from "../api/logs";
import type { Pod, Right } from "../api/kubernetes";
import { type LogLine, findLines, maxLines } from "../model/logbuffer";
import { type LogRange, type LogSubject, type Workload, allContainers, containerNames, hasLogs, logCommands, maxSources, podQuery, sourceName, sourcesOf, sourcesWithButton } from "../model/logsources";
import { safeText } from "../text/safe";
import { type TextKey, t } from "../text/text";
import { RightLink, describeRight, useMissingRight } from "../ui/act";
import { linkTo, setQuery, useRoute } from "../ui/hooks";
import { Icon } from "../ui/icons";
import { LogList, Marked, colourOf } from "../ui/loglist";
import { Command, Empty, Link, Refusal, Text } from "../ui/parts";
import { useRequest } from "../ui/request";
import { toneOf } from "../model/status";

const tails = [100, 500, 1000, 5000];
const ages: readonly [string, number][] = [["", 0], ["5m", 300], ["1h", 3600], ["6h", 21_600], ["24h", 86_400]];

/** The rights to the logs of a namespace. */
export function logRights(namespace: string): Right[] {
  return [{ verb: "list", group: "", resource: "pods", namespace }, { verb: "get", group: "", resource: "pods", subresource: "log", namespace }];
}

/** A link to logs. Without the right it is no link, and names the right. */
export function LogsLink({ of, children }: { of: LogSubject; children?: string }) {
  return <RightLink needs={logRights(of.namespace)} to={linkTo("logs", of.namespace, of.kind, of.name)} class="log-link" text={children ?? t("logs.open")} />;
}

/** The logs of a pod, or of all pods of a workload or an application in all clusters. */
export function Logs(of: LogSubject) {
  const { answer, refusal, ask } = useRequest([of.namespace, of.kind, of.name].join("/"), (signal) => findWorkloads(of, signal));
  useEffect(ask, []);
  const missing = useMissingRight(logRights(of.namespace));
  if (of.kind !== applicationKind && !hasLogs(of.kind)) return <Empty title={t("error.notFound")} />;
  return (
    <>
      <header class="page detail">
        <p class="crumbs"><Link to={linkTo("applications")}>{t("apps.title")}</Link> / <Text>{of.namespace}</Text> / <Text>{of.kind}</Text></p>
        <h1>{t("logs.title")} <Text>{of.name}</Text></h1>
        {missing && <p class="problem" role="alert">{describeRight(missing)}</p>}
      </header>
      {refusal && <Refusal error={refusal} />}
      {!!answer?.left && <p class="problem" role="status">{t("logs.workloads.left", { n: answer.left })}</p>}
      {!missing && answer && <FollowedPods of={of} workloads={answer.workloads} />}
      {!answer && !refusal && <p class="muted">{t("loading")}</p>}
    </>
  );
}

interface Pods {
  items: readonly Pod[];
  loaded: boolean;
  refusal?: RequestError;
}

/** Follows the pods of workloads while it is shown. */
function usePods(workloads: readonly Workload[], cluster: string): Pods {
  const [pods, setPods] = useState<Pods>({ items: [], loaded: false });
  useEffect(() => {
    const all = workloads.map((w) => collectionOf<Pod>(`/api/v1/namespaces/${encodeURIComponent(w.namespace)}/pods`, podQuery(w, cluster)));
    const changed = () => {
      const items = new Map(all.flatMap((c) => c.current.items.map((p) => [p.metadata.uid ?? p.metadata.name, p] as const)));
      setPods({ items: [...items.values()], loaded: all.every((c) => c.current.loaded), refusal: all.find((c) => c.current.refusal)?.current.refusal });
    };
    const stops = all.map((c) => c.subscribe(changed));
    changed();
    return () => stops.forEach((stop) => stop());
  }, [workloads, cluster]);
  return pods;
}

function FollowedPods({ of, workloads }: { of: LogSubject; workloads: readonly Workload[] }) {
  const { query } = useRoute();
  const [cluster, container] = [query.get("cluster") ?? "", query.get("container") ?? ""];
  const { items, loaded, refusal } = usePods(workloads, cluster);
  const seen = useRef(new Set<string>());
  for (const p of items) if (p.metadata.labels?.["atoll.dev/cluster"]) seen.current.add(p.metadata.labels["atoll.dev/cluster"]);
  const tail = tails.find((n) => String(n) === query.get("tail")) ?? tails[0]!;
  const since = ages.find(([name]) => name === query.get("since"))?.[1] ?? 0;
  if (refusal) return <Refusal error={refusal} />;
  return (
    <>
      <div class="forms log-choices">
        {of.kind !== "Pod" && <Choice label={t("logs.cluster")} name="cluster" value={cluster} options={[["", t("logs.cluster.all")], ...[...seen.current].sort().map((c) => [c, c] as const)]} />}
        <Choice label={t("logs.container")} name="container" value={container} options={[["", t("logs.container.default")], [allContainers, t("logs.container.all")], ...containerNames(items).map((c) => [c, c] as const)]} />
        <Choice label={t("logs.tail")} name="tail" value={String(tail)} options={tails.map((n) => [String(n), String(n)])} />
        <Choice label={t("logs.since")} name="since" value={query.get("since") ?? ""} options={ages.map(([name]) => [name, name || t("logs.since.any")])} />
      </div>
      {loaded && items.length === 0 && <p class="muted">{t(workloads.length === 0 ? "logs.none.ever" : "logs.none")}</p>}
      <Stream key={[cluster, container, tail, since].join(" ")} of={of} pods={items} container={container} range={{ tail, since }} />
      {workloads.flatMap((w) => logCommands(w, container, cluster, { tail, since })).map((c) => <p key={c}><Command text={c} /></p>)}
    </>
  );
}

function Choice({ label, name, value, options }: { label: string; name: string; value: string; options: (readonly [string, string])[] }) {
  return (
    <label>
      {label}
      <select class="pick" value={value} onChange={(e) => setQuery(name, e.currentTarget.value)}>
        {options.map(([v, text]) => <option key={v} value={v}>{safeText(text)}</option>)}
      </select>
    </label>
  );
}

interface View {
  lines: readonly LogLine[];
  sources: readonly FollowedSource[];
  dropped: number;
  left: number;
}

/** Follows the sources while it is shown. */
function useFollower(pods: readonly Pod[], container: string, range: LogRange): View {
  const [view, setView] = useState<View>({ lines: [], sources: [], dropped: 0, left: 0 });
  const follower = useRef<LogFollower | undefined>(undefined);
  useEffect(() => {
    const own = new LogFollower(range, () => setView({ lines: own.buffer.lines, sources: [...own.followed], dropped: own.buffer.dropped, left: own.left }));
    follower.current = own;
    return () => own.stop();
  }, []);
  useEffect(() => follower.current?.setSources(sourcesOf(pods, container)), [pods]);
  return view;
}

function Stream({ of, pods, container, range }: { of: LogSubject; pods: readonly Pod[]; container: string; range: LogRange }) {
  const { query } = useRoute();
  const wanted = query.get("q") ?? "";
  const live = useFollower(pods, container, range);
  const [held, hold] = useState<View | undefined>();
  const [hidden, setHidden] = useState<ReadonlySet<number>>(new Set());
  const [opened, setOpened] = useState<LogLine | undefined>();
  const view = held ?? live;
  const lines = useMemo(() => findLines(view.lines, wanted, hidden), [view.lines, wanted, hidden]);
  const withContainer = useMemo(() => new Set(live.sources.map((s) => s.source.container)).size > 1, [live.sources]);
  const nameOf = (source: number) => safeText(live.sources[source] && sourceName(live.sources[source]!.source, withContainer));
  const pause = () => hold(held ? undefined : live);
  const behind = held ? live.lines.length + live.dropped - held.lines.length - held.dropped : 0;
  const toggle = (source: number) => setHidden(new Set(hidden.has(source) ? [...hidden].filter((h) => h !== source) : [...hidden, source]));
  return (
    <section class="card log-card" id="logs">
      <div class="tree-head">
        <div class="filter">
          <Icon name="search" />
          <input id="filter" type="search" value={wanted} placeholder={t("logs.search")} aria-label={t("logs.search")} spellcheck={false} autocomplete="off" maxLength={200} onInput={(e) => setQuery("q", e.currentTarget.value)} />
          <kbd>/</kbd>
          <span class="muted small count" role="status">{wanted ? t("filter.shown", { shown: lines.length, all: view.lines.length }) : lines.length}</span>
        </div>
        <button type="button" class="action" aria-pressed={!!held} onClick={pause}>{t(held ? "logs.resume" : "logs.pause")}</button>
        <button type="button" class="action" disabled={lines.length === 0} onClick={() => download(of, lines, nameOf)}>{t("logs.download")}</button>
        <span class="muted small" role="status">{held ? t("logs.behind", { n: behind }) : ""}</span>
      </div>
      <Sources sources={live.sources} hidden={hidden} nameOf={nameOf} onToggle={toggle} />
      {live.left > 0 && <p class="problem" role="status">{t("logs.left", { n: live.left, most: maxSources })}</p>}
      <LogList lines={lines} nameOf={nameOf} wanted={wanted} label={t("logs.title") + " " + safeText(of.name)} opened={opened} onOpen={setOpened} onPause={pause} />
      {opened && (
        <div class="log-opened" role="region" aria-label={t("logs.line")}>
          <p class="muted small"><span class={"log-source " + colourOf(opened.source)}><bdi>{nameOf(opened.source)}</bdi></span> <Text>{opened.stamp}</Text></p>
          <pre tabIndex={0}><Marked text={opened.text} wanted={wanted} /></pre>
        </div>
      )}
      <p class="muted small">{t("logs.bound", { n: maxLines })} {view.dropped > 0 && t("logs.dropped", { n: view.dropped })}</p>
    </section>
  );
}

/** The sources, each with its colour, name and state. A person hides and shows the lines of one. */
function Sources({ sources, hidden, nameOf, onToggle }: { sources: readonly FollowedSource[]; hidden: ReadonlySet<number>; nameOf: (source: number) => string; onToggle: (source: number) => void }) {
  const shown = sourcesWithButton(sources.map((s) => s.state === "ended"), hidden);
  return (
    <div class="pills log-sources" role="group" aria-label={t("logs.sources")}>
      {shown.map((i) => {
        const s = sources[i]!;
        const tone = toneOf({ waiting: "Pending", open: "Running", broken: "Degraded", refused: "Failed", ended: "Suspended" }[s.state]);
        const state = t(`logs.state.${s.state}` as TextKey);
        return (
          <button key={s.source.key} type="button" class={"pill tone-" + tone} aria-pressed={!hidden.has(i)} title={s.message ? safeText(s.message) : state} onClick={() => onToggle(i)}>
            <Icon name={tone} label={state} />
            <span class={"log-source " + colourOf(i)}><bdi>{nameOf(i)}</bdi></span>
            {s.state !== "open" && <span>{state}{s.state === "refused" && s.message ? ": " : ""}{s.state === "refused" && <Text>{s.message}</Text>}</span>}
          </button>
        );
      })}
      {sources.length > shown.length && <span class="muted small">{t("more", { n: sources.length - shown.length })}</span>}
    </div>
  );
}

/** Saves the shown lines as a file. */
function download(of: LogSubject, lines: readonly LogLine[], nameOf: (source: number) => string): void {
  const file = new Blob(lines.map((l) => `${l.stamp} [${nameOf(l.source)}] ${l.text}\n`), { type: "text/plain" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = `${of.namespace}-${of.name}.log`.replace(/[^\w.-]/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
