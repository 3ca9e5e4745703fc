import { useEffect } from "preact/hooks";
import { approveWrite, confirmWrite, decideJoin, resumeWrite } from "../api/actions";
import { type Person, sendWrite } from "../api/client";
import type { Right } from "../api/kubernetes";
import { type HeldPlan, getHeldPlans } from "../api/tree";
import type { Bundle } from "../api/types.gen";
import { joinNames } from "../model/plan";
import { bundleCommand, commandOf } from "../model/shell";
import type { Wait } from "../model/waits";
import { describeError } from "../text/problem";
import { t } from "../text/text";
import { Act, Do } from "../ui/act";
import { Command, Reason, Text } from "../ui/parts";
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
  const { bundle, cluster } = wait;
  if (bundle && wait.action === "confirm") {
    return <Act label={t("act.confirm.show")} needs={[bundleRight(bundle, "patch")]} command={bundleCommand(["confirm"], wait)}><HeldPlans key={bundle.metadata.uid} bundle={bundle} /></Act>;
  }
  if (bundle && wait.action === "approve" && wait.stage && wait.revision) return <Approve bundle={bundle} stage={wait.stage} revision={wait.revision} person={person} />;
  if (bundle && wait.action === "resume") {
    return (
      <Act label={t("act.resume")} needs={[bundleRight(bundle, "patch")]} command={bundleCommand(["rollout", "resume"], wait)}>
        <p>{t("act.resume.what")}</p>
        <Do label={t("act.resume.do")} run={() => sendWrite(resumeWrite(bundle, new Date()))} />
      </Act>
    );
  }
  if (cluster && wait.action === "join") {
    return (
      <>
        <Act label={t("act.accept")} needs={[clusterRight(wait.name, "patch"), clusterRight(wait.name, "accept"), ...keyRights]} command={commandOf("atoll", "accept", wait.name)}>
          <p>{t("act.accept.what", { name: wait.name })}</p>
          <Do label={t("act.accept.do")} run={() => decideJoin(cluster, true)} />
        </Act>
        <Act label={t("act.deny")} needs={[clusterRight(wait.name, "patch"), ...keyRights]} command={commandOf("atoll", "deny", wait.name)}>
          <p>{t("act.deny.what", { name: wait.name })}</p>
          <Do label={t("act.deny.do")} run={() => decideJoin(cluster, false)} />
        </Act>
      </>
    );
  }
  const command = wait.kind === "application" ? bundleCommand(["explain"], wait) : wait.reason === "WaitsForConfirmation" ? commandOf("atoll", "confirm", "cluster/" + wait.name) : undefined;
  return command ? <Command text={command} /> : null;
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
