import { useMemo } from "preact/hooks";
import { inNamespace, suspendWrite, syncWrite } from "../api/actions";
import { sendWrite } from "../api/client";
import type { Condition, Right } from "../api/kubernetes";
import type { Repository, Source } from "../api/types.gen";
import { fieldSelector } from "../model/selector";
import { commandOf } from "../model/shell";
import { describeRef, sourceRow } from "../model/source";
import { safeText } from "../text/safe";
import { t, textOr } from "../text/text";
import { Act, Do } from "../ui/act";
import { linkTo, useCollection, useRoute } from "../ui/hooks";
import { Command, Empty, Link, Reason, Refusal, Since, StatusMark, Text } from "../ui/parts";
import { Conditions } from "./conditions";
import { Events } from "./events";

const maxShown = 200;

function sourceRight(namespace: string, verb: string): Right {
  return { verb, group: "atoll.dev", resource: "sources", namespace };
}

/** A Source: its revision, objects, drift, errors and Events, with its actions. */
export function SourcePage({ namespace, name }: { namespace: string; name: string }) {
  const { items, loaded, refusal } = useCollection<Source>(inNamespace("sources", namespace), fieldSelector({ "metadata.name": name }));
  const source = items[0];
  if (refusal) return <Refusal error={refusal} />;
  if (!source) return loaded ? <Empty title={t("error.notFound")} /> : <p class="muted pad">{t("loading")}</p>;
  const r = sourceRow(source);
  const st = source.status;
  return (
    <>
      <header class="page detail">
        <p class="crumbs"><Link to={linkTo("sources")}>{t("sources.title")}</Link> / <Text>{namespace}</Text></p>
        <h1><Text>{name}</Text></h1>
        <div class="headline">
          <StatusMark state={r.state} text={textOr("source.state." + r.state, r.state)} />
          <span class="muted"><Reason reason={r.reason} message={r.message} /> · <Since time={r.since} /></span>
        </div>
        {r.state !== "Ready" && r.message && <p class="waits"><Text>{r.message}</Text></p>}
      </header>
      <div class="columns">
        <Facts source={source} />
        <Conditions conditions={st?.conditions as Condition[] | undefined} />
      </div>
      <Errors source={source} />
      <Drift source={source} />
      <Actions source={source} />
      <Objects source={source} />
      <Events path={`/api/v1/namespaces/${encodeURIComponent(namespace)}/events`} selector={fieldSelector({ "involvedObject.kind": "Source", "involvedObject.name": name })} empty={t("source.events.empty")} />
    </>
  );
}

function Facts({ source }: { source: Source }) {
  const { namespace = "" } = source.metadata;
  const repositories = useCollection<Repository>(inNamespace("repositories", namespace), fieldSelector({ "metadata.name": source.spec.repository }));
  const place = repositories.items[0]?.spec;
  const st = source.status;
  const facts: [string, string][] = [
    [t("sources.col.repository"), source.spec.repository], [t("source.url"), place?.git?.url ?? place?.helm?.url ?? place?.oci?.url ?? ""],
    [t("source.ref"), describeRef(source.spec.ref)], [t("source.paths"), (source.spec.paths ?? []).join(", ")],
    [t("sources.col.revision"), st?.commit ?? ""], [t("source.message"), st?.message ?? ""], [t("source.author"), st?.author ?? ""], [t("source.signer"), st?.verified?.signer ?? ""],
    [t("sources.col.objects"), t("source.counts", { total: st?.objects?.total ?? 0, applied: st?.objects?.applied ?? 0, kept: st?.objects?.kept ?? 0 })],
    [t("apps.col.clusters"), st?.clusters?.summary ?? ""],
    [t("source.drift.mode"), textOr("source.drift." + (source.spec.drift?.mode ?? "Report"), source.spec.drift?.mode ?? "")],
  ];
  return (
    <section class="card">
      <h2>{t("cluster.facts")}</h2>
      <dl class="facts">
        {facts.filter(([, v]) => v !== "").map(([k, v]) => <div key={k}><dt>{k}</dt><dd><Text>{v}</Text></dd></div>)}
        <div><dt>{t("cluster.fact.joined")}</dt><dd><Since time={source.metadata.creationTimestamp} /></dd></div>
      </dl>
    </section>
  );
}

