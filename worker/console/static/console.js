// Refreshes a page after events of the service, says when they don't arrive, and copies texts. No other script is used.
"use strict";

const state = document.getElementById("state");
const address = document.body.dataset.live;
const PAUSE_MS = 800; // between two refreshes
const SILENT_MS = 25000; // the server says something every ten seconds

function show(kind, text) {
  if (!state || state.textContent === text) return;
  state.classList.toggle("is-live", kind === "live");
  state.classList.toggle("is-lost", kind === "lost");
  state.textContent = text;
}

function placeOf(element) {
  if (!element || element === document.body || !element.closest("main")) return null;
  if (element.id) return "#" + CSS.escape(element.id);
  const href = element.getAttribute("href");
  return href ? 'a[href="' + CSS.escape(href) + '"]' : null;
}

function isEdited(main) {
  const focused = document.activeElement;
  if (focused && main.contains(focused) && /^(INPUT|SELECT|TEXTAREA)$/.test(focused.tagName)) return true;
  return Array.from(main.querySelectorAll("input")).some(
    (input) => input.value !== input.defaultValue || input.checked !== input.defaultChecked,
  );
}

// Figures that take long are missing at first.
function isPending() {
  return document.querySelector("main [data-pending]") !== null;
}

let busy = false;
let again = false;
let waits = false; // for the end of an edit

async function refresh() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  again = false;
  try {
    const answer = await fetch(location.href, { redirect: "manual", cache: "no-store" });
    if (answer.type === "opaqueredirect") {
      location.reload(); // the session has ended
      return;
    }
    if (!answer.ok) {
      show("lost", "Not connected: the service does not answer");
      again = true;
      return;
    }
    replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    show("lost", "Not connected: the console does not answer");
  } finally {
    setTimeout(() => {
      busy = false;
      if (again || isPending()) refresh();
    }, PAUSE_MS);
  }
}

function replace(fresh) {
  const main = document.getElementById("main");
  const newer = fresh.getElementById("main");
  if (!newer || main.innerHTML === newer.innerHTML) return;
  if (isEdited(main)) {
    show("live", "Live: changes are shown when you leave the form");
    waits = true;
    return;
  }
  waits = false;
  const place = placeOf(document.activeElement);
  const open = Array.from(main.querySelectorAll("details[open][id]"), (each) => each.id);
  const scrolled = Array.from(main.querySelectorAll(".scroll"), (each) => each.scrollLeft);
  main.replaceChildren(...newer.childNodes);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  main.querySelectorAll(".scroll").forEach((each, at) => (each.scrollLeft = scrolled[at] || 0));
  if (place) main.querySelector(place)?.focus({ preventScroll: true });
  show("live", "Live");
}

function listen() {
  let seen = null;
  let heard = Date.now();
  const source = new EventSource(address);
  source.addEventListener("version", (event) => {
    heard = Date.now();
    if (seen !== null && seen !== event.data) refresh();
    if (seen === null || !state.classList.contains("is-live")) show("live", "Live");
    seen = event.data;
  });
  source.addEventListener("state", (event) => {
    heard = Date.now();
    if (event.data === "gone") {
      show("lost", "The table was dropped, or you may not read it any more");
      source.close();
    } else {
      seen = "";
      show("lost", "Not connected: the service does not answer");
    }
  });
  source.addEventListener("beat", () => (heard = Date.now()));
  source.onerror = () => {
    seen = seen === null ? null : "";
    show("lost", source.readyState === EventSource.CLOSED ? "Not live: load the page again" : "Not connected: the console does not answer");
  };
  setInterval(() => {
    if (Date.now() - heard > SILENT_MS) show("lost", "Not connected: nothing was heard for a while");
  }, 5000);
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
});

document.addEventListener("focusout", () => {
  if (waits) setTimeout(refresh, 0);
});

document.querySelector(".pages [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
if (address && state) listen();
if (isPending()) setTimeout(refresh, PAUSE_MS / 2); // on pages without events, too
