import { defineConfig, loadEnv, type Plugin } from "vite";

/** The first page is asked for at once, not after the script that would import it. */
const preloadFirstPage: Plugin = {
  name: "preload-first-page",
  transformIndexHtml: {
    order: "post",
    handler(_, { bundle }) {
      const page = Object.values(bundle ?? {}).find(
        (chunk) => chunk.type === "chunk" && chunk.facadeModuleId?.endsWith("/pages/overview/overview.tsx"),
      );
      return page ? [{ tag: "link", attrs: { rel: "modulepreload", href: `./${page.fileName}` }, injectTo: "head" }] : [];
    },
  },
};

export default defineConfig(({ mode }) => ({
  base: "./",
  plugins: [preloadFirstPage],
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
