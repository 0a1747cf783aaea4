// Answers while values change. Each change is a new question; an answer to an older one is dropped, and whatever cannot
// be answered leaves the last answer in place, marked as not current. Nothing that was typed is ever replaced.
import { swap } from "./live.js";
import { drawFigures, saveSvg } from "./figures.js";

const NEXT_MS = 40, PATIENCE_MS = 250, SLOW_MS = 400, LIMIT_MS = 8000, QUIET_MS = 30000;
const BACK_OFF_MS = [1000, 2000, 4000, 8000];
const OFFLINE = "Not current: the server does not answer. What you typed is kept; it is asked again.";
const WRONG = "Not current: it is for the last values that can be planned with.";

let asked = 0;          // number of the newest question
let answered = 0;       // number of the newest question that has an answer
let tries = 0;
let waiting = 0;
let running = null;
let askedAt = 0;        // when the question that is on its way was sent; 0 for none
let later = 0;          // the newest question, while an older one is on its way
let painting = 0;
let historyOf = "";     // the field whose changes are one entry of the browser's history
let touchedAt = 0;
let notice = "";        // what a press of the button came to; it stays until the next change

const form = () => document.getElementById("planner-form");
const pathname = new URL(form().action).pathname;

function fieldOf(control) { return control.name.replace(/_(from|unit|was|shown)$/, ""); }

// ---- what is said about the answer ------------------------------------------------------------------------------
function tell(text) {
  const state = document.getElementById("answer-state");
  if (state.textContent !== text) state.textContent = text;
}

function markOutdated(text) {
  tell(text || notice);
  const outdated = text !== "";
  for (const id of ["answer", "verdict-bar"]) document.getElementById(id).classList.toggle("outdated", outdated);
  document.querySelector(".plan-page").classList.toggle("evidence-outdated", outdated);
}

// ---- asking -----------------------------------------------------------------------------------------------------
async function fetchPage(address, limit = LIMIT_MS) {
  const answer = await fetch(address, {
    headers: { "X-Fragment": "planned", "X-Open": document.querySelector("#why-details[open]") ? "why" : "" }, credentials: "same-origin", cache: "no-store", redirect: "manual",
    signal: AbortSignal.any([running.signal, AbortSignal.timeout(limit)]),
  });
  if (answer.type === "opaqueredirect" || answer.status === 403) { window.location.reload(); throw new Error("signed out"); }
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.text();
}

async function ask(address, done, chosen = "") {
  window.clearTimeout(waiting);
  window.clearTimeout(later);
  later = 0;
  running?.abort();
  const own = running = new AbortController();
  const mine = ++asked;
  askedAt = performance.now();
  const slow = window.setTimeout(() => tell("Computing ..."), SLOW_MS);
  try {
    const html = await fetchPage(address());
    if (mine !== asked) return;
    tries = 0;
    if (chosen) restore(html, (control) => fieldOf(control) === chosen);
    show(html);
    answered = mine;
    done();
  } catch (error) {
    if (mine !== asked) return;
    markOutdated(OFFLINE);
    const wait = BACK_OFF_MS[Math.min(tries, BACK_OFF_MS.length - 1)];
    tries += 1;
    waiting = window.setTimeout(() => { if (mine === asked) ask(address, done, chosen); }, wait);
  } finally {
    window.clearTimeout(slow);
    if (own === running) askedAt = 0;
    if (own === running && later) { window.clearTimeout(later); later = window.setTimeout(askNewest, NEXT_MS); }
  }
}

// One question at a time, the newest wins: the first key is asked about at once, the next when that is answered, or
// when it takes too long.
let newest = null;
function askNewest() {
  window.clearTimeout(later);
  later = 0;
  if (newest) newest();
}

function askSoon(question) {
  newest = () => { newest = null; question(); };
  const left = askedAt ? PATIENCE_MS - (performance.now() - askedAt) : 0;
  if (left <= 0) { askNewest(); return; }
  if (!later) later = window.setTimeout(askNewest, left);
}

// The answer is painted first, the evidence for it in a later frame.
function show(html) {
  swap(html, "data-planned");
  const wrong = document.querySelector("#planner-form .quantity.wrong, #planner-form > .field-error") !== null;
  if (wrong && !document.querySelector("#answer.none")) { markOutdated(WRONG); return; }
  swap(html, "data-answered");
  markOutdated("");
  const mine = ++painting;
  document.querySelector(".plan-page").setAttribute("aria-busy", "true");
  const paint = () => {
    if (mine !== painting) return;
    swap(html, "data-evidence");
    drawFigures();
    document.querySelector(".plan-page").removeAttribute("aria-busy");
  };
  if (document.hidden) paint();
  else window.requestAnimationFrame(() => window.setTimeout(paint));
}

// `chosen`: a field whose value comes from elsewhere now, so that it may be replaced although it has the focus.
function recompute(field, chosen = "") {
  ask(() => `${pathname}?${new URLSearchParams(new FormData(form()))}`, () => remember(field), chosen);
}

