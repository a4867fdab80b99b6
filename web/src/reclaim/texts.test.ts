import { expect, it } from "vitest";
import { stateOf } from "./texts";

it("says what a restored workload waits for until its pods run", () => {
  expect(stateOf({ state: "restored", waiting_gpus: 1 })).toBe("restored, waiting for 1 GPU");
  expect(stateOf({ state: "restored", waiting_gpus: 8 })).toBe("restored, waiting for 8 GPUs");
  expect(stateOf({ state: "restored", waiting_gpus: null })).toBe("restored");
  expect(stateOf({ state: "new-word", waiting_gpus: null })).toBe("new-word");
});
