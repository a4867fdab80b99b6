import { render } from "preact";
import { startLive } from "./api/live";
import { startResources } from "./api/resources";
import { App } from "./app";
import { startRouter } from "./router";
import { startSession } from "./state/session";
import { startTheme } from "./state/theme";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/components.css";
import "./styles/shell.css";

startTheme();
startRouter();
startSession();
startResources();
startLive();
render(<App />, document.getElementById("app")!);
