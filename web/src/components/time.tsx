import { useEffect, useState } from "preact/hooks";
import { fmt } from "../i18n";

/** A time in the viewer's zone, with UTC on hover. */
export function Time({ at, style = "short" }: { at: string | number | Date; style?: Parameters<typeof fmt.time>[1] }) {
  const date = new Date(at);
  return <time dateTime={date.toISOString()} title={fmt.utc(date)}>{fmt.time(date, style)}</time>;
}

/** How long ago something began; counts on while it is shown. */
export function Since({ at }: { at: string | number | Date }) {
  const date = new Date(at);
  const now = useNow(date.getTime() > Date.now() - 3_600_000 ? 5000 : 60_000);
  return <time dateTime={date.toISOString()} title={fmt.utc(date)}>{fmt.duration((now - date.getTime()) / 1000)}</time>;
}

export function useNow(everyMs: number): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
