// Quantities of Kubernetes, as numbers and in short.

const factors: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** Returns the number of a quantity; undefined where it is none. */
export function parseQuantity(q: string | number | undefined): number | undefined {
  if (typeof q === "number") return q;
  const m = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)$/.exec(q ?? "");
  const factor = m ? factors[m[2]!] : undefined;
  const n = m ? Number(m[1]) : NaN;
  return factor === undefined || Number.isNaN(n) ? undefined : n * factor;
}

function round(n: number): string {
  return n >= 100 ? n.toFixed(0) : n.toFixed(1).replace(/\.0$/, "");
}

export function formatCores(n: number): string {
  return n < 1 && n > 0 ? `${Math.round(n * 1000)}m` : round(n);
}

export function formatBytes(n: number): string {
  for (const [unit, factor] of [["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20], ["Ki", 2 ** 10]] as const) {
    if (n >= factor) return round(n / factor) + " " + unit;
  }
  return String(n);
}
