import { defineTexts } from "../../i18n";

export const texts = defineTexts(
  {
    headline: "{idle} of {total} GPUs are held and idle.",
  },
  {
    headline: "{total} 张 GPU 中有 {idle} 张被占用却空闲。",
  },
);
