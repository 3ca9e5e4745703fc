// Renews the session of an issuer before its token ends, once for all tabs of a browser.

import { type Person, RequestError, actAs, agreeToOffer, getPerson, renewSession, setRenewal, signIn, signOut } from "./client";

/** A session that is renewed later than this was renewed by another tab. */
const dueSeconds = 5;
/** After a failure the page tries again in about so many seconds, then in twice as many, up to the most. */
const retrySeconds = 10;
const mostRetrySeconds = 300;

let timer: ReturnType<typeof setTimeout> | undefined;
let underWay: Promise<boolean> | undefined;
/** The person as which the page acts, if the session is renewed. */
let renewed: Person | undefined;
/** How many renewals failed since the last good one. */
let failures = 0;

/** Plans the next renewal of a person's session. */
export function planRenewal(person: Person): void {
  stopRenewal();
  if (person.renewInSeconds === undefined) return;
  renewed = person;
  wait(person.renewInSeconds);
}

/** Forgets the session, as when the person signs out. */
export function stopRenewal(): void {
  clearTimeout(timer);
  renewed = undefined;
  failures = 0;
}

function wait(seconds: number): void {
  clearTimeout(timer);
  timer = setTimeout(() => void renewOnce(), seconds * 1000);
}

/** Renews the session, and reports whether it is good. Callers at the same time share one renewal. */
export function renewOnce(): Promise<boolean> {
  const person = renewed;
  if (!person) return Promise.resolve(false);
  underWay ??= renewAlone(person).finally(() => (underWay = undefined));
  return underWay;
}

async function renewAlone(before: Person): Promise<boolean> {
  try {
    const person = await inTurn(renewUnlessDone);
    if (renewed !== before) return false;
    // Another sign-in in this browser: the page does not act as another person than it shows.
    if (person.user !== before.user || person.session !== before.session) throw new RequestError(401, "Unauthorized", "");
    planRenewal(person);
    return true;
  } catch (e) {
    if (renewed !== before) return false;
    if (e instanceof RequestError && e.code === 401) stopRenewal();
    else wait(Math.min(retrySeconds * 2 ** failures++, mostRetrySeconds) * (0.5 + Math.random() / 2));
    return false;
  }
}

/** The last turn of this page, for a browser without locks. */
let lastTurn: Promise<unknown> = Promise.resolve();

/**
 * Runs what sets the cookies of the session. The tabs of a browser take turns: the issuer takes a refresh token once, and a late
 * answer to a renewal would undo a sign-out.
 */
function inTurn<T>(run: () => Promise<T>): Promise<T> {
  if (typeof navigator !== "undefined" && navigator.locks) return navigator.locks.request("atoll.renewal", run);
  const turn = lastTurn.then(run);
  lastTurn = turn.catch(() => undefined);
  return turn;
}

/** Signs in by a token. */
export function beginSession(token: string): Promise<Person> {
  return inTurn(() => signIn(token));
}

/** Signs in as the person that a one-time code offers. */
export function acceptOffer(offer: string): Promise<Person> {
  return inTurn(() => agreeToOffer(offer));
}

/** Signs out, and returns where the session at the issuer can be ended, too. */
export function endSession(): Promise<string> {
  stopRenewal();
  return inTurn(signOut);
}

async function renewUnlessDone(): Promise<Person> {
  try {
    const person = await getPerson();
    if ((person.renewInSeconds ?? 0) > dueSeconds) return person;
  } catch (e) {
    if (!(e instanceof RequestError) || e.reason !== "Expired") throw e;
  }
  return renewSession();
}

/** Returns the signed-in person. A session whose token has ended is renewed; while the issuer does not renew it, there is none. */
export async function openSession(): Promise<Person> {
  const person = await getPerson().catch((e) => {
    if (!(e instanceof RequestError) || e.reason !== "Expired") throw e;
    return inTurn(renewUnlessDone).catch((failure) => {
      throw failure instanceof RequestError && failure.code === 0 ? failure : e;
    });
  });
  planRenewal(person);
  return actAs(person);
}

setRenewal(renewOnce);
