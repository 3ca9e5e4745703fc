import { useEffect, useRef, useState } from "preact/hooks";
import type { Pod, Right } from "../api/kubernetes";
import { TerminalConnection } from "../api/terminal";
import { fieldSelector } from "../model/selector";
import { shortNameOf } from "../model/owners";
import { type TerminalCommand, type TerminalEnd, terminalCommand, terminalContainers, wordsOf } from "../model/terminal";
import type { Screen } from "../terminal/xterm";
import { safeText } from "../text/safe";
import { t } from "../text/text";
import { RightLink, describeRight, useMissingRight } from "../ui/act";
import { linkTo, setQuery, useCollection, useRoute } from "../ui/hooks";
import { Command, Empty, Link, Refusal, Text } from "../ui/parts";

/** The file of the screen, which the build names. */
declare const TERMINAL_FILE: string;

const shells = ["sh", "bash"];
/** So much of the output may wait to be drawn; more is left out. */
const maxPending = 8 << 20;

/** The rights to a terminal in a namespace: the API judges the WebSocket as a read, and as what it does. */
export function terminalRights(namespace: string): Right[] {
  return ["create", "get"].map((verb) => ({ verb, group: "", resource: "pods", subresource: "exec", namespace }));
}

/** A link to the terminal of a pod. Without the right it is no link, and names the right. */
export function TerminalLink({ namespace, name }: { namespace: string; name: string }) {
  return <RightLink needs={terminalRights(namespace)} to={linkTo("terminal", namespace, name)} class="terminal-link" text={t("terminal.open")} />;
}

/** A shell in a container of a pod. It begins when the person presses the button: a link alone runs nothing. */
export function TerminalPage({ namespace, name }: { namespace: string; name: string }) {
  const { items, loaded, refusal } = useCollection<Pod>(`/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`, fieldSelector({ "metadata.name": name }));
  const missing = useMissingRight(terminalRights(namespace));
  const last = useRef<Pod | undefined>(undefined);
  if (items[0]) last.current = items[0];
  const pod = last.current;
  if (refusal && !pod) return <Refusal error={refusal} />;
  if (!pod) return loaded ? <Empty title={t("error.notFound")} /> : <p class="muted pad">{t("loading")}</p>;
  const cluster = pod.metadata.labels?.["atoll.dev/cluster"];
  return (
    <>
      <header class="page detail">
        <p class="crumbs"><Link to={linkTo("applications")}>{t("apps.title")}</Link> / <Text>{namespace}</Text> / <Link to={linkTo("pods", namespace, name)}><Text>{shortNameOf(pod)}</Text></Link></p>
        <h1>{t("terminal.title")} <Text>{shortNameOf(pod)}</Text></h1>
        <div class="headline">{cluster && <Link to={linkTo("clusters", cluster)}><Text>{cluster}</Text></Link>}</div>
        {missing && <p class="problem" role="alert">{describeRight(missing)}</p>}
        {refusal ? <Refusal error={refusal} /> : loaded && items.length === 0 && <p class="problem" role="status">{t("terminal.podGone")}</p>}
      </header>
      {!missing && <TerminalCard namespace={namespace} pod={pod} />}
    </>
  );
}

type Phase = { kind: "idle" | "opening" | "open" } | { kind: "ended"; end: TerminalEnd };

