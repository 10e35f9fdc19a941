// What the service refuses, as it says it; and the question for a key.

import { hasKey, keepKey } from "./api.js";
import { h } from "./dom.js";

const ASCII = /^[!-~]+$/; // a header cannot have others

/** An error with its remedy. */
export function failure(error, again) {
  return h("div", { class: "failure", role: "alert" },
    h("p", {}, h("strong", {}, error.message)),
    error.remedy && h("p", {}, "→ ", error.remedy),
    again && h("button", { type: "button", class: "plain", onclick: again }, "Ask again"),
    (error.code || error.request) &&
      h("p", { class: "quiet" }, [error.code, error.status, error.request && `request ${error.request}`].filter(Boolean).join(" · ")));
}

/** Ask for a key, then go on with `then`. */
export function keyForm(error, then) {
  const field = h("input", { type: "password", id: "key", name: "key", autocomplete: "off", required: true, "aria-describedby": "key-note" });
  const wrong = h("p", { class: "failure", role: "alert" }, hasKey() && error.message);
  wrong.hidden = !hasKey();
  const submit = (event) => {
    event.preventDefault();
    const key = field.value.trim();
    if (ASCII.test(key)) {
      keepKey(key);
      then();
      return;
    }
    wrong.textContent = "a key must be ASCII without spaces → copy the key again: it may contain a long dash or a hidden character";
    wrong.hidden = false;
    field.focus();
  };
  const form = h("form", { class: "key", onsubmit: submit },
    h("h2", {}, "This service asks for a key"),
    wrong,
    h("label", { for: "key" }, "API key"),
    h("div", { class: "line" }, field, h("button", { type: "submit", class: "strong" }, "Open")),
    h("p", { class: "quiet", id: "key-note" }, "It is kept in this tab until you close it, and sent to this service only."));
  queueMicrotask(() => field.focus());
  return form;
}
