// The sentences of failed requests.

import { RequestError } from "../api/client";
import { safeText } from "./safe";
import { t } from "./text";

/** Returns the sentence of a failed sign-in. */
export function describeSignInError(e: unknown): string {
  return e instanceof RequestError && e.message ? safeText(e.message) : t("signin.unreachable");
}

/** Returns the sentence of a failed request. */
export function describeError(e: unknown): string {
  if (!(e instanceof RequestError)) return safeText(String(e));
  if (e.reason === "JoinChanged") return t("act.accept.changed");
  if (e.reason === "WrittenNotFollowed") return t("undo.owners", { why: safeText(e.message) });
  if (e.code === 409) return t("act.conflict");
  return e.message ? safeText(e.message) : t("act.unreachable");
}
