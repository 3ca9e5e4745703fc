import { useEffect, useState } from "preact/hooks";
import { liftFreezeWrite, settingsPath } from "../api/actions";
import { sendWrite } from "../api/client";
import type { Right } from "../api/kubernetes";
import { rights } from "../api/rights";
import type { HubSettings } from "../api/types.gen";
import { activeFreeze } from "../model/freeze";
import { formatAbsolute } from "../model/time";
import { t } from "../text/text";
import { Act, Do } from "../ui/act";
import { useCollection, useNow } from "../ui/hooks";
import { Icon } from "../ui/icons";
import { Since, Text } from "../ui/parts";

function settingsRight(verb: string): Right {
  return { verb, group: "atoll.dev", resource: "hubsettings" };
}

const liftRights: readonly Right[] = [settingsRight("patch"), settingsRight("freeze")];

/** Shows on all pages that a freeze holds all changes. A person who may not read the settings sees the reason at each application. */
export function FreezeBanner() {
  const [readable, setReadable] = useState(false);
  useEffect(() => {
    let over = false;
    void rights.check(settingsRight("watch")).then((answer) => over || setReadable(answer.allowed));
    return () => void (over = true);
  }, []);
  const { items } = useCollection<HubSettings>(readable ? settingsPath : undefined);
  const now = useNow(1);
  const settings = items.find((s) => s.metadata.name === "hub");
  const freeze = activeFreeze(settings, now);
  if (!settings || !freeze) return null;
  return (
    <section class="card waits waits-person freeze" id="freeze" role="status">
      <Icon name="wait" />
      <div class="grow">
        <p><strong>{t("freeze.title")}</strong> <Text>{freeze.reason}</Text></p>
        <p class="muted small">
          <Text>{freeze.by}</Text> · <Since time={freeze.since} /> · {freeze.until ? t("freeze.until", { time: formatAbsolute(freeze.until) }) : t("freeze.open")}
        </p>
        <Act label={t("freeze.lift")} needs={liftRights} command="atoll unfreeze">
          <p>{t("freeze.lift.what")}</p>
          <Do label={t("freeze.lift.do")} run={() => sendWrite(liftFreezeWrite(settings))} />
        </Act>
      </div>
    </section>
  );
}
