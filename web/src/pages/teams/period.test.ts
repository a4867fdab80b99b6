import { describe, expect, test } from "vitest";
import { nextDay, readPeriod } from "./period";

const TODAY = new Date("2026-01-15T23:30:00Z");

describe("the period of a report", () => {
  test("is the last days of the whole page by default", () => {
    expect(readPeriod({}, 14, TODAY)).toEqual({ kind: "days", since: "14d", until: undefined });
  });
  test("is a calendar month in UTC, also across the turn of the year", () => {
    expect(readPeriod({ period: "this-month" }, 7, TODAY)).toEqual({ kind: "this-month", since: "2026-01-01", until: undefined });
    expect(readPeriod({ period: "last-month" }, 7, TODAY)).toEqual({ kind: "last-month", since: "2025-12-01", until: "2026-01-01" });
  });
  test("includes the last of two dates", () => {
    const period = readPeriod({ period: "dates", from: "2026-01-03", to: "2026-01-05" }, 7, TODAY);
    expect(period).toEqual({ kind: "dates", since: "2026-01-03", until: "2026-01-06" });
    expect(nextDay("2025-12-31")).toBe("2026-01-01");
  });
  test.each([{ from: "2026-01-05", to: "2026-01-03" }, { from: "yesterday", to: "2026-01-03" }, { from: "2026-13-40", to: "2026-13-41" }, {}])(
    "falls back to the last days for dates that make no sense: %o",
    (dates) => {
      expect(readPeriod({ period: "dates", ...dates }, 7, TODAY).kind).toBe("days");
    },
  );
});
