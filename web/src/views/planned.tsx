import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Change, applyChange } from "../api/actions";
import { type Plan, planChange } from "../api/plan";
import { type PlanLine, planParts } from "../model/plan";
import { describeError } from "../text/problem";
import { t } from "../text/text";
import { Text } from "../ui/parts";

type State = { step: "idle" | "planning" } | { step: "planned" | "applying" | "applied"; change: Change; plan: Plan } | { step: "failed"; problem: string };

/** Plans a change, and applies exactly what was planned. A change that differs from the planned one needs another plan. */
export function PlannedChange({ change, problem, onApplied }: { change?: Change; problem?: string; onApplied?: () => void }) {
  const [state, setState] = useState<State>({ step: "idle" });
  const running = useRef<AbortController | undefined>(undefined);
  const key = change?.intent ?? "";
  useLayoutEffect(() => { // before the next click: a later effect would end the plan that it asked for
    setState((s) => (s.step === "applied" && key === "" ? s : { step: "idle" }));
    return () => running.current?.abort();
  }, [key]);
  const plan = () => {
    if (!change) return;
    const own = new AbortController();
    running.current = own;
    setState({ step: "planning" });
    planChange(change, own.signal).then(
      (p) => !own.signal.aborted && setState({ step: "planned", change, plan: p }),
      (e) => !own.signal.aborted && setState({ step: "failed", problem: describeError(e) }),
    );
  };
  const apply = () => {
    if (state.step !== "planned" || state.change.intent !== key) return;
    const planned = state;
    setState({ ...planned, step: "applying" });
    applyChange(planned.change).then(
      () => {
        setState({ ...planned, step: "applied" });
        onApplied?.();
      },
      (e) => setState({ step: "failed", problem: describeError(e) }),
    );
  };
  return (
    <div class="planned">
      <p class="do">
        <button type="button" class="action" disabled={!change || state.step === "planning" || state.step === "applying"} onClick={plan}>{t("plan.ask")}</button>
        <button type="button" class="primary" disabled={state.step !== "planned" || !change} title={state.step === "planned" ? undefined : t("plan.first")} onClick={apply}>{t("plan.apply")}</button>
        <span role="status" class="muted small">
          {state.step === "planning" ? t("plan.busy") : state.step === "applying" ? t("act.busy") : state.step === "applied" ? t("plan.applied") : !change && !problem ? t("plan.unchanged") : state.step === "idle" && change ? t("plan.first") : ""}
        </span>
      </p>
      {problem && <p class="problem" role="alert"><Text>{problem}</Text></p>}
      {state.step === "failed" && <p class="problem" role="alert"><Text>{state.problem}</Text></p>}
      {"plan" in state && <PlanView plan={state.plan} />}
    </div>
  );
}

function PlanView({ plan }: { plan: Plan }) {
  const parts = useMemo(() => planParts(plan), [plan]);
  return (
    <section class="plan" aria-label={t("plan.title")}>
      <h3>{t("plan.title")}</h3>
      {!plan.changes && <p>{t("plan.nothing")}</p>}
      {parts.map((part, i) => (
        <div key={i}>
          {part.title && <p class="plan-title"><Text>{part.title}</Text></p>}
          <ul>{part.lines.map((line, j) => <Line key={j} line={line} />)}</ul>
        </div>
      ))}
    </section>
  );
}

const classOf = { "+": "good", "-": "bad", "~": "busy", "!": "warn" } as const;

function Line({ line }: { line: PlanLine }) {
  return (
    <li class={"plan-line tone-" + classOf[line.sign]}>
      <code class="plan-sign" aria-hidden="true">{line.sign}</code>
      <span>
        <Text>{line.text}</Text>
        {line.details.length > 0 && <ul class="plan-details">{line.details.map((d, i) => <li key={i}><code><Text>{d}</Text></code></li>)}</ul>}
      </span>
    </li>
  );
}
