/** The report as a file: what is shown, in the chosen period. */
import { buildUrl, type Parameters } from "../../api/client";
import { Menu } from "../../components/menu";
import { language } from "../../i18n";
import { texts } from "./texts";

export function Downloads({ parameters }: { parameters: Parameters }) {
  const urlOf = (format: string) => buildUrl("/api/v1/reports", { ...parameters, format, language: language.value });
  return (
    <Menu text={<>{texts("download")} <i class="caret" /></>} label={texts("download")} align="end">
      {(close) => (
        <>
          <a class="menu-item" role="menuitem" tabIndex={-1} href={urlOf("html")} target="_blank" rel="noopener" onClick={close}>{texts("download-html")}</a>
          <a class="menu-item" role="menuitem" tabIndex={-1} href={urlOf("csv")} download="" onClick={close}>{texts("download-csv")}</a>
          <a class="menu-item" role="menuitem" tabIndex={-1} href={urlOf("focus")} download="" onClick={close}>{texts("download-focus")}</a>
        </>
      )}
    </Menu>
  );
}
