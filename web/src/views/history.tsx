import { type Template, keyOfTemplate } from "../api/tree";
import { type KeptChange, getKeptChanges } from "../api/undo";
import { commandOf } from "../model/shell";
import { describeError } from "../text/problem";
import { t, textOr } from "../text/text";
import { Command, Since, Text } from "../ui/parts";
import { useRequest } from "../ui/request";

const maxShown = 50;

function undoCommand(c: KeptChange): string | undefined {
  const [group = "", , namespace = "", ...name] = c.object.split("/");
  const where = namespace ? ["-n", namespace] : [];
  return commandOf("atoll", "undo", `${c.resource}${group ? "." + group : ""}/${name.join("/")}`, ...where, "--revision", c.revision);
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
            {undoCommand(c) && <Command text={undoCommand(c)!} />}
          </li>
        ))}
      </ul>
      {changes.length > maxShown && <p class="muted small">{t("more", { n: changes.length - maxShown })}</p>}
    </section>
  );
}
