// Keys of the inbox: j and k move from card to card, a approves, d denies after asking, digits choose an answer.
"use strict";

(() => {
  const cards = () => [...document.querySelectorAll('#asks [data-ask][data-status="pending"]')];
  const current = () => document.activeElement?.closest("[data-ask]");

  function move(step) {
    const all = cards();
    if (!all.length) return;
    const now = all.indexOf(current());
    const next = now < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(now + step, 0), all.length - 1);
    all[next].focus();
    all[next].scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    const at = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (at instanceof Element && at.closest("input, textarea, select")) return;
    if (event.key === "j") move(1);
    if (event.key === "k") move(-1);
    if (event.key === "a") current()?.querySelector("[data-approve]")?.click();
    if (/^[1-9]$/.test(event.key)) current()?.querySelectorAll("button[name=option]")[event.key - 1]?.click();
    if (event.key === "d") deny(current()?.querySelector("[data-deny]"));
  });

  function deny(button) {
    if (!button) return;
    const dialog = document.getElementById("confirm");
    document.getElementById("confirm-text").textContent = "Deny this? The agent is told no.";
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => dialog.returnValue === "yes" && button.click(), { once: true });
    dialog.showModal();
  }
})();
