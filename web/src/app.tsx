import { effect } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Help } from "./components/help";
import { Shell } from "./components/shell";
import { Toasts } from "./components/toast";
import { language, t } from "./i18n";
import { findPage, type Page } from "./pages";
import { route } from "./router";
import { needsSignIn } from "./state/session";

const loaded = new Map<string, ComponentType>();

export function App() {
  const page = findPage(needsSignIn.value ? "sign-in" : route.value.page);
  useEffect(() => effect(() => void (document.documentElement.lang = language.value === "zh" ? "zh-CN" : "en")), []);
  useEffect(() => {
    document.title = page?.label ? `${t(page.label)} · gpusteward` : "gpusteward";
  });
  const content = page ? <PageContent key={page.name} page={page} /> : <p class="page-note">{t("page.unknown")}</p>;
  return (
    <>
      {page?.layout === "bare" ? content : <Shell page={page}>{content}</Shell>}
      <Help />
      <Toasts />
    </>
  );
}

function PageContent({ page }: { page: Page }) {
  const [Content, setContent] = useState<ComponentType | undefined>(() => loaded.get(page.name));
  const [hasFailed, setFailed] = useState(false);
  useEffect(() => {
    if (Content) return;
    page.load().then(
      (module) => {
        loaded.set(page.name, module.default);
        setContent(() => module.default);
      },
      () => setFailed(true),
    );
  }, [page]);
  if (Content) return <Content />;
  if (!hasFailed) return <div class="page-loading" aria-busy="true" />;
  return (
    <p class="page-note" role="alert">
      {t("page.failed")} <button class="button" onClick={() => location.reload()}>{t("page.reload")}</button>
    </p>
  );
}
