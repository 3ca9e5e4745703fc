// The drawing of a terminal, which the page loads when the first terminal is opened.

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";

/** What a screen does, and how it looks. */
export interface ScreenOptions {
  label: string;
  foreground: string;
  background: string;
  isReadAloud: boolean;
  onInput(bytes: Uint8Array): void;
  onSize(columns: number, rows: number): void;
  /** The person leaves the terminal by its key. */
  onLeave(): void;
}

export interface Screen {
  write(bytes: Uint8Array, done: () => void): void;
  focus(): void;
  size(): [columns: number, rows: number];
  setInput(isOn: boolean): void;
  dispose(): void;
}

/** Sequences of a container that the page does not carry out: titles (0, 1, 2), links (8), notifications (9, 777) and the clipboard (52). */
const ignoredCommands = [0, 1, 2, 8, 9, 52, 777];

/** Opens a screen in an element. */
export function openScreen(element: HTMLElement, o: ScreenOptions): Screen {
  const terminal = new Terminal({
    allowProposedApi: false, cursorBlink: false, drawBoldTextInBrightColors: false, fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace", fontSize: 13,
    linkHandler: { activate: () => undefined }, logLevel: "off", minimumContrastRatio: 4.5, screenReaderMode: o.isReadAloud, scrollback: 5000, windowOptions: {},
    theme: { foreground: o.foreground, background: o.background, cursor: o.foreground, cursorAccent: o.background },
  });
  for (const command of ignoredCommands) terminal.parser.registerOscHandler(command, () => true);
  terminal.parser.registerDcsHandler({ intermediates: "$", final: "q" }, () => true); // reports of settings, which would be input that the person did not write
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(element);
  terminal.textarea?.setAttribute("aria-label", o.label);
  const encoder = new TextEncoder();
  terminal.onData((text) => o.onInput(encoder.encode(text)));
  terminal.onBinary((text) => o.onInput(Uint8Array.from(text, (c) => c.charCodeAt(0) & 255)));
  terminal.onResize(({ cols, rows }) => o.onSize(cols, rows));
  terminal.attachCustomKeyEventHandler((e) => {
    const leaves = e.key === "Enter" && e.ctrlKey && e.shiftKey;
    if (leaves && e.type === "keydown") o.onLeave();
    return !leaves && !terminal.options.disableStdin; // after the end, keys are the page's again
  });
  let frame = 0;
  const observer = new ResizeObserver(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => fit.fit());
  });
  observer.observe(element);
  fit.fit();
  return {
    write: (bytes, done) => terminal.write(bytes, done),
    focus: () => terminal.focus(),
    size: () => [terminal.cols, terminal.rows],
    setInput: (isOn) => void (terminal.options.disableStdin = !isOn),
    dispose: () => {
      cancelAnimationFrame(frame);
      observer.disconnect();
      terminal.dispose();
    },
  };
}
