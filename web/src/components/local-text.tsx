import { Time } from "./time";

/** Text of the API with its times in the viewer's zone; they are written as `2026-11-13 17:02 UTC`. */
export function LocalText({ text }: { text: string }) {
  const parts = text.split(/(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)? UTC)/);
  return <>{parts.map((part, index) => (index % 2 ? <Time key={index} at={`${part.slice(0, -4).replace(" ", "T")}Z`} /> : part))}</>;
}
