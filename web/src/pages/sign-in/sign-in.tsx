/** Sign-in with a token, and who the viewer is. The token is exchanged for a cookie and not kept. */
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem, write } from "../../api/client";
import { Time } from "../../components/time";
import { chooseLanguage, language } from "../../i18n/language";
import { linkTo, navigate, route } from "../../router";
import { acceptSession, type Identity, identity, needsSignIn, restartSession } from "../../state/session";
import { texts } from "./texts";
import "./sign-in.css";

export default function SignIn() {
  const who = identity.value;
  const [wantsOther, setWantsOther] = useState(false);
  const showForm = needsSignIn.value || !who || who.method === "anonymous" || wantsOther;
  return (
    <main class="sign-in" id="content">
      <div class="sign-in-card">
        <Brand />
        {!needsSignIn.value && who && <Who who={who} />}
        {showForm && <TokenForm reason={needsSignIn.value ? (who?.reason ?? "") : ""} hasTitle={needsSignIn.value || !who} />}
        {!showForm && <Leave who={who} onOther={() => setWantsOther(true)} />}
        <footer class="sign-in-foot">
          {!needsSignIn.value && <a href={linkTo("overview")}>{texts("back")}</a>}
          <button type="button" class="button button-quiet" onClick={() => chooseLanguage(language.value === "zh" ? "en" : "zh")}>
            {language.value === "zh" ? "English" : "中文"}
          </button>
        </footer>
      </div>
    </main>
  );
}

function Brand() {
  return (
    <div class="brand sign-in-brand">
      <img src="./icon.svg" width="22" height="22" alt="" />
      <span>gpusteward</span>
    </div>
  );
}

function TokenForm({ reason, hasTitle }: { reason: string; hasTitle: boolean }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [isSending, setSending] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!token.trim() || isSending) return;
    setSending(true);
    setError("");
    try {
      await signIn(token.trim());
    } catch (problem) {
      setError(describe(problem));
      setSending(false);
      field.current?.select();
    }
  };
  return (
    <form class="sign-in-form" onSubmit={(event) => void submit(event)}>
      {hasTitle && <h1>{texts("title")}</h1>}
      {reason && !error && <p class="sign-in-reason">{reason}</p>}
      <label for="token">{texts("token")}</label>
      <input
        ref={field}
        id="token"
        class="field"
        type="password"
        autocomplete="off"
        spellcheck={false}
        value={token}
        aria-describedby="token-hint"
        aria-invalid={error !== ""}
        onInput={(event) => setToken(event.currentTarget.value)}
      />
      {error && <p class="sign-in-error" role="alert">{error}</p>}
      <button type="submit" class="button button-primary" disabled={!token.trim() || isSending}>{texts(isSending ? "signing" : "submit")}</button>
      <p id="token-hint" class="secondary small">{texts("hint")}</p>
    </form>
  );
}

async function signIn(token: string): Promise<void> {
  acceptSession(await write("post", "/api/v1/session", {}, { token }));
  await restartSession();
  if (route.value.page === "sign-in") navigate(linkTo("overview"), { replace: true });
}

async function signOut(): Promise<void> {
  acceptSession(await write("delete", "/api/v1/session"));
  await restartSession();
}

function describe(problem: unknown): string {
  if (!(problem instanceof Problem)) return texts("failed");
  return problem.status === 0 ? texts("offline") : problem.message || texts("failed");
}

function Who({ who }: { who: Identity }) {
  const title = who.method === "anonymous" ? texts("anonymous") : who.user ? texts("signed-in-as", { user: who.user }) : texts("signed-in");
  return (
    <>
      <h1>{title}</h1>
      {who.method === "anonymous" && <p class="secondary">{texts("anonymous-hint")}</p>}
      <dl class="sign-in-facts">
        {who.role && <Fact name={texts("role")}>{texts(`role-${who.role}`)}</Fact>}
        {who.method && <Fact name={texts("method")}>{texts(`method-${who.method}`)}</Fact>}
        <Fact name={texts("namespaces")}>{who.namespaces ? who.namespaces.join(", ") : texts("all-namespaces")}</Fact>
        {who.groups.length > 0 && <Fact name={texts("groups")}>{who.groups.join(", ")}</Fact>}
        {who.expires_at && <Fact name={texts("expires")}><Time at={who.expires_at} /></Fact>}
      </dl>
    </>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Leave({ who, onOther }: { who: Identity | null; onOther: () => void }) {
  if (!who?.signed_in) return <p class="secondary small">{texts("proxy-hint")}</p>;
  return (
    <div class="sign-in-actions">
      <button type="button" class="button button-primary" onClick={() => void signOut()}>{texts("sign-out")}</button>
      <button type="button" class="button" onClick={onOther}>{texts("other")}</button>
    </div>
  );
}
