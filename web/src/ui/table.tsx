// A table that draws only the rows on screen, whatever their number.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../text/text";
import { navigate } from "./hooks";

export interface Column<R> {
  key: string;
  title: string;
  /** The width as a part of a CSS grid, such as "2fr". */
  width: string;
  /** The cell is left out at phone width. */
  wide?: boolean;
  cell: (row: R) => ComponentChildren;
  compare?: (a: R, b: R) => number;
  /** The hub sorts by the column. */
  sortable?: boolean;
}

export interface TableProps<R> {
  columns: Column<R>[];
  rows: readonly R[];
  keyOf: (row: R) => string;
  linkOf: (row: R) => string;
  label: string;
  sort: string;
  onSort: (sort: string) => void;
}

const rowHeight = 52;
const overscan = 8;

/** Returns the rows in the order that the sort names: a column, with a minus for the reverse. */
export function sortRows<R>(rows: readonly R[], columns: Column<R>[], sort: string): readonly R[] {
  const reverse = sort.startsWith("-");
  const compare = columns.find((c) => c.key === (reverse ? sort.slice(1) : sort))?.compare;
  if (!compare) return rows;
  return [...rows].sort((a, b) => (reverse ? compare(b, a) : compare(a, b)));
}

/** Compares rows by a text, in which numbers count as numbers, and then by their keys. */
export function compareText<R>(value: (row: R) => string, keyOf: (row: R) => string): (a: R, b: R) => number {
  return (a, b) => value(a).localeCompare(value(b), "en", { numeric: true }) || (keyOf(a) < keyOf(b) ? -1 : 1);
}

export function Table<R>(p: TableProps<R>) {
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState<[number, number]>([0, 40]);
  const [active, setActive] = useState(0);
  useEffect(() => {
    const measure = () => {
      const el = box.current;
      if (!el) return;
      const top = -el.getBoundingClientRect().top;
      const first = Math.max(0, Math.floor(top / rowHeight) - overscan);
      const last = Math.ceil((top + innerHeight) / rowHeight) + overscan;
      setRange((r) => (r[0] === first && r[1] === last ? r : [first, last]));
    };
    measure();
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, [p.rows.length]);
  const style = { "--columns": p.columns.map((c) => c.width).join(" ") };
  const move = (e: KeyboardEvent) => {
    const to = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + 10, PageUp: active - 10, Home: 0, End: p.rows.length - 1 }[e.key];
    if (to !== undefined) {
      e.preventDefault();
      const next = Math.max(0, Math.min(p.rows.length - 1, to));
      setActive(next);
      const el = box.current!;
      const y = el.getBoundingClientRect().top + next * rowHeight;
      if (y < 120 || y > innerHeight - rowHeight * 2) scrollBy({ top: y - innerHeight / 2 });
      requestAnimationFrame(() => el.querySelector<HTMLElement>(`[data-index="${next}"]`)?.focus());
    }
    if (e.key === "Enter" && p.rows[active] && e.target === e.currentTarget) navigate(p.linkOf(p.rows[active]));
  };
  const [first, last] = [Math.min(range[0], p.rows.length), Math.min(range[1], p.rows.length)];
  return (
    <div class="table" role="table" aria-label={p.label} aria-rowcount={p.rows.length + 1} style={style}>
      <div class="thead" role="row">
        {p.columns.map((c) => (
          <div key={c.key} role="columnheader" class={c.wide ? "wide" : ""} aria-sort={p.sort === c.key ? "ascending" : p.sort === "-" + c.key ? "descending" : undefined}>
            {c.compare || c.sortable ? (
              <button type="button" class="sort" title={t("fleet.sort", { column: c.title })} onClick={() => p.onSort(p.sort === c.key ? "-" + c.key : c.key)}>
                {c.title}
                <span aria-hidden="true">{p.sort === c.key ? " ↑" : p.sort === "-" + c.key ? " ↓" : ""}</span>
              </button>
            ) : (
              c.title
            )}
          </div>
        ))}
      </div>
      <div class="tbody" ref={box} role="rowgroup" style={{ height: `${p.rows.length * rowHeight}px` }}>
        {p.rows.slice(first, last).map((row, i) => (
          <div
            key={p.keyOf(row)} role="row" class="tr" data-index={first + i} aria-rowindex={first + i + 2} tabIndex={first + i === active ? 0 : -1} style={{ top: `${(first + i) * rowHeight}px` }}
            onClick={() => navigate(p.linkOf(row))} onFocus={() => setActive(first + i)}
            onKeyDown={(e) => (e.key === "Enter" ? navigate(p.linkOf(row)) : move(e))}
          >
            {p.columns.map((c) => (
              <div key={c.key} role="cell" class={"td td-" + c.key + (c.wide ? " wide" : "")}>
                {c.cell(row)}
              </div>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}
