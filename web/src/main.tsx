// The console of the hub.

import { render } from "preact";
import { useEffect, useMemo, useReducer, useState } from "preact/hooks";
import { safeText } from "./text/safe";
import { type Person, RequestError, setSignedOutHandler } from "./api/client";
import { forgetCollections } from "./api/collection";
import { connection } from "./api/connection";
import { endSession, openSession, planRenewal, stopRenewal } from "./api/renewal";
import { rights } from "./api/rights";
import { codeOf } from "./model/code";
import type { Entry } from "./model/palette";
import { type Language, currentLanguage, setLanguage, t } from "./text/text";
import { linkTo, navigate, useRoute } from "./ui/hooks";
import { Icon, Logo } from "./ui/icons";
import { Empty, Link, Text } from "./ui/parts";
import { loadReasons } from "./ui/reasons";
import { Application } from "./views/application";
import { ApplicationList } from "./views/applications";
import { ClusterPage } from "./views/cluster";
import { Fleet } from "./views/fleet";
import { FreezeBanner } from "./views/freeze";
import { Logs } from "./views/logs";
import { OfferPage } from "./views/offer";
import { Palette } from "./views/palette";
import { PodPage } from "./views/pod";
import { SignIn } from "./views/signin";
import { TerminalPage } from "./views/terminal";
import { Waiting, useWaits } from "./views/waiting";

type Theme = "system" | "light" | "dark";

function setTheme(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
  localStorage.setItem("atoll.theme", theme);
}

function chosenTheme(): Theme {
  const theme = localStorage.getItem("atoll.theme");
  return theme === "light" || theme === "dark" ? theme : "system";
}

function chosenLanguage(): Language {
  const language = localStorage.getItem("atoll.language") ?? navigator.language;
  return language.startsWith("zh") ? "zh" : "en";
}

function otherLanguage(): string {
  return currentLanguage() === "en" ? "中文" : "English";
}

/** Forgets what was read for one person, as another one signs in. */
function forgetPerson(): void {
  stopRenewal();
  forgetCollections();
  rights.forget();
}

function App() {
  const [person, setPerson] = useState<Person | undefined>();
  const [phase, setPhase] = useState<"offer" | "starting" | "out" | "over" | "in" | "unreachable">(codeOfLink ? "offer" : "starting");
  const [issuerSignOut, setIssuerSignOut] = useState("");
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const start = () =>
    openSession().then(
      (p) => {
        setPerson(p);
        setPhase("in");
      },
      (e) => {
        if (e instanceof RequestError && e.code === 401) return setPhase("out");
        setPhase("unreachable");
        setTimeout(start, 3000);
      },
    );
  useEffect(() => {
    setSignedOutHandler(() => {
      forgetPerson();
      setPhase("over");
    });
    void loadReasons().catch(() => undefined);
    if (!codeOfLink) void start();
  }, []);
  if (phase === "starting") return <p class="muted pad">{t("loading")}</p>;
  if (phase === "unreachable") return <Empty title={t("live.off")} />;
  const signedIn = (p: Person) => {
    forgetPerson();
    planRenewal(p);
    setPerson(p);
    setPhase("in");
  };
  if (phase === "offer") {
    const decline = () => {
      setPhase("starting");
      void start();
    };
    return <OfferPage code={codeOfLink} onSignedIn={signedIn} onDeclined={decline} />;
  }
  if (phase !== "in" || !person) {
    return <SignIn over={phase === "over"} issuerSignOut={phase === "out" ? issuerSignOut : ""} onSignedIn={signedIn} />;
  }
  const leave = () => {
    void endSession().then(setIssuerSignOut, () => setIssuerSignOut("")).finally(() => {
      sessionStorage.clear();
      forgetPerson();
      setPerson(undefined);
      setPhase("out");
    });
  };
  return <Shell key={currentLanguage()} person={person} onLeave={leave} onLanguage={() => redraw(undefined as never)} />;
}

