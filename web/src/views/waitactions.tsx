import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { approveWrite, clustersPath, confirmWrite, resumeWrite } from "../api/actions";
import { type Person, sendWrite } from "../api/client";
import { type JoinOffer, type JoinRequest, acceptJoin, denyJoin, readJoinOffer } from "../api/joins";
import type { Right } from "../api/kubernetes";
import { type HeldPlan, getHeldPlans } from "../api/tree";
import type { Bundle, Cluster } from "../api/types.gen";
import { joinNames } from "../model/plan";
import { fieldSelector } from "../model/selector";
import { bundleCommand, commandOf } from "../model/shell";
import type { Wait } from "../model/waits";
import { describeError } from "../text/problem";
import { t } from "../text/text";
import { Act, Do } from "../ui/act";
import { Command, Reason, Refusal, Since, Text } from "../ui/parts";
import { useCollection } from "../ui/hooks";
import { useRequest } from "../ui/request";

/** Returns the right to a verb on a Bundle. */
export function bundleRight(b: Bundle, verb: string): Right {
  const { namespace, name } = b.metadata;
  return { verb, group: "atoll.dev", resource: namespace ? "bundles" : "clusterbundles", namespace, name };
}

export function clusterRight(name: string, verb: string): Right {
  return { verb, group: "atoll.dev", resource: "clusters", name };
}

/** The rights to the decision on the keys of an agent. The hub asks for that on the signer, too. */
const keyRights: readonly Right[] = [
  { verb: "list", group: "certificates.k8s.io", resource: "certificatesigningrequests" },
  { verb: "update", group: "certificates.k8s.io", resource: "certificatesigningrequests", subresource: "approval" },
];

/** What the person can do about a wait: a button, or the command that shows more. */
export function WaitActions({ wait, person }: { wait: Wait; person: Person }) {
  const { bundle } = wait;
  if (bundle && wait.action === "confirm") {
    return <Act label={t("act.confirm.show")} needs={[bundleRight(bundle, "patch")]} command={bundleCommand(["confirm"], wait)}><HeldPlans key={bundle.metadata.uid} bundle={bundle} /></Act>;
  }
  if (bundle && wait.action === "approve" && wait.stage && wait.revision) return <Approve bundle={bundle} stage={wait.stage} revision={wait.revision} person={person} />;
  if (bundle && wait.action === "resume") {
    return (
      <Act label={t("act.resume")} needs={[bundleRight(bundle, "patch")]} command={bundleCommand(["rollout", "resume"], wait)}>
        <p>{t(wait.reason === "TooManyUnhealthy" ? "act.resume.unhealthy" : "act.resume.what")}</p>
        <Do label={t("act.resume.do")} run={() => sendWrite(resumeWrite(bundle, new Date()))} />
      </Act>
    );
  }
  if (wait.action === "join") return <Join wait={wait} />;
  const command = wait.kind === "application" ? bundleCommand(["explain"], wait) : wait.reason === "WaitsForConfirmation" ? commandOf("atoll", "confirm", "cluster/" + wait.name) : undefined;
  return command ? <Command text={command} /> : null;
}

/** Accepts or denies a cluster that waits to join. A list has no object of it, which is read once one of the two is opened. */
function Join({ wait: { name, cluster } }: { wait: Wait }) {
  const withCluster = (show: (c: Cluster) => ComponentChildren) => (cluster ? show(cluster) : <ReadCluster name={name} show={show} />);
  return (
    <>
      <Act label={t("act.accept")} needs={[clusterRight(name, "patch"), clusterRight(name, "accept"), ...keyRights]} command={commandOf("atoll", "accept", name)}>
        {withCluster((c) => <Offer key={c.metadata.uid} cluster={c} />)}
      </Act>
      <Act label={t("act.deny")} needs={[clusterRight(name, "patch"), ...keyRights]} command={commandOf("atoll", "deny", name)}>
        <p>{t("act.deny.what", { name })}</p>
        {withCluster((c) => <Do label={t("act.deny.do")} run={() => denyJoin(c)} />)}
      </Act>
    </>
  );
}

/** Follows one Cluster, and shows something of it. */
function ReadCluster({ name, show }: { name: string; show: (c: Cluster) => ComponentChildren }) {
  const { items, loaded, refusal } = useCollection<Cluster>(clustersPath, fieldSelector({ "metadata.name": name }));
  if (refusal) return <Refusal error={refusal} />;
  if (!items[0]) return <p class="muted">{t(loaded ? "error.notFound" : "loading")}</p>;
  return <>{show(items[0])}</>;
}

