// Recomputes the plan while values change, and draws the figure in the colours of the theme.
import { swap } from "./live.js";

const form = document.getElementById("planner-form");
const holder = document.getElementById("figure");
let waiting = 0;
let running = null;

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

let drawn = "";

function themed(figure) {
  const text = colour("--sk-dim"), grid = colour("--sk-line");
  for (const trace of figure.data) {
    if (trace.mode === "lines") trace.line = { color: colour("--sk-accent"), width: 2.5 };
    const tone = trace.name === "best" ? "--sk-ok" : "--sk-warn";
    if (trace.mode !== "lines") Object.assign(trace, { marker: { color: colour(tone), size: 11 }, textfont: { color: colour("--sk-text") } });
  }
  for (const shape of figure.layout.shapes || []) {
    if (shape.type === "rect") Object.assign(shape, { fillcolor: colour("--sk-ok"), opacity: 0.12 });
    else shape.line = { color: colour("--sk-bad"), dash: "dash", width: 1.5 };
  }
  const axis = { gridcolor: grid, zeroline: false, linecolor: grid, tickfont: { color: text } };
  Object.assign(figure.layout.xaxis, axis);
  Object.assign(figure.layout.yaxis, axis);
  Object.assign(figure.layout, { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: text, family: "inherit" } });
  return figure;
}

function draw() {
  const text = document.getElementById("figure-data")?.textContent;
  const key = text + document.documentElement.dataset.bsTheme;
  if (!text || !window.Plotly || key === drawn) return;
  drawn = key;
  const { data, layout } = themed(JSON.parse(text));
  window.Plotly.react(holder, data, layout, { displayModeBar: false, responsive: true });
}

async function recompute() {
  const address = `${window.location.pathname}?${new URLSearchParams(new FormData(form))}`;
  running?.abort();
  running = new AbortController();
  try {
    const answer = await fetch(address, { headers: { "X-Fragment": "1" }, credentials: "same-origin", signal: running.signal });
    if (!answer.ok) return;
    window.history.replaceState(null, "", address);
    swap(await answer.text(), "data-planned");
    draw();
  } catch (error) {
    if (error.name !== "AbortError") form.requestSubmit();
  }
}

form.addEventListener("input", (event) => {
  if (event.target.name === "job") return;
  window.clearTimeout(waiting);
  waiting = window.setTimeout(recompute, 200);
});
form.addEventListener("change", (event) => {
  if (event.target.name !== "job") return;
  window.location.href = `${window.location.pathname}?${new URLSearchParams({ job: event.target.value, target: form.elements.target.value })}`;
});
document.addEventListener("theme", draw);
draw();
