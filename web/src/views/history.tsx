import { useEffect } from "preact/hooks";
import { type Template, keyOfTemplate } from "../api/tree";
import { type KeptChange, canUndo, getKeptChanges, objectOf, readUndo } from "../api/undo";
import { commandOf } from "../model/shell";
import { describeError } from "../text/problem";
import { t, textOr } from "../text/text";
import { Act } from "../ui/act";
import { Command, Since, Text } from "../ui/parts";
import { useRequest } from "../ui/request";
import { PlannedChange } from "./planned";

const maxShown = 50;

function undoCommand(c: KeptChange): string | undefined {
  const { group, namespace, name } = objectOf(c);
  const where = namespace ? ["-n", namespace] : [];
  return commandOf("atoll", "undo", `${c.resource}${group ? "." + group : ""}/${name}`, ...where, "--revision", c.revision);
}

/** The undo of a change: with its plan where the console can write it, and else its command. */
function UndoAction({ change, onApplied }: { change: KeptChange; onApplied: () => void }) {
  const { group = "", namespace, name } = objectOf(change);
  const command = undoCommand(change);
  if (!canUndo(change)) return command ? <Command text={command} /> : null;
  return (
    <Act label={t("undo.open")} needs={[{ verb: "patch", group, resource: change.resource, namespace: namespace || undefined, name }]} command={command}>
      <UndoPlan change={change} onApplied={onApplied} />
    </Act>
  );
}

function UndoPlan({ change, onApplied }: { change: KeptChange; onApplied: () => void }) {
  const { answer, refusal, busy, ask } = useRequest(`undo/${change.object}/${change.revision}`, (signal) => readUndo(change, signal));
  useEffect(ask, [change.object, change.revision]);
  if (busy && !answer) return <p class="muted">{t("loading")}</p>;
  return (
    <>
      {refusal && <p class="problem" role="alert"><Text>{describeError(refusal)}</Text></p>}
      {answer && !answer.change && <p>{t("undo.nothing")}</p>}
      {answer?.change && <p class="muted small">{t("undo.what")}</p>}
      <ul class="plan-details">
        {(answer?.step.fields ?? []).map((f) => <li key={f.path}><code><Text>{`${f.path}: ${formatValue(f.before)} → ${formatValue(f.after)}`}</Text></code></li>)}
      </ul>
      {!!answer?.step.moreFields && <p class="muted small">{t("more", { n: answer.step.moreFields })}</p>}
      {answer?.change && <PlannedChange change={answer.change} onApplied={onApplied} />}
      <button type="button" class="ghost" disabled={busy} onClick={ask}>{t(busy ? "loading" : "reload")}</button>
    </>
  );
}

const maxValue = 120;

function formatValue(v: unknown): string {
  if (v === null || v === undefined) return t("none");
  const text = JSON.stringify(v);
  return text.length > maxValue ? text.slice(0, maxValue) + "…" : text;
}

/** The person and the time of each kept change of an application's objects, the newest first. It is read on request. */
export function History({ namespace, objects }: { namespace: string; objects: Template[] }) {
  const keys = new Set(objects.map(keyOfTemplate));
  const { answer, refusal, busy, ask } = useRequest("history/" + namespace, (signal) => getKeptChanges(namespace, signal));
  const changes = (answer?.changes ?? []).filter((c) => keys.has(c.object)).sort((a, b) => (a.at < b.at ? 1 : -1));
  return (
    <section class="card" id="history">
      <div class="tree-head">
        <h2>{t("history.title")}</h2>
        <button type="button" class="ghost" disabled={busy} onClick={ask}>{t(busy ? "loading" : answer ? "reload" : "history.ask")}</button>
      </div>
      {refusal && <p class="problem"><Text>{describeError(refusal)}</Text></p>}
      {answer && changes.length === 0 && <p class="muted">{t("history.none")}</p>}
      {changes.length > 0 && <p class="muted small">{t("history.hint")}</p>}
      <ul class="lines">
        {changes.slice(0, maxShown).map((c) => (
          <li key={c.object + c.revision}>
            <span class="muted small"><Since time={c.at} /></span>
            <strong><Text>{c.by}</Text></strong>
            <span class="grow">
              {textOr("history." + c.operation, c.operation)} <Text>{c.object.split("/")[1] + " " + c.object.split("/").slice(3).join("/")}</Text>
              <span class="muted"> <code><Text>{(c.fields ?? []).join(", ")}</Text></code>{c.moreFields ? " " + t("more", { n: c.moreFields }) : ""}</span>
            </span>
            <UndoAction change={c} onApplied={ask} />
          </li>
        ))}
      </ul>
      {changes.length > maxShown && <p class="muted small">{t("more", { n: changes.length - maxShown })}</p>}
    </section>
  );
}
