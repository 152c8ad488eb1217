// The little the console does in the browser: keys, the theme, notices, and asking before something is lost.
// Nothing here makes HTML, and nothing evaluates text.
"use strict";

(() => {
  const root = document.documentElement;
  const YEAR = 365 * 86400;
  const byId = (id) => document.getElementById(id);

  function toggleTheme() {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `longshore_theme=${root.dataset.theme}; path=/console; max-age=${YEAR}; samesite=lax`;
  }

  document.addEventListener("click", (event) => {
    const at = event.target instanceof Element ? event.target : null;
    if (at?.closest("[data-theme-toggle]")) toggleTheme();
    if (at?.closest("[data-show-keys]")) byId("keys").showModal();
    if (at?.closest("[data-dismiss]")) at.closest(".toast").remove();
  });

  // Keys. `g` waits a moment for where to go.
  let going = 0;
  const typing = (at) => at instanceof Element && at.closest("input, textarea, select, [contenteditable]");

  function moveAmongRows(step) {
    const links = [...document.querySelectorAll("main :is([data-row], .grid tbody tr)")].map((row) => row.querySelector("a[href], summary"));
    const rows = links.filter(Boolean);
    if (!rows.length) return;
    const here = document.activeElement?.closest("[data-row], tr")?.querySelector("a[href], summary");
    const now = rows.indexOf(here);
    const next = now < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(now + step, 0), rows.length - 1);
    rows[next].focus();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (Date.now() - going < 1500) {
      going = 0;
      const place = [...document.querySelectorAll("nav a[data-key]")].find((a) => a.dataset.key === event.key);
      if (place) {
        event.preventDefault();
        place.click();
      }
      return;
    }
    switch (event.key) {
      case "g":
        going = Date.now();
        break;
      case "?":
        byId("keys")?.showModal();
        break;
      case "/": {
        const search = document.querySelector("main [type=search], main [data-search]");
        if (search) {
          event.preventDefault();
          search.focus();
        }
        break;
      }
      case "j":
        moveAmongRows(1);
        break;
      case "k":
        moveAmongRows(-1);
        break;
      case "x":
        document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]")?.click();
        break;
    }
  });

  // Filters act when they are changed, and one box ticks all of its form.
  document.addEventListener("change", (event) => {
    const all = event.target instanceof Element ? event.target.closest("[data-tick-all]") : null;
    if (all) all.form.querySelectorAll("tbody input[type=checkbox]").forEach((box) => { box.checked = all.checked; });
    const form = event.target instanceof Element ? event.target.closest("form[data-apply]") : null;
    if (form) form.requestSubmit();
  });

  // htmx: the token for what it sends, a dialog instead of the browser's, and the lamp.
  document.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail;
    const request = ctx.request;
    // Of a form with several buttons, perhaps one asks first.
    ctx.confirm ??= ctx.sourceEvent?.submitter?.dataset.confirm;
    if (request.method !== "GET") request.headers["X-CSRF-Token"] = document.body.dataset.csrf;
  });

  document.addEventListener("htmx:before:request", (event) => {
    // What nobody looks at need not be fetched; it is when they come back.
    if (document.hidden && event.detail.ctx.sourceElement.matches("[data-poll]")) event.preventDefault();
  });

  // A part that fetches itself may lose something above what somebody is at: that stays where it is seen.
  let held = null;
  document.addEventListener("htmx:before:swap", (event) => {
    const at = document.activeElement;
    const inside = event.detail.ctx.sourceElement?.matches("[data-poll]") && at?.closest("[data-poll]");
    held = inside ? { at, top: at.getBoundingClientRect().top } : null;
  });
  document.addEventListener("htmx:after:swap", () => {
    if (held?.at.isConnected) scrollBy(0, held.at.getBoundingClientRect().top - held.top);
    held = null;
  });

  document.addEventListener("htmx:confirm", (event) => {
    const { ctx, issueRequest, dropRequest } = event.detail;
    const dialog = byId("confirm");
    event.preventDefault();
    byId("confirm-text").textContent = ctx.confirm;
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => (dialog.returnValue === "yes" ? issueRequest() : dropRequest()), { once: true });
    dialog.showModal();
  });

  const lamp = (lit) => {
    byId("lamp").hidden = lit;
  };
  document.addEventListener("htmx:error", () => lamp(false));
  document.addEventListener("htmx:after:request", (event) => lamp(event.detail.ctx.response.status < 500 && event.detail.ctx.response.status !== 429));
})();
