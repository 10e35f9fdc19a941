// The indexes of the service, each with a link to its search page.

import * as api from "./api.js";
import { h, $ } from "./dom.js";
import { failure, keyForm } from "./failure.js";

async function show() {
  try {
    const { indexes } = await api.call("indexes");
    $("results").replaceChildren(h("ul", { class: "examples" },
      indexes.map((name) => h("li", {}, h("a", { href: `indexes/${encodeURIComponent(name)}/` }, name)))));
  } catch (error) {
    if (!(error instanceof api.ServiceError)) throw error;
    $("results").replaceChildren(error.status === 401 ? keyForm(error, show) : failure(error, show));
  }
}

show();
