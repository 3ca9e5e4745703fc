// Whether the page hears of changes: each stream reports, and the page says when one is cut.

class Connection {
  private readonly cut = new Set<object>();
  private readonly listeners = new Set<() => void>();

  get live(): boolean {
    return this.cut.size === 0;
  }

  report(owner: object, live: boolean): void {
    const before = this.live;
    if (live) this.cut.delete(owner);
    else this.cut.add(owner);
    if (this.live !== before) for (const l of this.listeners) l();
  }

  forget(owner: object): void {
    this.report(owner, true);
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

export const connection = new Connection();