/** The requests of a cluster that waits to join, to compare, and for each the button that accepts exactly it. */
function Offer({ cluster }: { cluster: Cluster }) {
  const { name, uid } = cluster.metadata;
  const latest = useRef(cluster); // a reload is about the cluster as it is now
  latest.current = cluster;
  const { answer, refusal, busy, ask } = useRequest(`joins/${name}/${uid}`, (signal) => readJoinOffer(latest.current, signal));
  useEffect(ask, [uid]);
  if (busy && !answer) return <p class="muted">{t("loading")}</p>;
  if (refusal) return <p class="problem"><Text>{describeError(refusal)}</Text></p>;
  if (!answer) return null;
  return (
    <>
      <p>{t("act.accept.what", { name })}</p>
      {answer.requests.map((r) => <OfferedKey key={r.uid} cluster={cluster} offer={answer} request={r} />)}
      {answer.requests.length === 0 && <p class="muted">{t("act.accept.none")}</p>}
      {answer.requests.length === 0 && <dl class="facts"><div><dt>{t("act.accept.key")}</dt><dd><code><Text>{answer.noted || t("none")}</Text></code></dd></div></dl>}
      {answer.requests.length === 0 && <Do label={t("act.accept.do")} run={() => acceptJoin(cluster, answer)} />}
      <button type="button" class="ghost" disabled={busy} onClick={ask}>{t(busy ? "loading" : "reload")}</button>
    </>
  );
}

function OfferedKey({ cluster, offer, request }: { cluster: Cluster; offer: JoinOffer; request: JoinRequest }) {
  const isNoted = request.hash !== "" && request.hash === offer.noted;
  const hash = request.hash || t("act.accept.unreadable");
  return (
    <div class="held-plan">
      <dl class="facts">
        <div><dt>{t("act.accept.key")}</dt><dd><code><Text>{hash}</Text></code></dd></div>
        <div><dt>{t("act.accept.from")}</dt><dd><Text>{request.from || t("none")}</Text></dd></div>
        <div><dt>{t("act.accept.time")}</dt><dd><Since time={request.since} /></dd></div>
      </dl>
      {isNoted && <p>{t("act.accept.compare")} <code>{t("act.accept.line", { name: cluster.metadata.name, hash })}</code></p>}
      {isNoted && <Command text="kubectl logs -n atoll-system deployment/atoll-agent" />}
      <p class="muted small">{t(isNoted ? "act.accept.exactly" : "act.accept.other")}</p>
      {isNoted && <Do label={t("act.accept.do")} run={() => acceptJoin(cluster, offer, request)} />}
    </div>
  );
}

/** The plans that wait, with their content, and for each the button that confirms exactly it. */
function HeldPlans({ bundle }: { bundle: Bundle }) {
  const { namespace = "", name } = bundle.metadata;
  const { answer, refusal, busy, ask } = useRequest(`${namespace}/${name}/${bundle.metadata.resourceVersion}`, (signal) => getHeldPlans(namespace, name, signal));
  useEffect(ask, [bundle.metadata.resourceVersion]);
  if (busy && !answer) return <p class="muted">{t("loading")}</p>;
  if (refusal) return <p class="problem"><Text>{describeError(refusal)}</Text></p>;
  if (!answer) return null;
  if (answer.length === 0) return <p class="muted">{t("act.confirm.none")}</p>;
  return <>{answer.map((p) => <HeldPlanView key={p.hash} plan={p} bundle={bundle} />)}</>;
}

function HeldPlanView({ plan, bundle }: { plan: HeldPlan; bundle: Bundle }) {
  const cut = plan.moreParts || plan.parts.some((p) => p.moreClusters);
  return (
    <div class="held-plan">
      <p><strong>{t("act.confirm.plan", { n: plan.clusters })}</strong> <code><Text>{plan.hash}</Text></code></p>
      <ul class="lines">
        {plan.parts.map((p, i) => (
          <li key={i}>
            <Reason reason={p.reason} />
            <span class="grow"><Text>{p.text || t("act.confirm.hidden")}</Text></span>
            <details class="small" open={p.clusters.length <= 12}><summary>{t("act.confirm.clusters", { n: p.clusters.length + (p.moreClusters ?? 0) })}</summary><Text>{p.clusters.join(", ")}</Text>{p.moreClusters ? " " + t("more", { n: p.moreClusters }) : ""}</details>
          </li>
        ))}
      </ul>
      {cut && <p class="muted small">{t("act.confirm.cut")}</p>}
      <p class="muted small">{t("act.confirm.what")}</p>
      <Do label={t("act.confirm.do", { plan: plan.hash })} run={() => sendWrite(confirmWrite(bundle, plan.hash))} />
      {plan.recalled && <Command text={bundleCommand(["restore", "keep"], bundle.metadata, "--plan", plan.hash) ?? ""} />}
    </div>
  );
}

/** Approves one revision: a newer one closes what the person has opened. */
function Approve({ bundle, stage, revision, person }: { bundle: Bundle; stage: string; revision: string; person: Person }) {
  const by = (bundle.spec.approvals ?? []).filter((a) => a.stage === stage && a.revision === revision).map((a) => a.by ?? "");
  return (
    <Act key={stage + "/" + revision} label={t("act.approve", { stage })} needs={[bundleRight(bundle, "patch"), bundleRight(bundle, "approve")]} command={bundleCommand(["rollout", "approve"], bundle.metadata, "--stage", stage, "--revision", revision)}>
      <p>{t("act.approve.what", { stage, revision })}</p>
      {by.length > 0 && <p class="muted small">{t("act.approve.by")} <Text>{joinNames(by)}</Text></p>}
      {by.includes(person.user) && <p class="muted small">{t("act.approve.again")}</p>}
      <Do label={t("act.approve.do", { stage })} run={() => sendWrite(approveWrite(bundle, stage, revision))} />
    </Act>
  );
}