function Errors({ source }: { source: Source }) {
  const errors = source.status?.errors ?? [];
  if (errors.length === 0) return null;
  return (
    <section class="card" id="errors">
      <h2>{t("source.errors")}</h2>
      <ul class="lines">
        {errors.map((e, i) => (
          <li key={i}>
            {e.file && <code><Text>{e.line ? `${e.file}:${e.line}` : e.file}</Text></code>}
            <span class="grow"><Text>{e.message}</Text></span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Drift({ source }: { source: Source }) {
  const drift = source.status?.drift ?? [];
  if (drift.length === 0) return null;
  const all = source.status?.objects?.drifted ?? drift.length;
  return (
    <section class="card" id="source-drift">
      <h2>{t("source.drift.title")} <span class="muted small">{all}</span></h2>
      <ul class="lines">
        {drift.map((d) => (
          <li key={d.kind + "/" + d.namespace + "/" + d.name}>
            <strong><Text>{`${d.kind} ${d.namespace ? d.namespace + "/" : ""}${d.name}`}</Text></strong>
            <span class="grow small">
              {d.deleted ? t("source.drift.deleted") : <code><Text>{(d.fields ?? []).join(", ")}</Text></code>} {d.managers?.length ? <span class="muted">{t("source.drift.by")} <Text>{d.managers.join(", ")}</Text></span> : null} {d.message && <Text>{d.message}</Text>}
            </span>
            <span class="muted small"><Since time={d.since} /></span>
          </li>
        ))}
      </ul>
      {all > drift.length && <p class="muted small">{t("more", { n: all - drift.length })}</p>}
    </section>
  );
}

function Actions({ source }: { source: Source }) {
  const { name, namespace = "" } = source.metadata;
  const needs = useMemo(() => [sourceRight(namespace, "patch")], [namespace]);
  const suspended = !!source.spec.suspend;
  const chosen = useRoute().query.get("act"); // by the palette
  const next = suspended ? "resume" : "suspend";
  const command = (verb: string) => commandOf("atoll", "source", verb, name, "-n", namespace);
  return (
    <section class="card" id="actions">
      <h2>{t("source.actions")}</h2>
      {!suspended && (
        <Act key={"sync" + (chosen === "sync")} label={t("source.sync")} needs={needs} command={command("sync")} opened={chosen === "sync"}>
          <p>{t("source.sync.what")}</p>
          <Do label={t("source.sync.do")} run={() => sendWrite(syncWrite(source, new Date()))} />
        </Act>
      )}
      <Act key={next + (chosen === next)} label={t(`source.${next}`)} needs={needs} command={command(next)} opened={chosen === next}>
        <p>{t(suspended ? "source.resume.what" : "source.suspend.what")}</p>
        <Do label={t(suspended ? "source.resume.do" : "source.suspend.do")} run={() => sendWrite(suspendWrite(source, !suspended))} />
      </Act>
      <p class="muted small">{t("source.diff")}</p>
      <Command text={commandOf("atoll", "source", "diff", name, "-n", namespace, "--local", "DIR") ?? ""} />
    </section>
  );
}

/** The objects that the Source applied, and those that stay although the content lacks them. */
function Objects({ source }: { source: Source }) {
  const objects = source.status?.inventory ?? [];
  const mine = `?q=${encodeURIComponent("ns:" + (source.metadata.namespace ?? ""))}`;
  return (
    <section class="card" id="objects">
      <div class="tree-head">
        <h2>{t("sources.col.objects")} <span class="muted small">{objects.length}</span></h2>
        <Link to={linkTo("applications") + mine} class="ghost small">{t("source.applications")}</Link>
      </div>
      <ul class="lines">
        {objects.slice(0, maxShown).map((o) => (
          <li key={[o.apiVersion, o.kind, o.namespace, o.name].join("/")} title={safeText(o.apiVersion)}>
            <span class="muted"><Text>{o.kind}</Text></span>
            <span class="grow"><Text>{(o.namespace ? o.namespace + "/" : "") + o.name}</Text></span>
            {o.kept && <span class="muted small">{t("source.kept")} <Reason reason={o.kept} /></span>}
          </li>
        ))}
      </ul>
      {objects.length > maxShown && <p class="muted small">{t("more", { n: objects.length - maxShown })}</p>}
    </section>
  );
}
