import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { changeOf } from "../api/actions";
import { RequestError, getJSON } from "../api/client";
import type { KubeObject, Right } from "../api/kubernetes";
import { type Location, locateObject } from "../api/objects";
import { type Template, findTemplate, keyOfTemplate } from "../api/tree";
import { type Draft, type Fields, editableObject, formatObject, getField, isDeep, isFields, draftOf, readText, setField, textAfterRead } from "../model/edit";
import { describeError } from "../text/problem";
import { safeBlock } from "../text/safe";
import { t } from "../text/text";
import { describeRight, useMissingRight } from "../ui/act";
import { Text } from "../ui/parts";
import { useRequest } from "../ui/request";
import { PlannedChange } from "./planned";

/** Kinds whose content is a credential: their values are not shown, so they are not edited here. */
const unedited = new Set(["Secret", "ServiceAccount"]);
const maxContainers = 6;

interface Loaded extends Location {
  object: KubeObject & Fields;
}

async function loadObject(o: Template, signal: AbortSignal): Promise<Loaded> {
  const at = await locateObject(o, signal);
  const object = await getJSON<KubeObject & Fields>(at.path, signal);
  if (isDeep(object)) throw new RequestError(413, "TooDeep", t("change.problem.deep"));
  return { ...at, object };
}

/** Edits a policy or a template: the draft is validated and planned before it can be applied. */
export function ChangeSection({ policy, templates }: { policy?: Template; templates: Template[] }) {
  const objects = [...(policy ? [policy] : []), ...templates.filter((o) => !(unedited.has(o.kind) && !o.group))];
  const [chosen, choose] = useState<string | undefined>();
  const object = findTemplate(objects, chosen);
  const key = object && keyOfTemplate(object);
  useEffect(() => {
    if (chosen === undefined && key !== undefined) choose(key);
  }, [chosen, key]);
  if (!object) return null;
  return (
    <section class="card" id="change">
      <h2>{t("change.title")}</h2>
      <p class="muted small">{t("change.hint")}</p>
      <select class="pick" aria-label={t("change.object")} value={key} onChange={(e) => choose(e.currentTarget.value)}>
        {objects.map((o) => <option key={keyOfTemplate(o)} value={keyOfTemplate(o)}>{nameOf(o)}</option>)}
      </select>
      <Editor key={key} of={object} />
    </section>
  );
}

function nameOf(o: Template): string {
  return safeBlock(`${o.kind} ${o.namespace ? o.namespace + "/" : ""}${o.name}`);
}

function Editor({ of }: { of: Template }) {
  const { answer, refusal, busy, ask } = useRequest(JSON.stringify(of), (signal) => loadObject(of, signal));
  return (
    <>
      <button type="button" class="ghost" disabled={busy} onClick={ask}>{t(busy ? "loading" : answer ? "change.reload" : "change.open")}</button>
      {refusal && <p class="problem"><Text>{describeError(refusal)}</Text></p>}
      {answer && <DraftEditor key={answer.object.metadata.uid} loaded={answer} onApplied={ask} />}
    </>
  );
}

/** Returns the sentence of what is wrong with a draft. */
function problemOf(d: Draft): string | undefined {
  return d.problem && t(`change.problem.${d.problem}`) + (d.detail ? " " + d.detail : "");
}

function DraftEditor({ loaded, onApplied }: { loaded: Loaded; onApplied: () => void }) {
  const { object, path } = loaded;
  const start = useMemo(() => formatObject(editableObject(object)), [object]);
  const [text, setText] = useState(start);
  const applied = useRef<string | undefined>(undefined);
  useLayoutEffect(() => { // before the next key: a later effect would take away what it wrote
    const sent = applied.current;
    applied.current = undefined;
    setText((now) => textAfterRead(now, sent, start));
  }, [object]);
  const reading = useMemo(() => readText(text), [text]);
  const draft = useMemo(() => draftOf(reading, object), [reading, object]);
  const change = useMemo(() => draft.patch && changeOf(path, object, draft.patch), [draft]);
  const right: Right = { verb: "patch", group: loaded.group, resource: loaded.resource, namespace: object.metadata.namespace, name: object.metadata.name };
  const missing = useMissingRight([right]);
  return (
    <>
      {missing && <p class="waits">{describeRight(missing)}</p>}
      <Forms text={text} value={reading.value} onChange={setText} kind={String(object["kind"])} />
      <YAMLText value={text} onChange={setText} />
      {text !== start && <button type="button" class="ghost small" onClick={() => setText(start)}>{t("change.reset")}</button>}
      <PlannedChange change={missing ? undefined : change} problem={problemOf(draft)} onApplied={() => { applied.current = text; onApplied(); }} />
    </>
  );
}