function TerminalCard({ namespace, pod }: { namespace: string; pod: Pod }) {
  const { query } = useRoute();
  const containers = terminalContainers(pod);
  const container = containers.find((c) => c === query.get("container")) ?? containers[0] ?? "";
  const [text, setText] = useState(shells[0]!);
  const [isReadAloud, setReadAloud] = useState(false);
  const [run, setRun] = useState<{ n: number; command: TerminalCommand } | undefined>();
  const [phase, setPhase] = useState<Phase>({ kind: "idle" });
  const words = wordsOf(text);
  const command = { namespace, pod: pod.metadata.name, container, words };
  const kubectl = terminalCommand(command);
  const button = useRef<HTMLButtonElement>(null);
  const isBusy = phase.kind === "opening" || phase.kind === "open";
  const start = () => {
    setPhase({ kind: "opening" });
    setRun({ n: (run?.n ?? 0) + 1, command });
  };
  const stop = () => {
    setPhase({ kind: "ended", end: { kind: "closed" } });
    setRun(undefined);
  };
  return (
    <section class="card terminal-card" id="terminal">
      <form class="forms" onSubmit={(e) => (e.preventDefault(), isBusy ? stop() : start())}>
        <label>
          {t("logs.container")}
          <select class="pick" value={container} disabled={isBusy} onChange={(e) => setQuery("container", e.currentTarget.value)}>
            {containers.map((c) => <option key={c} value={c}>{safeText(c)}</option>)}
          </select>
        </label>
        <label>
          {t("terminal.command")}
          <input id="terminal-command" type="text" list="terminal-shells" value={text} disabled={isBusy} maxLength={1000} spellcheck={false} autocomplete="off" onInput={(e) => setText(e.currentTarget.value)} />
          <datalist id="terminal-shells">{shells.map((s) => <option key={s} value={s} />)}</datalist>
        </label>
        <label><input type="checkbox" checked={isReadAloud} disabled={isBusy} onChange={(e) => setReadAloud(e.currentTarget.checked)} /> {t("terminal.readAloud")}</label>
        <button ref={button} type="submit" class={isBusy ? "action" : "primary"} disabled={!isBusy && (words.length === 0 || container === "")}>{t(isBusy ? "terminal.stop" : phase.kind === "ended" ? "terminal.again" : "terminal.start")}</button>
      </form>
      <p role="status" class={phase.kind === "ended" && phase.end.kind !== "exited" && phase.end.kind !== "closed" ? "problem" : "muted small"} id="terminal-state"><Text>{describePhase(phase, run?.command.words[0] ?? words[0] ?? "")}</Text></p>
      {run && <ScreenBox key={run.n} command={run.command} isReadAloud={isReadAloud} onPhase={setPhase} onLeave={() => button.current?.focus()} />}
      <p class="muted small" id="terminal-keys">{t("terminal.keys")}</p>
      {kubectl && <Command text={kubectl} />}
    </section>
  );
}

function describePhase(phase: Phase, program: string): string {
  if (phase.kind !== "ended") return t(`terminal.phase.${phase.kind}`);
  const { end } = phase;
  switch (end.kind) {
    case "exited": return t("terminal.end.exited", { code: end.code });
    case "noCommand": return t("terminal.end.noCommand", { program: safeText(program) });
    case "refused": return end.message ? safeText(end.message) : t("terminal.end.broken");
    default: return t(`terminal.end.${end.kind}`);
  }
}

/** The screen of one run. What was drawn stays after the end. */
function ScreenBox({ command, isReadAloud, onPhase, onLeave }: { command: TerminalCommand; isReadAloud: boolean; onPhase: (p: Phase) => void; onLeave: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  const [dropped, setDropped] = useState(0);
  useEffect(() => {
    let over = false;
    let screen: Screen | undefined;
    let connection: TerminalConnection | undefined;
    let pending = 0;
    const style = getComputedStyle(document.documentElement);
    const output = (bytes: Uint8Array) => {
      if (pending + bytes.length > maxPending) return setDropped((n) => n + bytes.length);
      pending += bytes.length;
      screen?.write(bytes, () => void (pending -= bytes.length));
    };
    const begin = async () => {
      const { openScreen } = (await import(TERMINAL_FILE)) as typeof import("../terminal/xterm");
      if (over || !box.current) return;
      screen = openScreen(box.current, {
        label: t("terminal.title") + " " + safeText(command.pod), foreground: style.getPropertyValue("--text").trim(), background: style.getPropertyValue("--bg").trim(), isReadAloud,
        onInput: (bytes) => connection?.write(bytes), onSize: (columns, rows) => connection?.resize(columns, rows), onLeave,
      });
      const own = screen;
      connection = new TerminalConnection(command, {
        onOpen: () => (onPhase({ kind: "open" }), own.focus()),
        onOutput: output,
        onEnd: (end) => {
          own.setInput(false);
          if (!over) onPhase({ kind: "ended", end });
        },
      });
      connection.resize(...own.size());
    };
    begin().catch(() => !over && onPhase({ kind: "ended", end: { kind: "broken" } }));
    return () => {
      over = true;
      connection?.close();
      screen?.dispose();
    };
  }, []);
  return (
    <>
      <div class="terminal-box" ref={box} role="group" aria-label={t("terminal.title")} aria-describedby="terminal-keys" />
      {dropped > 0 && <p class="problem" role="status">{t("terminal.dropped", { n: dropped })}</p>}
    </>
  );
}
