"use strict";

// Sends the request of a form, and shows the beginning of the response. The token stays in this page.
const SHOWN_CHARACTERS = 20000;

async function send(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  for (const input of form.querySelectorAll("input[name]")) {
    if (input.dataset.in === "path") {
      path = path.replace(`{${input.name}}`, encodeURIComponent(input.value));
    } else if (input.value !== "") {
      for (const word of input.value.split(",")) query.append(input.name, word.trim());
    }
  }
  const token = document.getElementById("token").value;
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const address = path.replace(/^\//, "") || ".";
  const response = await fetch(query.size ? `${address}?${query}` : address, {
    method: form.dataset.method.toUpperCase(),
    headers,
  });
  return `${response.status} ${response.statusText}\n${await readStart(response)}`;
}

async function readStart(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  while (text.length < SHOWN_CHARACTERS) {
    const { done, value } = await reader.read();
    if (done) return text;
    text += decoder.decode(value, { stream: true });
    if ((response.headers.get("content-type") || "").startsWith("text/event-stream")) break;
  }
  await reader.cancel();
  return `${text.slice(0, SHOWN_CHARACTERS)}\n…`;
}

for (const form of document.forms) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const output = form.querySelector("output");
    output.textContent = "…";
    try {
      output.textContent = await send(form);
    } catch (error) {
      output.textContent = String(error);
    }
  });
}
