// A timeline or a chat that goes on by itself. The server renders what is kept; what is just being written goes in as
// text nodes. Every entry has an id: the same one again replaces it, so nothing is there twice.
"use strict";

(() => {
  const page = document.querySelector("[data-stream]");
  if (!page) return;
  const byId = (id) => document.getElementById(id);
  const NEAR = 120; // pixels: whoever is so close to the end wants to stay there
  let last = page.dataset.after;

  // Parts of the page, as the server has rendered them.

  function made(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  }

  function isAtEnd() {
    const all = document.scrollingElement;
    return all.scrollHeight - all.scrollTop - all.clientHeight < NEAR;
  }

  function keepingPlace(change) {
    const stay = isAtEnd();
    change();
    if (stay) document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
  }

  function put(list, key, html, before) {
    const old = byId(key);
    // Whoever is typing an answer is not to lose it; when it is decided, the card has no form any more.
    const fresh = made(html);
    if (old?.contains(document.activeElement) && fresh.querySelector("form")) return;
    for (const [n, part] of (old?.querySelectorAll("details") ?? []).entries()) {
      const same = fresh.querySelectorAll("details")[n];
      if (same && part.open && !part.matches(".payload")) same.open = true;
    }
    if (old?.parentElement === list) {
      old.replaceWith(fresh);
    } else {
      old?.remove();
      const next = before && byId(before);
      list.insertBefore(fresh, next?.parentElement === list ? next : list.querySelector(":scope > .entry-live"));
    }
    htmx.process(fresh);
  }

  function listOf(turn) {
    return byId(`entries-${turn}`);
  }

  function element(name, className, text = "") {
    const made = document.createElement(name);
    made.className = className;
    made.textContent = text;
    return made;
  }

  // What is being written; in a chat, as the line it will be.
  function live(from, by) {
    const entry = element("li", "entry entry-live");
    entry.id = `live-${from}`;
    const frame = element("div", by ? "bubble bubble-out" : "");
    if (by) {
      const name = element("p", "by");
      name.append(element("b", "", by));
      frame.append(name);
    }
    entry.append(frame);
    return entry;
  }

  const shown = {
    patch({ turn, shell, head, entries, settles }) {
      if (!listOf(turn) && shell) byId("turns").append(made(shell));
      const list = listOf(turn);
      if (!list) return;
      for (const written of settles) byId(`live-${written}`)?.remove();
      for (const entry of entries) put(list, entry.key, entry.html, entry.before);
      if (head) {
        const fresh = made(head);
        list.parentElement.className = `turn turn-${fresh.dataset.status}`;
        byId(`head-${turn}`)?.replaceWith(fresh);
      }
      byId("begin")?.remove();
    },

    // `begins`: another text, under what there is. `partly`: its beginning was missed, so that it is only said of.
    delta({ turn, from, by, text, begins, partly }) {
      const list = listOf(turn);
      if (!list) return;
      if (!byId(`live-${from}`)) list.append(live(from, by));
      const frame = byId(`live-${from}`).firstElementChild;
      if (begins) frame.querySelector(".partly")?.remove();
      if (begins || !frame.querySelector(".streaming")) {
        const words = element("div", "streaming");
        words.dir = "auto";
        frame.append(words);
      }
      frame.lastElementChild.classList.toggle("partly", partly);
      frame.lastElementChild.append(partly ? "writing …" : text);
    },

    thought({ turn, key, text, html }) {
      if (!byId(key)) put(listOf(turn), key, html, null);
      byId(key)?.querySelector("[data-text]").append(text);
    },

    progress({ key, seconds }) {
      const elapsed = byId(key)?.querySelector("[data-elapsed]");
      if (elapsed) elapsed.textContent = `${Math.round(seconds)} s`;
    },

    part({ id, html }) {
      byId(id)?.replaceWith(made(html));
      if (byId(id)) htmx.process(byId(id));
    },
  };

  // The stream. A browser comes back by itself with the last id; where it gives up, it is begun anew here.

  let wait = 1000;
  let isListening;
  const listening = new Promise((resolve) => (isListening = resolve));

  function follow() {
    const address = new URL(page.dataset.stream, location.href);
    if (last) address.searchParams.set("after", last);
    const stream = new EventSource(address);
    for (const [name, show] of Object.entries(shown)) {
      stream.addEventListener(name, (event) => {
        keepingPlace(() => show(JSON.parse(event.data)));
        if (event.lastEventId) last = event.lastEventId;
      });
    }
    stream.addEventListener("ready", isListening);
    stream.addEventListener("open", () => {
      wait = 1000;
      byId("lamp").hidden = true;
      // What is being written comes again from its beginning.
      for (const entry of page.querySelectorAll(".entry-live")) entry.remove();
    });
    stream.addEventListener("error", () => {
      byId("lamp").hidden = false;
      if (stream.readyState === EventSource.CLOSED) setTimeout(begin, (wait = Math.min(wait * 2, 30000)));
    });
    addEventListener("pagehide", () => stream.close(), { once: true });
  }

  async function begin() {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected || answer.status === 404) location.reload(); // signed out, or no longer ours to see
      else follow();
    } catch {
      setTimeout(begin, (wait = Math.min(wait * 2, 30000)));
    }
  }

  // How long something has lasted.

  function span(seconds) {
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (seconds >= size) return `${Math.round(seconds / size)} ${unit}`;
    }
    return `${Math.round(seconds)} s`;
  }

  setInterval(() => {
    for (const part of document.querySelectorAll("[data-since], [data-until]")) {
      const { since, until } = part.dataset;
      const words = span(Math.max(0, since ? Date.now() - Date.parse(since) : Date.parse(until) - Date.now()) / 1000);
      if (part.textContent !== words) part.textContent = words;
    }
  }, 1000);

  // Saying something: shown at once, taken once.

  const box = document.querySelector("form[data-say]");

  function problemIn(html) {
    const answer = new DOMParser().parseFromString(html, "text/html");
    return answer.querySelector("#notice p")?.textContent.trim() || "the gateway did not take it: try again";
  }

  function optimistic(text) {
    const line = element("li", "entry entry-received sending");
    const bubble = element("div", "bubble bubble-in");
    const words = element("div", "plain", text);
    words.dir = "auto";
    bubble.append(words, element("p", "small muted", "sending …"));
    line.append(bubble);
    keepingPlace(() => byId(page.dataset.lines ?? "waiting").append(line));
    document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
    return line;
  }

  async function say() {
    const words = box.elements.text;
    const text = words.value;
    if (!text.trim()) return;
    const body = new URLSearchParams(new FormData(box));
    const line = optimistic(text);
    words.value = "";
    grow();
    box.elements.key.value = crypto.randomUUID();
    try {
      // The first words of an answer are not kept for who comes late; but nobody waits for ever to say something.
      await Promise.race([listening, new Promise((resolve) => setTimeout(resolve, 2000))]);
      const headers = { "X-CSRF-Token": document.body.dataset.csrf, Accept: "application/json" };
      const answer = await fetch(box.action, { method: "POST", body, headers });
      if (!answer.ok) throw new Error(problemIn(await answer.text()));
      const taken = await answer.json();
      if (taken.go) location.href = taken.go;
      else if (byId(taken.key)) line.remove();
      else {
        line.id = taken.key;
        line.querySelector("p").textContent = taken.text;
      }
    } catch (error) {
      line.classList.add("refused");
      line.querySelector("p").textContent = error instanceof TypeError ? "no connection: it was not sent" : error.message;
      if (!words.value) words.value = text;
      grow();
    }
  }

  function grow() {
    const words = box.elements.text;
    words.rows = Math.min(Math.max(words.value.split("\n").length, 1), 10);
  }

  if (box) {
    box.addEventListener("submit", (event) => {
      event.preventDefault();
      say();
    });
    box.elements.text.addEventListener("input", grow);
    box.elements.text.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      box.requestSubmit();
    });
  }

  if (location.hash) byId(location.hash.slice(1))?.scrollIntoView();
  else document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
  follow();
})();
