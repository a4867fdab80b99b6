/** The period of the report: days, months, or two dates. */
import { useState } from "preact/hooks";
import { Dialog } from "../../components/dialog";
import { Menu, MenuItem } from "../../components/menu";
import { changeQuery, route } from "../../router";
import { DEFAULT_DAYS, PERIODS } from "../../state/filters";
import { formatDate, type Period } from "./period";
import { texts } from "./texts";

const NO_DATES = { from: "", to: "" };

export function PeriodMenu({ period }: { period: Period }) {
  const [isChoosing, setChoosing] = useState(false);
  const days = period.kind === "days" ? Number.parseInt(period.since, 10) : 0;
  const { from, to } = route.value.query;
  const text = days ? texts("menu-days", { n: days }) : period.kind === "dates" ? `${from} – ${to}` : texts(period.kind === "this-month" ? "menu-this-month" : "menu-last-month");
  const chooseDays = (count: number) => changeQuery({ ...NO_DATES, period: "", days: count === DEFAULT_DAYS ? "" : count });
  return (
    <>
      <Menu text={<>{text} <i class="caret" /></>} label={`${texts("period")}: ${text}`} align="end">
        {(close) => (
          <>
            {PERIODS.map((count) => (
              <MenuItem key={count} kind="radio" isChecked={count === days} onChoose={() => (close(), chooseDays(count))}>
                {texts("menu-days", { n: count })}
              </MenuItem>
            ))}
            {(["this-month", "last-month"] as const).map((kind) => (
              <MenuItem key={kind} kind="radio" isChecked={period.kind === kind} onChoose={() => (close(), changeQuery({ ...NO_DATES, period: kind }))}>
                {texts(`menu-${kind}`)}
              </MenuItem>
            ))}
            <MenuItem kind="radio" isChecked={period.kind === "dates"} onChoose={() => (close(), setChoosing(true))}>
              {texts("menu-dates")}
            </MenuItem>
          </>
        )}
      </Menu>
      {isChoosing && <DatesDialog onClose={() => setChoosing(false)} />}
    </>
  );
}

function DatesDialog({ onClose }: { onClose: () => void }) {
  const today = formatDate(new Date());
  const weekAgo = formatDate(new Date(Date.now() - 6 * 86_400_000));
  const [from, setFrom] = useState(route.value.query["from"] || weekAgo);
  const [to, setTo] = useState(route.value.query["to"] || today);
  const isValid = from !== "" && to !== "" && from <= to;
  const submit = (event: Event) => {
    event.preventDefault();
    if (!isValid) return;
    changeQuery({ period: "dates", from, to });
    onClose();
  };
  return (
    <Dialog title={texts("period")} onClose={onClose}>
      <form class="dates" onSubmit={submit}>
        <label>
          {texts("from")}
          <input class="field" type="date" value={from} max={today} onInput={(event) => setFrom(event.currentTarget.value)} required />
        </label>
        <label>
          {texts("to")}
          <input class="field" type="date" value={to} min={from} max={today} onInput={(event) => setTo(event.currentTarget.value)} required />
        </label>
        <p class="secondary small">{texts("dates-hint")}</p>
        <button class="button button-primary" type="submit" disabled={!isValid}>{texts("apply")}</button>
      </form>
    </Dialog>
  );
}
