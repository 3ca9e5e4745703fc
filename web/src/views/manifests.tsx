import { useMemo, useState } from "preact/hooks";
import { stringify } from "yaml";
import { type RenderedContent, renderTemplate } from "../api/preview";
import type { Template } from "../api/tree";
import { withoutSecretValues } from "../model/explanation";
import { safeBlock } from "../text/safe";
import { t } from "../text/text";
import { Text } from "../ui/parts";
import { useRequest } from "../ui/request";

const maxShownBytes = 200_000;
const maxNames = 12;

/** What exactly clusters get of a template: each content once, with its clusters. */
export function Manifests({ templates }: { templates: Template[] }) {
  const [at, choose] = useState(0);
  const template = templates[Math.min(at, templates.length - 1)];
  if (!template) return null;
  return (
    <section class="card" id="manifests">
      <h2>{t("app.manifests")}</h2>
      {templates.length > 1 && (
        <select class="pick" aria-label={t("app.manifests.template")} value={at} onChange={(e) => choose(Number(e.currentTarget.value))}>
          {templates.map((o, i) => <option key={i} value={i}>{nameOf(o)}</option>)}
        </select>
      )}
      <Contents key={nameOf(template)} template={template} />
    </section>
  );
}

function nameOf(o: Template): string {
  return safeBlock(`${o.kind} ${o.namespace ? o.namespace + "/" : ""}${o.name}`);
}

function Contents({ template }: { template: Template }) {
  const { answer, refusal, busy, ask } = useRequest(nameOf(template), (signal) => renderTemplate(template, signal));
  return (
    <>
      <button type="button" class="ghost" disabled={busy} onClick={ask}>{t(busy ? "loading" : answer ? "reload" : "app.manifests.show")}</button>
      {refusal && <p class="muted small"><Text>{refusal.message || t("live.off")}</Text></p>}
      {answer?.contents.map((c) => <Content key={c.clusters[0]} content={c} only={answer.contents.length === 1} />)}
      {!!answer?.more && <p class="muted small">{t("app.tree.more", { n: answer.more })}</p>}
    </>
  );
}

function Content({ content, only }: { content: RenderedContent; only: boolean }) {
  const text = useMemo(() => (content.object ? safeBlock(stringify(withoutSecretValues(content.object), { aliasDuplicateObjects: false, lineWidth: 0 })) : ""), [content]);
  const names = content.clusters.slice(0, maxNames).join(", ");
  return (
    <details class="manifest" open={only}>
      <summary><Text>{names}</Text>{content.clusters.length > maxNames && " " + t("more", { n: content.clusters.length - maxNames })}</summary>
      {content.error && <p class="waits"><Text>{content.error}</Text></p>}
      {text && <pre tabIndex={0}><bdi>{text.slice(0, maxShownBytes)}</bdi></pre>}
      {text.length > maxShownBytes && <p class="muted small">{t("app.manifests.cut")}</p>}
      {!!content.memberOwned?.length && <p class="muted small">{t("app.manifests.member")} <code><Text>{content.memberOwned.join(" ")}</Text></code></p>}
    </details>
  );
}
