import type { Condition } from "../api/kubernetes";
import { type Tone, toneOf } from "../model/status";
import { t } from "../text/text";
import { safeText } from "../text/safe";
import { Icon } from "../ui/icons";
import { Reason, Since, Text } from "../ui/parts";

/** Conditions that are true when something is wrong. */
const negative = new Set(["Misbehaving", "Unclaimed", "CertificateExpiring", "RemovalHeld", "Quarantined", "Removing"]);

function toneOfCondition(c: Condition): Tone {
  if (c.status === "Unknown") return "none";
  if (c.status === "False" && toneOf(c.reason) === "busy") return "busy";
  return (c.status === "True") !== negative.has(c.type) ? "good" : "warn";
}

export function Conditions({ conditions }: { conditions: readonly Condition[] | undefined }) {
  if (!conditions?.length) return null;
  return (
    <section class="card">
      <h2>{t("app.conditions")}</h2>
      <ul class="conditions">
        {conditions.map((c) => (
          <li key={c.type}>
            <span class={"condition tone-" + toneOfCondition(c)}>
              <Icon name={toneOfCondition(c)} />
              <span>{safeText(c.type)}</span>
              <span class="muted small">{c.status}</span>
            </span>
            <span class="condition-text">
              <span class="muted small"><Reason reason={c.reason} /> · <Since time={c.lastTransitionTime} /></span>
              {c.message && <Text>{c.message}</Text>}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
