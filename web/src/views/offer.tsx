import { useEffect, useState } from "preact/hooks";
import { type Offer, type Person, declineOffer, getPerson, offerSession } from "../api/client";
import { acceptOffer } from "../api/renewal";
import { describeSignInError } from "../text/problem";
import { safeText } from "../text/safe";
import { t } from "../text/text";
import { Brand, Command, Text } from "../ui/parts";

/** The sign-in by the one-time code of a link. Another person can have sent the link, so the page signs in after a click alone. */
export function OfferPage({ code, onSignedIn, onDeclined }: { code: string; onSignedIn: (p: Person) => void; onDeclined: () => void }) {
  const [offer, setOffer] = useState<Offer | undefined>();
  const [current, setCurrent] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    offerSession(code).then(setOffer, (e) => setProblem(describeSignInError(e)));
    getPerson().then((p) => setCurrent(p.user), () => undefined);
  }, []);
  const agree = async () => {
    setBusy(true);
    try {
      onSignedIn(await acceptOffer(offer!.offer));
    } catch (e) {
      setOffer(undefined);
      setProblem(describeSignInError(e));
      setBusy(false);
    }
  };
  const decline = () => {
    if (offer) void declineOffer().catch(() => undefined);
    onDeclined();
  };
  return (
    <main class="signin">
      <section class="card" aria-labelledby="offer-title">
        <Brand />
        <h1 id="offer-title">{t("offer.title")}</h1>
        {!offer && problem === "" && <p class="muted" role="status">{t("signin.busy")}</p>}
        <p class="problem" role="alert">{problem}</p>
        {problem !== "" && <Command text="atoll console" />}
        {offer && (
          <>
            <p>{t("offer.as")}</p>
            <p class="offer-user"><Text>{offer.user}</Text></p>
            {offer.groups && <p class="muted small"><Text>{offer.groups.join(", ")}</Text></p>}
            {current && <p role="status">{t("offer.current", { user: safeText(current) })}</p>}
            <p class="muted small">{t("offer.check")}</p>
            <button type="button" id="agree" class="primary" disabled={busy} onClick={() => void agree()}>{t("offer.agree")}</button>
          </>
        )}
        {(offer || problem !== "") && (
          <button type="button" class="action" disabled={busy} onClick={decline}>
            {current ? t("offer.stay", { user: safeText(current) }) : t("offer.decline")}
          </button>
        )}
      </section>
    </main>
  );
}