/** A plain editor of text: it needs no library, and a screen reader reads it. Tab indents; Escape, then Tab, leaves. */
function YAMLText({ value, onChange }: { value: string; onChange: (text: string) => void }) {
  const [indents, setIndents] = useState(true);
  const keys = (e: KeyboardEvent) => {
    if (e.key === "Escape") setIndents(false);
    if (e.key !== "Tab" || !indents || e.shiftKey || e.ctrlKey || e.altKey || e.metaKey) return;
    e.preventDefault();
    const box = e.currentTarget as HTMLTextAreaElement;
    box.setRangeText("  ", box.selectionStart, box.selectionEnd, "end");
    onChange(box.value);
  };
  return (
    <textarea
      class="yaml" aria-label={t("change.yaml")} title={t("change.keys")} rows={Math.min(32, Math.max(8, value.split("\n").length))} value={value} spellcheck={false} autocomplete="off" autocapitalize="off" wrap="off" dir="ltr"
      onInput={(e) => onChange(e.currentTarget.value)} onKeyDown={keys} onFocus={() => setIndents(true)}
    />
  );
}

const namesPath = ["spec", "placement", "clusterAffinity", "clusterNames"];

/** Short forms for the common changes. They write into the text. */
function Forms({ text, value, onChange, kind }: { text: string; value: unknown; onChange: (text: string) => void; kind: string }) {
  const replicas = getField(value, ["spec", "replicas"]);
  const containers = getField(value, ["spec", "template", "spec", "containers"]);
  const images = (Array.isArray(containers) ? containers.slice(0, maxContainers) : []).map((c) => (isFields(c) ? c : {}));
  const isPolicy = /PropagationPolicy$/.test(kind) && isFields(getField(value, ["spec", "placement"])) && getField(value, ["spec", "placement", "clusterAffinities"]) === undefined;
  const names = getField(value, namesPath);
  return (
    <div class="forms">
      {typeof replicas === "number" && (
        <label>{t("change.replicas")}<input type="number" min={0} max={1_000_000} value={replicas} onInput={(e) => e.currentTarget.value !== "" && onChange(setField(text, ["spec", "replicas"], Number(e.currentTarget.value)))} /></label>
      )}
      {images.map((c, i) => typeof c["image"] === "string" && (
        <label key={i}>{t("change.image")} <Text>{String(c["name"])}</Text><input type="text" value={c["image"]} spellcheck={false} onInput={(e) => onChange(setField(text, ["spec", "template", "spec", "containers", i, "image"], e.currentTarget.value))} /></label>
      ))}
      {isPolicy && <ClusterNames key={JSON.stringify(names)} names={Array.isArray(names) ? names.map(String) : []} onChange={(list) => onChange(setField(text, namesPath, list.length > 0 ? list : undefined))} />}
    </div>
  );
}

/** The clusters that a policy names. The field is written when the person leaves it, or presses Enter. */
function ClusterNames({ names, onChange }: { names: string[]; onChange: (names: string[]) => void }) {
  const [value, setValue] = useState(names.join(", "));
  const write = () => {
    const list = [...new Set(value.split(/[\s,]+/).filter(Boolean))];
    if (list.join() !== names.join()) onChange(list);
  };
  return <label>{t("change.clusters")}<input type="text" value={value} placeholder={t("change.clusters.any")} spellcheck={false} onInput={(e) => setValue(e.currentTarget.value)} onBlur={write} onKeyDown={(e) => e.key === "Enter" && write()} /></label>;
}
