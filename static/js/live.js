// Keeps a page true without a reload.
//
// The socket carries hints only ("topic changed"). On a hint the page fetches itself again as a fragment and morphs the
// regions marked data-live. Ages are counted here from data-at and the server's clock. When nothing is heard or a
// fetch fails the badge says so; nothing on the page pretends to be newer than it is.
import { ageText, durationText } from "./durations.js";

const STALE_AFTER_MS = 10000;
const LEAST_GAP_MS = 1000;
const BACK_OFF_MS = [500, 1000, 2000, 4000, 8000, 15000];

const state = {
  socket: null, tries: 0, server: "", seq: -1,
  heardAt: performance.now(),      // last message of the socket
  confirmedAt: performance.now(),  // last moment at which the page was known to show the newest state
  fetchedAt: performance.now(),
  clockOffset: 0, fetching: false, fetchFailed: false, again: false, timer: 0,
};

const topicsOfPage = new Set((document.body.dataset.topics || "").split(" ").filter(Boolean));
const badge = document.getElementById("live-badge");

function serverNow() { return Date.now() / 1000 + state.clockOffset; }

function setClock(now) {
  const offset = now - Date.now() / 1000;
  // The smallest delay seen tells the true offset best; drift is followed slowly.
  state.clockOffset = state.seq < 0 ? offset : Math.max(offset, state.clockOffset - 0.01);
}

// ---- ages and countdowns -------------------------------------------------------------------------------------------
function countAges() {
  for (const node of document.querySelectorAll("time[data-at]")) {
    const text = ageText(serverNow() - Number(node.dataset.at));
    if (node.textContent !== text) node.textContent = text;
  }
  for (const node of document.querySelectorAll("time[data-until]")) {
    const left = Number(node.dataset.until) - serverNow();
    const text = left > 0 ? durationText(left) : "now";
    if (node.textContent !== text) node.textContent = text;
  }
}

// ---- the badge -----------------------------------------------------------------------------------------------------
function showBadge() {
  if (!badge) return;
  const silentMs = performance.now() - state.heardAt;
  const stale = silentMs > STALE_AFTER_MS || state.fetchFailed;
  const seconds = (performance.now() - state.confirmedAt) / 1000;
  badge.hidden = false;
  badge.classList.toggle("stale", stale);
  document.documentElement.classList.toggle("is-stale", stale);
  const word = badge.querySelector("[data-word]");
  const text = stale ? `stale, last update ${ageText(seconds)}` : `live, ${ageText(seconds)}`;
  if (word.textContent !== text) word.textContent = text;
  const spoken = document.getElementById("live-spoken");
  const announcement = stale ? "This page is stale: the server is not heard." : "";
  if (spoken && spoken.textContent !== announcement) spoken.textContent = announcement;
}

// ---- morphing ------------------------------------------------------------------------------------------------------
const callbacks = {
  beforeNodeMorphed: (old) => !(old.nodeType === 1 && old.hasAttribute("data-keep")),
  beforeNodeRemoved: (old) => !(old.nodeType === 1 && old.hasAttribute("data-keep-always")),
  beforeAttributeUpdated: (name, node) => !(name === "open" && node.tagName === "DETAILS"),
};

export function swap(html, mark = "data-live") {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  for (const region of document.querySelectorAll(`[${mark}]`)) {
    const next = fresh.getElementById(region.id);
    if (next) window.Idiomorph.morph(region, next, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks });
  }
  countAges();
}

async function refetch() {
  if (state.fetching) { state.again = true; return; }
  state.fetching = true;
  try {
    const answer = await fetch(document.body.dataset.refresh, {
      headers: { "X-Fragment": "1" }, credentials: "same-origin", cache: "no-store", redirect: "manual",
      signal: AbortSignal.timeout(8000),
    });
    if (answer.type === "opaqueredirect" || answer.status === 403) { window.location.reload(); return; }
    if (!answer.ok && answer.status !== 404) throw new Error(`status ${answer.status}`);
    swap(await answer.text());
    state.fetchFailed = false;
    state.confirmedAt = performance.now();
  } catch {
    state.fetchFailed = true;
    window.setTimeout(wantRefetch, 3000);
  } finally {
    state.fetching = false;
    state.fetchedAt = performance.now();
    showBadge();
    if (state.again) { state.again = false; wantRefetch(); }
  }
}

function wantRefetch() {
  if (state.timer) return;
  const wait = Math.max(0, LEAST_GAP_MS - (performance.now() - state.fetchedAt));
  state.timer = window.setTimeout(() => { state.timer = 0; refetch(); }, wait);
}

// ---- the socket ----------------------------------------------------------------------------------------------------
function onMessage(event) {
  const message = JSON.parse(event.data);
  const first = state.server === "";
  const gap = !first && (message.server !== state.server || message.seq !== state.seq + 1);
  // The page was made before the socket was there, so the first message asks for a look as well.
  const concerned = first || gap || message.topics.some((topic) => topic === "*" || topicsOfPage.has(topic));
  setClock(message.now);
  state.server = message.server;
  state.seq = message.seq;
  state.heardAt = performance.now();
  if (concerned) wantRefetch();
  else if (!state.fetchFailed && !state.fetching && !state.timer) state.confirmedAt = performance.now();
  showBadge();
}

function connect() {
  const scheme = window.location.protocol === "https:" ? "wss" : "ws";
  const socket = new WebSocket(`${scheme}://${window.location.host}/ws/live/`);
  state.socket = socket;
  socket.addEventListener("open", () => { if (state.tries > 0) wantRefetch(); state.tries = 0; });
  socket.addEventListener("message", onMessage);
  socket.addEventListener("close", (event) => {
    if (event.code === 4401) { window.location.reload(); return; }
    const wait = BACK_OFF_MS[Math.min(state.tries, BACK_OFF_MS.length - 1)] * (0.8 + Math.random() * 0.4);
    state.tries += 1;
    window.setTimeout(connect, wait);
  });
}

if (badge) {
  if (badge.dataset.now) setClock(Number(badge.dataset.now));
  connect();
  window.setInterval(() => { countAges(); showBadge(); }, 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) wantRefetch(); });
}
