import { describe, expect, it } from "vitest";
import {
  formatAmount, formatBytes, formatDuration, formatGpus, formatMoney, formatPercent, formatTime, formatUtc, shortModel,
} from "./format";

const plain = (text: string) => text.replaceAll("\u00a0", " ");

describe("durations", () => {
  it("are the two largest units in words", () => {
    const hour = 3600;
    expect(plain(formatDuration(4 * 24 * hour + 5 * hour + 59, "en"))).toBe("4 d 5 h");
    expect(plain(formatDuration(6 * hour + 12 * 60, "en"))).toBe("6 h 12 min");
    expect(plain(formatDuration(19 * hour, "en"))).toBe("19 h");
    expect(plain(formatDuration(45, "en"))).toBe("45 s");
    expect(plain(formatDuration(4 * 24 * hour + 5 * hour, "zh"))).toBe("4 天 5 小时");
  });

  it("are never negative", () => expect(plain(formatDuration(-5, "en"))).toBe("0 s"));
});

describe("numbers", () => {
  it("show digits of shares only", () => {
    expect(formatGpus(2, "en")).toBe("2");
    expect(formatGpus(0.25, "en")).toBe("0.25");
    expect(formatGpus(54.4, "en")).toBe("54.4");
  });

  it("write money with its code", () => {
    expect(plain(formatMoney(17_356_400_000, "USD", "en"))).toBe("17,356 USD");
    expect(plain(formatMoney(17_356_400_000, null, "de"))).toBe("17.356");
    expect(formatAmount(1_234_000, "en")).toBe("1.23");
  });

  it("do not round to completeness", () => {
    expect(plain(formatPercent(0.9996, "en"))).toBe("99.9 %");
    expect(plain(formatPercent(1, "en"))).toBe("100 %");
    expect(plain(formatPercent(0.614, "en"))).toBe("61 %");
    expect(plain(formatPercent(0.003, "en"))).toBe("0.3 %");
  });

  it("write bytes in binary units", () => {
    expect(plain(formatBytes(46.9 * 1024 ** 3, "en"))).toBe("46.9 GiB");
    expect(plain(formatBytes(0, "en"))).toBe("0 B");
  });
});

describe("models", () => {
  it("have the name that people say", () => {
    expect(shortModel("NVIDIA H100 80GB HBM3")).toBe("H100");
    expect(shortModel("NVIDIA A100-SXM4-40GB")).toBe("A100");
    expect(shortModel("NVIDIA GeForce RTX 4090")).toBe("RTX 4090");
    expect(shortModel("Tesla V100-SXM2-32GB")).toBe("V100");
    expect(shortModel("NVIDIA RTX A6000")).toBe("RTX A6000");
    expect(shortModel("NVIDIA L40S")).toBe("L40S");
  });
});

describe("times", () => {
  it("are in the viewer's zone, and UTC on hover", () => {
    const at = new Date("2026-11-13T17:02:00Z");
    expect(formatTime(at, "minute", "en-GB", "Asia/Shanghai")).toBe("01:02");
    expect(formatUtc(at)).toBe("2026-11-13 17:02:00 UTC");
  });
});
