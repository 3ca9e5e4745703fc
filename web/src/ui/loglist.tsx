// A list of log lines that draws only those on screen, whatever their number, and stays at the end while a person is there.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { type LogLine, splitMatches } from "../model/logbuffer";
import { formatClock } from "../model/time";
import { t } from "../text/text";

const rowHeight = 20;
const overscan = 10;
/** So many characters are drawn in a row. An open line shows all. */
const maxDrawn = 1000;
const palette = 8;

/** The class of a source's colour. Its name is always beside it. */
export function colourOf(source: number): string {
  return "log-colour-" + (source % palette);
}

export interface LogListProps {
  lines: readonly LogLine[];
  nameOf: (source: number) => string;
  wanted: string;
  label: string;
  opened?: LogLine;
  onOpen: (line: LogLine | undefined) => void;
  /** The space bar pauses. */
  onPause: () => void;
}

export function LogList({ lines, nameOf, wanted, label, opened, onOpen, onPause }: LogListProps) {
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState<[number, number]>([0, 60]);
  const [active, setActive] = useState<LogLine | undefined>();
  const atEnd = useRef(true);
  const top = useRef<LogLine | undefined>(undefined);
  const measure = () => {
    const el = box.current;
    if (!el) return; // the view was left
    const first = Math.max(0, Math.floor(el.scrollTop / rowHeight));
    const next: [number, number] = [Math.max(0, first - overscan), Math.ceil((el.scrollTop + el.clientHeight) / rowHeight) + overscan];
    atEnd.current = el.scrollTop + el.clientHeight >= el.scrollHeight - rowHeight;
    top.current = lines[first];
    setRange((r) => (r[0] === next[0] && r[1] === next[1] ? r : next));
  };
  useLayoutEffect(() => {
    const el = box.current!;
    const kept = top.current ? findLine(lines, top.current) : -1;
    if (atEnd.current) el.scrollTop = el.scrollHeight;
    else if (kept >= 0) el.scrollTop = kept * rowHeight + (el.scrollTop % rowHeight);
    measure();
  }, [lines]);
  const present = useRef(measure);
  present.current = measure;
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => present.current());
    observer.observe(box.current!);
    return () => observer.disconnect();
  }, []);
  const move = (to: number) => {
    const line = lines[Math.max(0, Math.min(lines.length - 1, to))];
    const el = box.current!;
    if (!line) return;
    const y = findLine(lines, line) * rowHeight;
    if (y < el.scrollTop) el.scrollTop = y;
    else if (y + rowHeight > el.scrollTop + el.clientHeight) el.scrollTop = y + rowHeight - el.clientHeight;
    setActive(line);
    if (opened) onOpen(line);
  };
  const keys = (e: KeyboardEvent) => {
    const found = active ? findLine(lines, active) : -1;
    const at = found < 0 ? Math.min(range[1], lines.length) - 1 : found;
    const page = Math.max(1, Math.floor(box.current!.clientHeight / rowHeight) - 1);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: lines.length - 1 }[e.key];
    if (to !== undefined) move(to);
    else if (e.key === "Enter" && active) onOpen(opened === active ? undefined : active);
    else if (e.key === "Escape" && opened) onOpen(undefined);
    else if (e.key === " ") onPause();
    else return;
    e.preventDefault();
  };
  const [first, last] = [Math.min(range[0], lines.length), Math.min(range[1], lines.length)];
  const activeAt = active ? findLine(lines, active) : -1;
  return (
    <div
      class="log-box" ref={box} role="listbox" aria-label={label} tabIndex={0} title={t("logs.keys")} aria-activedescendant={activeAt >= first && activeAt < last ? `log-${active!.id}` : undefined}
      onScroll={measure} onKeyDown={keys}
    >
      <div class="log-lines" role="presentation" style={{ height: `${lines.length * rowHeight}px` }}>
        {lines.slice(first, last).map((line, i) => (
          <div
            key={line.id} id={`log-${line.id}`} class="log-line" role="option" aria-selected={line === active} aria-setsize={lines.length} aria-posinset={first + i + 1} style={{ top: `${(first + i) * rowHeight}px` }}
            onClick={() => (setActive(line), onOpen(opened === line ? undefined : line))}
          >
            <time title={line.stamp}>{formatClock(line.stamp === "" ? undefined : line.at)}</time>
            <span class={"log-source " + colourOf(line.source)}><bdi>{nameOf(line.source)}</bdi></span>
            <span class="log-text"><Marked text={line.text.slice(0, maxDrawn)} wanted={wanted} /></span>
          </div>
        ))}
      </div>
    </div>
  );
}

/** Returns where a line is, among lines in their order; -1: it was dropped or does not match. */
function findLine(lines: readonly LogLine[], line: LogLine): number {
  let [low, high] = [0, lines.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    const other = lines[middle]!;
    if (other.at < line.at || (other.at === line.at && other.id < line.id)) low = middle + 1;
    else high = middle;
  }
  return lines[low]?.id === line.id ? low : -1;
}

/** A text, with the places marked where another one occurs. */
export function Marked({ text, wanted }: { text: string; wanted: string }) {
  const parts = splitMatches(text, wanted);
  return <bdi>{parts.length === 1 ? text : parts.map((part, i) => (i % 2 === 1 ? <mark key={i}>{part}</mark> : part))}</bdi>;
}
