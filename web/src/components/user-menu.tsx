import { t } from "../i18n";
import { chooseLanguage, language } from "../i18n/language";
import { findPage } from "../pages";
import { linkTo, navigate } from "../router";
import { identity, initials, isAnonymous } from "../state/session";
import { chooseTheme, theme, type Theme } from "../state/theme";
import { isHelpOpen } from "./help";
import { Menu, MenuItem, MenuTitle } from "./menu";

const THEMES: readonly Theme[] = ["system", "light", "dark"];

export function UserMenu() {
  const text = initials.value || <PersonShape />;
  return (
    <Menu text={text} label={t("user.menu")} class="avatar" align="end">
      {(close) => (
        <>
          <WhoIsIt />
          <MenuTitle>{t("theme.label")}</MenuTitle>
          {THEMES.map((each) => (
            <MenuItem key={each} kind="radio" isChecked={each === theme.value} onChoose={() => chooseTheme(each)}>
              {t(`theme.${each}`)}
            </MenuItem>
          ))}
          <MenuTitle>{t("language.label")}</MenuTitle>
          <MenuItem kind="radio" isChecked={language.value === "en"} onChoose={() => chooseLanguage("en")}>English</MenuItem>
          <MenuItem kind="radio" isChecked={language.value === "zh"} onChoose={() => chooseLanguage("zh")}>中文</MenuItem>
          <hr />
          {findPage("wall") && <MenuItem onChoose={() => navigate(linkTo("wall"))}>{t("wall.open")}</MenuItem>}
          <MenuItem onChoose={() => (close(), (isHelpOpen.value = true))}>{t("help.open")}</MenuItem>
          {findPage("sign-in") && (
            <MenuItem onChoose={() => navigate(linkTo("sign-in"))}>{t(isAnonymous.value ? "user.sign-in" : "user.sign-out")}</MenuItem>
          )}
        </>
      )}
    </Menu>
  );
}

function WhoIsIt() {
  const who = identity.value;
  if (!who) return null;
  const name = who.user || t(who.method === "anonymous" ? "user.anonymous" : "user.token");
  return (
    <div class="who">
      <strong>{name}</strong>
      <span>{t("user.role", { role: who.role ?? "-" })}</span>
      {who.namespaces && <span>{t("user.sees", { namespaces: who.namespaces.join(", ") })}</span>}
    </div>
  );
}

function PersonShape() {
  return (
    <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" fill="currentColor">
      <circle cx="8" cy="5" r="3" />
      <path d="M2 15a6 6 0 0 1 12 0z" />
    </svg>
  );
}
