"use strict";
// Keeps a page up to date: asks every two seconds whether something has changed, and then takes the page's new
// contents, with what was open, chosen and typed as it was. Without this, loading the page again does the same.
(() => {
  const PERIOD_MS = 2000;
  const told = document.getElementById("told");
  const source = document.body.dataset.version;

  const filter = () => {
    const field = document.getElementById("filter");
    if (!field) return;
    const wanted = field.value.trim().toLowerCase();
    let shown = 0;
    for (const row of document.querySelectorAll(".studies tbody tr")) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    const none = document.getElementById("none");
    if (none) none.hidden = shown > 0;
  };
  document.addEventListener("input", (event) => { if (event.target.id === "filter") filter(); });

  const nameOf = (element) => {
    const section = element.closest("section");
    const alike = [...(section ?? document).querySelectorAll(element.tagName)];
    return [section?.getAttribute("aria-labelledby") ?? "", element.tagName, alike.indexOf(element)].join(" ");
  };
  const named = (root, name) => [...root.querySelectorAll(name.split(" ").at(-2))].find((one) => nameOf(one) === name);

  const replace = (html) => {
    const next = new DOMParser().parseFromString(html, "text/html");
    const [here, there] = [document.querySelector("main"), next.querySelector("main")];
    if (!here || !there) return;
    const open = [...here.querySelectorAll("details[open]")].map(nameOf);
    const pressed = here.querySelector("button[data-show][aria-pressed=true]")?.dataset.show;
    const typed = document.getElementById("filter")?.value;
    const chosen = document.getElementById("other")?.value;
    const active = here.contains(document.activeElement) ? nameOf(document.activeElement) : "";
    const across = [...here.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    here.replaceWith(document.adoptNode(there));
    const main = document.querySelector("main");
    for (const name of open) named(main, name)?.setAttribute("open", "");
    main.querySelectorAll(".scroll").forEach((one, index) => { one.scrollLeft = across[index] ?? 0; });
    if (pressed) main.querySelector(`button[data-show="${CSS.escape(pressed)}"]`)?.click();
    const field = document.getElementById("filter");
    if (field && typed) { field.value = typed; filter(); }
    const other = document.getElementById("other");
    if (other && chosen) other.value = chosen;
    if (active) named(main, active)?.focus({ preventScroll: true });
    document.title = next.title;
    const [state, newState] = [document.getElementById("state"), next.getElementById("state")];
    if (state && newState) state.replaceWith(document.adoptNode(newState));
  };

  const ask = async (address) => {
    const answer = await fetch(address, { signal: AbortSignal.timeout(10000), cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer.text();
  };

  let seen = document.body.dataset.seen || "";
  const look = async () => {
    if (!document.hidden) {
      try {
        const version = await ask(source);
        if (seen && version !== seen) replace(await ask(location.href));
        seen = version;
        told.hidden = true;
      } catch {
        told.textContent = "The dashboard does not answer: what you see may be old. It goes on when the server is back.";
        told.hidden = false;
      }
    }
    setTimeout(look, PERIOD_MS);
  };
  if (source) setTimeout(look, PERIOD_MS);
  filter();
})();
