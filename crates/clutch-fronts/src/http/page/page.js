// Fetches the document, with the token where one is wanted, and gives it to Swagger UI. The token stays in this page.
// Swagger UI shows an answer when it is whole; the values of a stream are shown here as they come.
"use strict";

const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
const [ask, field, problem] = ["ask", "token", "problem"].map((id) => document.getElementById(id));

function say(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

const SHOWN_MAX = 100000; // characters of a stream, of which the last are kept
const [stream, streamName, streamText] = ["stream", "stream-name", "stream-text"].map((id) => document.getElementById(id));
let shown = 0; // counts streams: only the newest is shown

async function follow(url, answer) {
  const mine = ++shown;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  stream.hidden = false;
  streamText.textContent = "";
  const name = decodeURIComponent(new URL(url, location).pathname.split("/").pop());
  const tell = (state) => (streamName.textContent = `${name}: ${state}`);
  tell("running");
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (mine !== shown) return void reader.cancel();
      if (done) return tell("ended");
      streamText.textContent = (streamText.textContent + value).slice(-SHOWN_MAX);
      streamText.scrollTop = streamText.scrollHeight;
    }
  } catch (error) {
    if (mine === shown) tell(`broken off (${error})`);
  }
}

async function fetchAndFollow(url, options) {
  const answer = await fetch(url, options);
  const kind = answer.headers.get("content-type") || "";
  if (kind.startsWith("application/x-ndjson") || kind.startsWith("text/event-stream")) {
    follow(url, answer.clone());
  }
  return answer;
}

function show(spec, token) {
  const ui = SwaggerUIBundle({
    spec,
    dom_id: "#ui",
    deepLinking: true,
    displayRequestDuration: true,
    tryItOutEnabled: true,
    validatorUrl: null,
    requestInterceptor: (request) => Object.assign(request, { userFetch: fetchAndFollow }),
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
