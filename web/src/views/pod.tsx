import { useMemo } from "preact/hooks";
import { stringify } from "yaml";
import type { Condition, ContainerStatus, Pod } from "../api/kubernetes";
import { isDeep } from "../model/edit";
import { containerStatus } from "../model/logsources";
import { podState, shortNameOf } from "../model/owners";
import { fieldSelector } from "../model/selector";
import { commandOf } from "../model/shell";
import { safeBlock } from "../text/safe";
import { t } from "../text/text";
import { linkTo, useCollection } from "../ui/hooks";
import { Command, Empty, Link, Reason, Refusal, Since, StatusMark, Text } from "../ui/parts";
import { Conditions } from "./conditions";
import { Events } from "./events";
import { LogsLink } from "./logs";
import { TerminalLink } from "./terminal";

const maxShown = 200_000;

/** A pod in a cluster: its containers, conditions and Events, and the object. It is live. */
export function PodPage({ namespace, name }: { namespace: string; name: string }) {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}`;
  const { items, loaded, refusal } = useCollection<Pod>(path + "/pods", fieldSelector({ "metadata.name": name }));
  const pod = items[0];
  if (refusal) return <Refusal error={refusal} />;
  if (!pod) return loaded ? <Empty title={t("error.notFound")} /> : <p class="muted pad">{t("loading")}</p>;
  const { state, detail } = podState(pod);
  const cluster = pod.metadata.labels?.["atoll.dev/cluster"];
  const describe = commandOf("kubectl", "describe", "pod", "-n", namespace, name);
  return (
    <>
      <header class="page detail">
        <p class="crumbs"><Link to={linkTo("applications")}>{t("apps.title")}</Link> / <Text>{namespace}</Text> / Pod</p>
        <h1><Text>{shortNameOf(pod)}</Text></h1>
        <div class="headline">
          <StatusMark state={state} />
          <span>{detail}</span>
          <span class="muted"><Since time={pod.metadata.creationTimestamp} /></span>
          {cluster && <Link to={linkTo("clusters", cluster)}><Text>{cluster}</Text></Link>}
          <LogsLink of={{ kind: "Pod", namespace, name }} />
          <TerminalLink namespace={namespace} name={name} />
        </div>
        {pod.status?.message && <p class="waits"><Text>{pod.status.message}</Text></p>}
      </header>
      <section class="card">
        <h2>{t("pod.containers")}</h2>
        <ul class="lines">{(pod.spec?.initContainers ?? []).concat(pod.spec?.containers ?? []).map((c) => <Container key={c.name} name={c.name} pod={pod} />)}</ul>
      </section>
      <Conditions conditions={pod.status?.conditions as Condition[] | undefined} />
      <Events path={path + "/events"} selector={fieldSelector({ "involvedObject.kind": "Pod", "involvedObject.name": name, "involvedObject.uid": pod.metadata.uid ?? "" })} empty={t("pod.events.empty")} />
      <PodYAML pod={pod} />
      {describe && <Command text={describe} />}
    </>
  );
}

/** Returns the state of a container in a word, why it is in it, and since when. */
function stateOf(s: ContainerStatus | undefined): { state: string; reason: string; message: string } {
  const { waiting, terminated, running } = s?.state ?? {};
  if (waiting) return { state: "Pending", reason: waiting.reason ?? "", message: waiting.message ?? "" };
  if (terminated) return { state: terminated.exitCode === 0 ? "Complete" : "Failed", reason: terminated.reason ?? "", message: terminated.exitCode === undefined ? "" : t("pod.exit", { n: terminated.exitCode }) };
  if (running) return { state: s?.ready ? "Running" : "Progressing", reason: "", message: "" };
  return { state: "Unknown", reason: "", message: "" };
}

function Container({ name, pod }: { name: string; pod: Pod }) {
  const status = containerStatus(pod, name);
  const image = [...(pod.spec?.initContainers ?? []), ...(pod.spec?.containers ?? [])].find((c) => c.name === name)?.image;
  const { state, reason, message } = stateOf(status);
  return (
    <li>
      <strong><Text>{name}</Text></strong>
      <StatusMark state={state} />
      <span class="grow"><code><Text>{image}</Text></code> <Reason reason={reason} />{message && <span class="muted"> — <Text>{message}</Text></span>}</span>
      {!!status?.restartCount && <span class="muted small">{t("pod.restarts", { n: status.restartCount })}</span>}
    </li>
  );
}

function PodYAML({ pod }: { pod: Pod }) {
  const text = useMemo(() => {
    const { managedFields: _, ...metadata } = pod.metadata as Pod["metadata"] & { managedFields?: unknown };
    const object = { apiVersion: "v1", kind: "Pod", ...pod, metadata };
    return isDeep(object) ? t("change.problem.deep") : safeBlock(stringify(object, { aliasDuplicateObjects: false, lineWidth: 0 }));
  }, [pod]);
  return (
    <section class="card">
      <details class="manifest">
        <summary>{t("change.yaml")}</summary>
        <pre tabIndex={0}><bdi>{text.slice(0, maxShown)}</bdi></pre>
        {text.length > maxShown && <p class="muted small">{t("app.manifests.cut")}</p>}
      </details>
    </section>
  );
}
