import { useState } from "preact/hooks";
import { type Person, RequestError, signIn } from "../api/client";
import { readPasted } from "../model/kubeconfig";
import { t } from "../text/text";
import { safeText } from "../text/safe";
import { Logo } from "../ui/icons";
import { Command } from "../ui/parts";

const namespaceKey = "atoll.namespace";

/** Returns the namespace that a person's application list begins with. */
export function rememberedNamespace(person: Person): string {
  const account = /^system:serviceaccount:([^:]+):/.exec(person.user);
  return sessionStorage.getItem(namespaceKey) ?? account?.[1] ?? "";
}

export function SignIn({ over, onSignedIn }: { over: boolean; onSignedIn: (p: Person) => void }) {
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
      const person = await signIn(pasted.token);
      if (pasted.namespace) sessionStorage.setItem(namespaceKey, pasted.namespace);
      else sessionStorage.removeItem(namespaceKey);
      setText("");
      onSignedIn(person);
    } catch (error) {
      setProblem(error instanceof RequestError && error.message ? safeText(error.message) : t("signin.unreachable"));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="signin">
      <form class="card" onSubmit={submit}>
        <div class="brand">
          <Logo />
          <span>{t("app.title")}</span>
        </div>
        <h1>{t("signin.title")}</h1>
        <p class="muted">{over ? t("signin.over") : t("signin.hint")}</p>
        <label for="token">{t("signin.token")}</label>
        <textarea
          id="token" rows={5} value={text} placeholder={t("signin.placeholder")} spellcheck={false} autocomplete="off" autocapitalize="off" autofocus
          onInput={(e) => setText(e.currentTarget.value)} onKeyDown={(e) => e.key === "Enter" && !e.shiftKey && void submit(e)}
        />
        <p class="problem" role="alert">
          {problem}
        </p>
        <button type="submit" class="primary" disabled={busy || text.trim() === ""}>
          {busy ? t("signin.busy") : t("signin.button")}
        </button>
        <p class="muted small">{t("signin.help")}</p>
        <Command text="kubectl create token NAME -n NAMESPACE" />
      </form>
    </main>
  );
}
