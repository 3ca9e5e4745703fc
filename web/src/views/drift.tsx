import { correctDriftWrite } from "../api/actions";
import { type Person, sendWrite } from "../api/client";
import { type DriftedObject, countHidden, getDrifts } from "../api/drift";
import type { Bundle } from "../api/types.gen";
import { commandOf } from "../model/shell";
import { describeError } from "../text/problem";
import { t } from "../text/text";
import { Act, Do } from "../ui/act";
import { useRoute } from "../ui/hooks";
import { Text } from "../ui/parts";
import { useRequest } from "../ui/request";
import { bundleRight } from "./waitactions";
import { rememberedNamespace } from "./signin";

const maxShown = 50;
const maxFields = 8;

/** Drift that waits for the approval of its correction. It is read on request. */
export function DriftSection({ person, bundles, confined }: { person: Person; bundles: readonly Bundle[]; confined: boolean }) {
  const { query } = useRoute();
  const namespace = query.get("ns") || (confined ? rememberedNamespace(person) : "");
  const { answer, refusal, busy, ask } = useRequest("drift/" + namespace, (signal) => getDrifts(namespace, signal));
  const waiting = (answer?.objects ?? []).filter((d) => d.id && !d.approval);
  const bundleOf = (d: DriftedObject) => bundles.find((b) => (b.metadata.namespace ? b.metadata.namespace + "/" : "") + b.metadata.name === d.bundle);
  return (
    <section class="card" id="drift">
      <div class="tree-head">
        <h2>{t("drift.title")}</h2>
        <button type="button" class="ghost" disabled={busy} onClick={ask}>{t(busy ? "loading" : answer ? "reload" : "drift.ask")}</button>
      </div>
      {refusal && <p class="problem"><Text>{describeError(refusal)}</Text></p>}
      {answer && waiting.length === 0 && <p class="muted">{t("drift.none")}</p>}
      <ul class="lines">
        {waiting.slice(0, maxShown).map((d) => {
          const bundle = bundleOf(d);
          return (
            <li key={d.bundle + d.cluster + d.id}>
              <span><Text>{`${d.kind} ${d.namespace ? d.namespace + "/" : ""}${d.name}`}</Text> · <Text>{d.cluster}</Text></span>
              <span class="grow small muted">{d.missing ? t("drift.missing") : t("drift.fields", { n: d.differentFields ?? 0 })}</span>
              {bundle && (
                <Act label={t("drift.correct")} needs={[bundleRight(bundle, "patch")]} command={driftCommand(d)}>
                  <ul class="plan-details">{(d.fields ?? []).slice(0, maxFields).map((f) => <li key={f.path}><code><Text>{`${f.path}: ${f.live || "∅"} → ${f.wanted || "∅"}`}</Text></code></li>)}{countHidden(d, maxFields) > 0 && <li>{t("more", { n: countHidden(d, maxFields) })}</li>}</ul>
                  <p class="muted small">{t("drift.what", { cluster: d.cluster })}</p>
                  <Do label={t("drift.do")} run={() => sendWrite(correctDriftWrite(bundle, [d.id!]))} />
                </Act>
              )}
            </li>
          );
        })}
      </ul>
      {waiting.length > maxShown && <p class="muted small">{t("more", { n: waiting.length - maxShown })}</p>}
      {!!answer?.more && <p class="muted small">{t("more", { n: answer.more })}</p>}
    </section>
  );
}

function driftCommand(d: DriftedObject): string | undefined {
  const where = d.namespace ? ["-n", d.namespace] : [];
  const kind = d.kind.toLowerCase() + (d.group ? "." + d.group : "");
  return commandOf("atoll", "drift", "correct", `${kind}/${d.name}`, ...where, "--cluster", d.cluster, "--id", d.id ?? "");
}
