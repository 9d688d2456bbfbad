// Fetches the document, with the token where one is wanted, and gives it to Swagger UI. The token stays in this page.
"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
const [ask, field, problem] = ["ask", "token", "problem"].map((id) => document.getElementById(id));

function say(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

function show(spec, token) {
  const ui = SwaggerUIBundle({
    spec,
    dom_id: "#ui",
    deepLinking: true,
    displayRequestDuration: true,
    tryItOutEnabled: true,
    validatorUrl: null,
    onComplete: () => token && ui.preauthorizeApiKey("token", token),
  });
}

async function open(token) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch("openapi.json", { headers });
  const document = await answer.json();
  ask.hidden = answer.status !== 401;
  if (answer.ok) {
    say("");
    show(document, token);
  } else if (ask.hidden) {
    say(document.detail);
  } else if (token) {
    say("The server does not accept this token.");
  }
}

const start = (token) => open(token).catch((error) => say(`${error}`));

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  start(field.value.trim());
});
dark.addEventListener("change", paint);
paint();
start("");
