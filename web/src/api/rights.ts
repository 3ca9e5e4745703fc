// What the signed-in person may do, as the hub's authorizer answers. The answers only disable buttons: the hub
// decides on each request again.

import { sendWrite } from "./client";
import type { Right } from "./kubernetes";

/** The answer for a right. Without a check the button is enabled, and the hub decides. */
export interface RightAnswer {
  allowed: boolean;
  why: string;
}

/** At most so many answers are remembered and asked for, each for keepTime; so many requests run at a time. */
const maxAnswers = 200;
const maxParallel = 4;
const keepTime = 60_000;

type Ask = (right: Right) => Promise<RightAnswer>;

/** Asks for rights: one request for a namespace, and one for an object only where that is refused. */
export class RightChecker {
  private readonly answers = new Map<string, { at: number; answer: Promise<RightAnswer> }>();
  private running = 0;
  private readonly queue: (() => void)[] = [];

  constructor(private readonly ask: Ask = reviewAccess, private readonly now: () => number = Date.now) {}

  async check(right: Right): Promise<RightAnswer> {
    const all = await this.checkOne({ ...right, name: undefined });
    return all.allowed || !right.name ? all : this.checkOne(right);
  }

  forget(): void {
    this.answers.clear();
  }

  private checkOne(right: Right): Promise<RightAnswer> {
    const key = JSON.stringify([right.verb, right.group, right.resource, right.subresource ?? "", right.namespace ?? "", right.name ?? ""]);
    const now = this.now();
    const known = this.answers.get(key);
    if (known && now - known.at < keepTime) return known.answer;
    for (const [old, entry] of this.answers) if (now - entry.at >= keepTime) this.answers.delete(old);
    if (this.answers.size >= maxAnswers) return Promise.resolve({ allowed: true, why: "" });
    const answer = this.run(right);
    this.answers.set(key, { at: now, answer });
    return answer;
  }

  private async run(right: Right): Promise<RightAnswer> {
    while (this.running >= maxParallel) await new Promise<void>((resolve) => this.queue.push(resolve));
    this.running++;
    try {
      return await this.ask(right);
    } catch {
      return { allowed: true, why: "" };
    } finally {
      this.running--;
      this.queue.shift()?.();
    }
  }
}

interface AccessReview {
  status?: { allowed?: boolean; reason?: string };
}

async function reviewAccess(right: Right): Promise<RightAnswer> {
  const body = JSON.stringify({ apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes: right } });
  const review = await sendWrite<AccessReview>({ method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body });
  return { allowed: !!review.status?.allowed, why: review.status?.reason ?? "" };
}

export const rights = new RightChecker();