// ---- the address ------------------------------------------------------------------------------------------------
function remember(field) {
  const address = `${pathname}?${form().dataset.address}`;
  const carried = document.getElementById("automatic-address");
  if (carried) carried.value = form().dataset.address;
  if (address === window.location.pathname + window.location.search) return;
  if (field && field !== historyOf) window.history.pushState(null, "", address);
  else window.history.replaceState(null, "", address);
  historyOf = field || historyOf;
}

function restore(html, which = () => true) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  for (const control of form().elements) {
    if (!control.name || !which(control)) continue;
    const known = control.id && fresh.getElementById(control.id);
    if (known && control.value !== known.value) control.value = known.value;
  }
}

window.addEventListener("popstate", () => {
  historyOf = "";
  const address = window.location.pathname + window.location.search;
  running?.abort();
  running = new AbortController();
  const mine = ++asked;
  fetchPage(address).then((html) => {
    if (mine !== asked) return;
    restore(html);
    show(html);
    answered = mine;
  }).catch(() => { if (mine === asked) window.location.reload(); });
});

// ---- what a person does -----------------------------------------------------------------------------------------
function markEntered(control) {
  const from = document.getElementById(`from-${control.name}`);
  if (from) from.value = "entered";
}

function onTyping(event) {
  const control = event.target;
  if (control.type !== "text" || !control.closest("#planner-form")) return;
  markEntered(control);
  touchedAt = performance.now();
  notice = "";
  asked += 1;  // what is on its way is about older values
  window.clearTimeout(waiting);
  askSoon(() => recompute(control.name));
}

function onChoice(event) {
  const control = event.target;
  if (control.tagName !== "SELECT" || !control.closest("#planner-form")) return;
  touchedAt = performance.now();
  notice = "";
  if (control.name === "job") { window.location.href = `${pathname}?${new URLSearchParams({ job: control.value })}`; return; }
  if (control.id === "id_mtbf_unit") document.getElementById("shown-mtbf").value = document.getElementById("id_mtbf").value;  // it belongs to the unit of before
  historyOf = "";  // each choice can be undone by itself
  if (control.classList.contains("from") && control.value === "entered") document.getElementById(`id_${fieldOf(control)}`).select();
  recompute(fieldOf(control), control.value === "entered" ? "" : fieldOf(control));
}

async function simulate(link) {
  if (link.getAttribute("aria-disabled") === "true") return;
  const mine = asked, box = document.getElementById("simulation");
  link.setAttribute("aria-disabled", "true");
  box.textContent = "Simulating faults one by one ...";
  try {
    const answer = await fetch(link.href, { headers: { "X-Fragment": "1" }, credentials: "same-origin", signal: AbortSignal.timeout(60000) });
    if (!answer.ok && answer.status !== 409) throw new Error(`status ${answer.status}`);
    const html = await answer.text();
    if (mine === asked) show(html);  // with the answer that was simulated: what is measured may have moved on
  } catch {
    if (mine === asked) box.textContent = "The simulation did not end: the server does not answer. Try again.";
  } finally {
    link.removeAttribute("aria-disabled");
  }
}

function onClick(event) {
  const link = event.target.closest("#simulate");
  if (link) { event.preventDefault(); simulate(link); }
  const svg = event.target.closest("[data-svg]");
  if (svg) saveSvg(svg.dataset.svg);
  for (const help of document.querySelectorAll(".help[open]")) if (!help.contains(event.target)) help.open = false;
}

function onSubmit(event) {
  if (event.target.id === "planner-form") { event.preventDefault(); recompute(historyOf); return; }
  if (!event.target.matches(".order")) return;
  const { seen } = document.getElementById("plan-now").dataset;
  if (seen) event.target.elements.seen.value = seen;
  if (asked === answered && !document.querySelector("#answer.outdated")) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  notice = "Nothing was applied: the values have changed since. Look at the answer for them, then apply it.";
  tell(notice);
}

document.addEventListener("input", onTyping);
document.addEventListener("change", onChoice);
document.addEventListener("click", onClick);
document.addEventListener("submit", onSubmit, true);
document.addEventListener("toggle", ({ target }) => { if (target.id === "why-details" && target.open) recompute(""); }, true);
document.addEventListener("focusout", ({ target, relatedTarget }) => {
  const help = target.closest(".help[open]");
  if (help && relatedTarget && !help.contains(relatedTarget)) help.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const help of document.querySelectorAll(".help[open]")) { help.open = false; help.querySelector("summary").focus(); }
});

// What is measured moves on: an answer that nobody works with follows it.
window.setInterval(() => {
  const idle = performance.now() - touchedAt > QUIET_MS && asked === answered && !document.hidden;
  const busy = document.querySelector("#simulation > *, #answer.outdated, #apply:focus, #apply:hover");
  if (idle && !busy) recompute("");
}, QUIET_MS);

new IntersectionObserver(([entry]) => {
  document.getElementById("verdict-bar").classList.toggle("shown", !entry.isIntersecting && entry.boundingClientRect.top < 0);
}).observe(document.getElementById("answer"));

document.querySelector(".plan-page").classList.add("answers-itself");
for (const table of document.querySelectorAll("[id^=table-]")) table.open = false;
drawFigures();

// What was typed before this script was there counts as well.
const early = [...form().elements].filter((control) => control.type === "text" && control.value !== control.defaultValue);
early.forEach(markEntered);
if (early.length > 0) recompute(early[0].name);
