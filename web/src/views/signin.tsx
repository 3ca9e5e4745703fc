import { useEffect, useState } from "preact/hooks";
import { type Issuer, type Person, getIssuer } from "../api/client";
import { beginSession } from "../api/renewal";
import { readPasted } from "../model/kubeconfig";
import { describeSignInError } from "../text/problem";
import { t, textOr } from "../text/text";
import { safeText } from "../text/safe";
import { Brand, Command, Since } from "../ui/parts";

const namespaceKey = "atoll.namespace";

/** Returns the namespace that a person's application list begins with. */
export function rememberedNamespace(person: Person): string {
  const account = /^system:serviceaccount:([^:]+):/.exec(person.user);
  return sessionStorage.getItem(namespaceKey) ?? account?.[1] ?? "";
}

/** The way to the issuer, and its state. */
function IssuerSignIn({ issuer, onCheck }: { issuer: Issuer; onCheck: () => void }) {
  const { failure, host = "", signIn: address = "" } = issuer;
  const page = location.pathname + location.search;
  return (
    <div class="issuer">
      {failure && (
        <p class="problem" role="alert">
          {textOr("signin.failure." + failure.kind, t("signin.failure"))} {safeText(failure.message)}
        </p>
      )}
      <a id="issuer" class="primary" href={address + "?return=" + encodeURIComponent(page)}>
        {t("signin.issuer", { host: safeText(host) })}
      </a>
      {issuer.state === "Checking" && (
        <p class="muted small" role="status">
          {t("signin.issuer.checking")} <button type="button" class="ghost small" onClick={onCheck}>{t("reload")}</button>
        </p>
      )}
      {issuer.state === "Unreachable" && (
        <p class="problem small" role="status">
          {t("signin.issuer.unreachable")} {safeText(issuer.message ?? "")} <Since time={issuer.since} />{" "}
          <button type="button" class="ghost small" onClick={onCheck}>{t("reload")}</button>
        </p>
      )}
      <p class="or muted small"><span>{t("signin.or")}</span></p>
    </div>
  );
}

export function SignIn({ over, issuerSignOut, onSignedIn }: { over: boolean; issuerSignOut: string; onSignedIn: (p: Person) => void }) {
  const [issuer, setIssuer] = useState<Issuer>({});
  const check = (signal?: AbortSignal) => void getIssuer(signal).then(setIssuer, () => undefined);
  useEffect(() => {
    const stop = new AbortController();
    check(stop.signal);
    return () => stop.abort();
  }, []);
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const submit = async (e: Event) => {
    e.preventDefault();
    const pasted = readPasted(text);
    if (!pasted.token) {
      setProblem(t(pasted.problem ?? "signin.kubeconfig.none"));
      return;
    }
    setBusy(true);
    setProblem("");
    try {
      const person = await beginSession(pasted.token);
      if (pasted.namespace) sessionStorage.setItem(namespaceKey, pasted.namespace);
      else sessionStorage.removeItem(namespaceKey);
      setText("");
      onSignedIn(person);
    } catch (error) {
      setProblem(describeSignInError(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="signin">
      <form class="card" onSubmit={submit}>
        <Brand />
        <h1>{t("signin.title")}</h1>
        <p class="muted">{over ? t("signin.over") : t("signin.hint")}</p>
        {issuerSignOut.startsWith("https://") && (
          <p class="small" role="status">
            {t("signin.signedOut")} <a href={issuerSignOut}>{t("signin.issuer.signOut", { host: safeText(new URL(issuerSignOut).host) })}</a>
          </p>
        )}
        {issuer.host && <IssuerSignIn issuer={issuer} onCheck={() => check()} />}
        <label for="token">{t("signin.token")}</label>
        <textarea
          id="token" rows={5} value={text} placeholder={t("signin.placeholder")} spellcheck={false} autocomplete="off" autocapitalize="off" autofocus
          onInput={(e) => setText(e.currentTarget.value)} onKeyDown={(e) => e.key === "Enter" && !e.shiftKey && void submit(e)}
        />
        <p class="problem" role="alert">
          {problem}
        </p>
        <button type="submit" class={issuer.host ? "action" : "primary"} disabled={busy || text.trim() === ""}>
          {busy ? t("signin.busy") : t("signin.button")}
        </button>
        <p class="muted small">{t("signin.code")}</p>
        <Command text="atoll console" />
        <p class="muted small">{t("signin.help")}</p>
        <Command text="kubectl create token NAME -n NAMESPACE" />
      </form>
    </main>
  );
}
