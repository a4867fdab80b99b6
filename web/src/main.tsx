import { render } from "preact";
import { startLive } from "./api/live";
import { startResources } from "./api/resources";
import { App } from "./app";
import { findPage } from "./pages";
import { route, startRouter } from "./router";
import { startSession } from "./state/session";
import { startTheme } from "./state/theme";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/components.css";
import "./styles/shell.css";

startTheme();
startRouter();
void findPage(route.peek().page)?.load().catch(() => undefined); // read beside the session; `App` says if it fails
startSession();
startResources();
startLive();
render(<App />, document.getElementById("app")!);