function Shell({ person, onLeave, onLanguage }: { person: Person; onLeave: () => void; onLanguage: () => void }) {
  const route = useRoute();
  const [theme, choose] = useState(chosenTheme());
  const [isPaletteOpen, openPalette] = useState(false);
  const view = route.path[0] ?? "fleet";
  useEffect(() => {
    const keys = (e: KeyboardEvent) => {
      const el = e.target as HTMLElement;
      if (el.closest(".terminal-box")) return; // all keys are the shell's
      if (e.key.toLowerCase() === "k" && (e.ctrlKey || e.metaKey) && !e.altKey && !e.shiftKey) {
        e.preventDefault();
        return openPalette(true);
      }
      if (el.matches("input, textarea, select") || e.metaKey || e.ctrlKey || e.altKey) return;
      const filter = document.getElementById("filter");
      if (e.key === "/" && filter) {
        e.preventDefault();
        filter.focus();
      }
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  useEffect(() => {
    const at = route.path.length > 1 ? route.path.at(-1) : undefined;
    document.title = (at ? at.replace(/[\p{Cc}\p{Cf}]/gu, "") + " · " : "") + t("app.title");
  }, [location.pathname]);
  const isApplications = ["applications", "logs", "pods", "terminal"].includes(view);
  const nav = [
    ["fleet", t("nav.fleet"), view === "fleet" || view === "clusters"],
    ["applications", t("nav.applications"), isApplications],
    ["waiting", t("nav.waiting"), view === "waiting"],
  ] as const;
  const switchTheme = () => {
    const next: Theme = theme === "system" ? "light" : theme === "light" ? "dark" : "system";
    setTheme(next);
    choose(next);
  };
  const switchLanguage = () => {
    const next: Language = currentLanguage() === "en" ? "zh" : "en";
    localStorage.setItem("atoll.language", next);
    setLanguage(next);
    onLanguage();
  };
  const actions = useMemo((): Entry[] => [
    ...nav.map(([path, title]): Entry => ({ key: "page/" + path, group: "page", title, detail: "", words: [], to: linkTo(path) })),
    { key: "action/theme", group: "action", title: t("nav.theme"), detail: t(`nav.theme.${theme}`), words: [], run: switchTheme },
    { key: "action/language", group: "action", title: t("nav.language"), detail: otherLanguage(), words: [], run: switchLanguage },
    { key: "action/signOut", group: "action", title: t("nav.signOut"), detail: person.user, words: [], run: onLeave },
  ], [theme, view, person]);
  return (
    <div class="shell">
      <a class="skip" href="#content" onClick={(e) => (e.preventDefault(), document.getElementById("content")?.focus())}>{t("nav.skip")}</a>
      <aside>
        <Link to={linkTo("fleet")} class="brand"><Logo /><span>{t("app.title")}</span></Link>
        <nav>
          {nav.map(([path, text, on]) => (
            <Link key={path} to={linkTo(path)} class={"nav" + (on ? " nav-on" : "")}>
              <Icon name={path} /><span>{text}</span>
            </Link>
          ))}
        </nav>
        <button type="button" class="nav palette-open" aria-haspopup="dialog" onClick={() => openPalette(true)}>
          <Icon name="search" /><span>{t("palette.open")}</span><kbd>{/Mac|iP(hone|ad)/.test(navigator.userAgent) ? "⌘K" : "Ctrl K"}</kbd>
        </button>
        <div class="foot">
          <Live />
          <p class="person small" title={safeText(person.user)}><Text>{person.user}</Text></p>
          <div class="foot-buttons">
            <button type="button" class="ghost small" onClick={switchTheme}>{t("nav.theme")}: {t(`nav.theme.${theme}`)}</button>
            <button type="button" class="ghost small" onClick={switchLanguage} aria-label={`${t("nav.language")}: ${otherLanguage()}`}>{otherLanguage()}</button>
            <button type="button" class="ghost small" onClick={onLeave}>{t("nav.signOut")}</button>
          </div>
        </div>
      </aside>
      <main id="content" tabIndex={-1}>
        <FreezeBanner />
        <View path={route.path} person={person} />
      </main>
      {isPaletteOpen && <Palette person={person} actions={actions} onClose={() => openPalette(false)} />}
    </div>
  );
}

function View({ path, person }: { path: string[]; person: Person }) {
  const [view = "fleet", a, b, c] = path;
  if (view === "clusters" && a) return <ClusterPage key={a} name={a} person={person} />;
  if (view === "applications" && a && b) return <Application key={a + "/" + b} namespace={a === "-" ? "" : a} name={b} person={person} />;
  if (view === "logs" && a && b && c) return <Logs key={[a, b, c].join("/")} namespace={a} kind={b} name={c} />;
  if (view === "terminal" && a && b) return <TerminalPage key={a + "/" + b} namespace={a} name={b} />;
  if (view === "pods" && a && b) return <PodPage key={a + "/" + b} namespace={a} name={b} />;
  if (view === "applications") return <ApplicationList person={person} />;
  if (view === "waiting") return <WaitingPage person={person} />;
  if (view === "fleet") return <Fleet />;
  return <Empty title={t("error.notFound")} />;
}

function WaitingPage({ person }: { person: Person }) {
  return <Waiting waits={useWaits(person)} person={person} />;
}

/** Says when the page does not hear of changes. */
function Live() {
  const [live, setLive] = useState(connection.live);
  useEffect(() => {
    const stop = connection.subscribe(() => setLive(connection.live));
    return () => void stop();
  }, []);
  return <p class={"live small" + (live ? "" : " live-off")} role="status"><span class="dot" />{t(live ? "live.on" : "live.off")}</p>;
}

/** The code of the link that opened the page. It is in no entry of the browser's history. */
const codeOfLink = codeOf(location.hash);
if (codeOfLink) history.replaceState(null, "", location.pathname + location.search);
setTheme(chosenTheme());
setLanguage(chosenLanguage());
if (location.pathname === "/console/") navigate(linkTo("fleet") + location.search, true);
render(<App />, document.getElementById("app")!);
