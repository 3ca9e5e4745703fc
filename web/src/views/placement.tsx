import { useMemo, useState } from "preact/hooks";
import { type BundleExplanation, explainBundle } from "../api/preview";
import { describeOverride, placementRows } from "../model/explanation";
import { toneOf } from "../model/status";
import { t, textOr } from "../text/text";
import { linkTo } from "../ui/hooks";
import { Link, Reason, StatusMark, Text } from "../ui/parts";
import { useRequest } from "../ui/request";

const shownAtFirst = 50;

const toneOfVerdict = { Placed: "good", Kept: "warn", Leaves: "busy", Out: "none", Gone: "away" } as const;

/** Why the application runs where it does: each cluster with its verdict, by the function that decides. */
export function Placement({ namespace, name }: { namespace: string; name: string }) {
  const { answer, refusal, busy, ask } = useRequest(`${namespace}/${name}`, (signal) => explainBundle(namespace, name, signal));
  const bundle = answer?.bundles?.find((b) => b.name === name);
  return (
    <section class="card" id="placement">
      <div class="tree-head">
        <h2>{t("app.placement")}</h2>
        <button type="button" class="ghost" disabled={busy} onClick={ask}>{t(busy ? "loading" : answer ? "reload" : "app.placement.ask")}</button>
      </div>
      {refusal && <p class="muted small"><Text>{refusal.message || t("live.off")}</Text></p>}
      {answer && <p><Text>{answer.verdict}</Text></p>}
      {bundle && <Clusters bundle={bundle} />}
    </section>
  );
}

function Clusters({ bundle }: { bundle: BundleExplanation }) {
  const [all, showAll] = useState(false);
  const rows = useMemo(() => placementRows(bundle.clusters), [bundle]);
  const shown = all ? rows : rows.slice(0, shownAtFirst);
  const choice = bundle.choice;
  const overrides = useMemo(() => new Map(bundle.clusters.map((c) => [c.cluster, c.overrides ?? []])), [bundle]);
  return (
    <>
      {bundle.quarantined && <p class="waits"><Text>{bundle.quarantined}</Text></p>}
      {bundle.unmet && <p class="waits"><Text>{bundle.unmet}</Text></p>}
      {choice && <p class="muted small">{t("app.placement.choice", { chosen: choice.chosen, fit: choice.fit })}</p>}
      {bundle.group && <p class="muted small">{t("app.placement.group")} <Text>{bundle.group}</Text></p>}
      <ul class="lines">
        {shown.map((r) => (
          <li key={r.cluster}>
            <Link to={linkTo("clusters", r.cluster)}><strong><Text>{r.cluster}</Text></strong></Link>
            <StatusMark state={r.verdict} tone={toneOfVerdict[r.verdict] ?? toneOf(r.verdict)} text={textOr("verdict." + r.verdict, r.verdict)} />
            <span class="grow">
              <Reason reason={r.reason} /> {r.why && <span class="muted"><Text>{r.why}</Text></span>}
              {r.waitsFor && <span class="muted"> — <Text>{r.waitsFor}</Text></span>}
            </span>
            {r.score !== undefined && <span class="muted small">{t("app.placement.score", { n: r.score })}</span>}
            {r.replicas !== undefined && <span class="muted small">{t("app.placement.replicas", { n: r.replicas })}</span>}
            {r.revision !== undefined && <span class="muted small">{t("app.revision", { n: r.revision })}</span>}
            {r.overrides > 0 && <Overrides of={overrides.get(r.cluster) ?? []} policies={r.overrides} />}
          </li>
        ))}
      </ul>
      {rows.length > shown.length && <button type="button" class="ghost small" onClick={() => showAll(true)}>{t("more", { n: rows.length - shown.length })}</button>}
      {!!bundle.unknown?.length && <p class="muted small">{t("app.placement.unknown")} <Text>{bundle.unknown.join(", ")}</Text></p>}
    </>
  );
}

const maxOverrides = 40;

function Overrides({ of, policies }: { of: Parameters<typeof describeOverride>[0][]; policies: number }) {
  return (
    <details class="small">
      <summary class="muted">{t("app.placement.overrides", { n: policies })}</summary>
      <ul>{of.slice(0, maxOverrides).map((o, i) => <li key={i}><code><Text>{describeOverride(o)}</Text></code></li>)}</ul>
      {of.length > maxOverrides && <p class="muted">{t("more", { n: of.length - maxOverrides })}</p>}
    </details>
  );
}
