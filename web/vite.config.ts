import { defineConfig, loadEnv } from "vite";

export default defineConfig(({ mode }) => ({
  base: "./",
  build: {
    outDir: "../src/gpusteward/analyzer/api/ui/static",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    manifest: "manifest.json",
    reportCompressedSize: false,
  },
  // GPUSTEWARD_API: the address of a running analyzer for `npm run dev`.
  server: { proxy: { "/api": loadEnv(mode, ".", "GPUSTEWARD_")["GPUSTEWARD_API"] ?? "http://127.0.0.1:8713" } },
}));
