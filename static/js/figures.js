// Draws the figures of a page in the colours of the theme: those in view at once, the others when there is time.
const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, showTips: false };
const WIDE = 1000, HIGH = 520, TICK_PX = 62;
const styles = getComputedStyle(document.documentElement);
const inView = new Set();
let figures = {};
let drawn = {};

function colour(name, alpha = 1) {
  const value = styles.getPropertyValue(name).trim();
  const parts = /^#(..)(..)(..)$/.exec(value);
  if (alpha === 1 || !parts) return value;
  return `rgba(${parts.slice(1).map((part) => parseInt(part, 16)).join(", ")}, ${alpha})`;
}

function themedTrace(trace) {
  const { tone, soft } = trace.meta || {};
  const own = { ...trace };
  if (!tone) return own;
  if (trace.line) own.line = { ...trace.line, color: colour(tone, soft && trace.line.width === 0 ? 0 : 1) };
  if (trace.marker) own.marker = { ...trace.marker, color: colour(tone), line: { color: colour("--sk-card"), width: 1.5 } };
  if (trace.fill) own.fillcolor = colour(tone, soft ? 0.16 : 0.85);
  if (trace.fillpattern) own.fillpattern = { ...trace.fillpattern, fgcolor: colour("--sk-card", 0.35), fillmode: "overlay" };
  own.textfont = { color: colour("--sk-text") };
  return own;
}

// Leaves out ticks that would lie on each other.
function thinned({ tickvals, ticktext }, width) {
  const every = tickvals ? Math.ceil(tickvals.length / Math.max(2, Math.floor(width / TICK_PX))) : 1;
  return every > 1 ? { tickvals: tickvals.filter((_, at) => at % every === 0), ticktext: ticktext.filter((_, at) => at % every === 0) } : {};
}

function themedAxis(axis, width) {
  const line = colour("--sk-line"), dim = colour("--sk-dim");
  return { ...axis, ...thinned(axis, width), gridcolor: line, linecolor: line, tickcolor: line, zeroline: false, tickfont: { color: dim }, title: { ...axis.title, font: { color: dim } } };
}

function themed({ data, layout }, width) {
  const dim = colour("--sk-dim"), text = colour("--sk-text");
  return {
    data: data.map(themedTrace),
    layout: {
      ...layout,
      xaxis: themedAxis(layout.xaxis, width - 100), yaxis: themedAxis(layout.yaxis, Infinity),
      shapes: (layout.shapes || []).map((shape) => shape.type === "rect"
        ? { ...shape, fillcolor: colour(shape.name, 0.13), line: { width: 0 } }
        : { ...shape, line: { ...shape.line, color: colour(shape.name) } }),
      annotations: (layout.annotations || []).map((note) => ({ ...note, font: { size: 12, color: colour(note.name) }, bgcolor: colour("--sk-card", 0.85), borderpad: 2 })),
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: dim, size: 12, family: getComputedStyle(document.body).fontFamily },
      hoverlabel: { bgcolor: colour("--sk-card"), bordercolor: dim, font: { color: text } },
      legend: { ...layout.legend, font: { color: text }, bgcolor: "rgba(0,0,0,0)" },
    },
  };
}

function draw(holder) {
  const name = holder.dataset.figure;
  if (!figures[name] || !window.Plotly) return;
  const key = `${figures[name].key}${document.documentElement.dataset.bsTheme}`;
  if (drawn[name] === key) return;
  drawn[name] = key;
  const { data, layout } = themed(figures[name], holder.clientWidth);
  window.Plotly.react(holder, data, layout, CONFIG);
}

const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) { inView.add(target); draw(target); } else inView.delete(target);
  }
}, { rootMargin: "100px" });

function when(idle) { (window.requestIdleCallback || window.setTimeout)(idle); }

// Reads the figures of the page anew and draws what changed.
export function drawFigures() {
  const text = document.getElementById("figure-data")?.textContent;
  const fresh = text ? JSON.parse(text) : {};
  for (const [name, figure] of Object.entries(fresh)) figure.key = JSON.stringify(figure);
  figures = fresh;
  for (const holder of document.querySelectorAll("[data-figure]")) {
    watcher.observe(holder);
    if (inView.has(holder)) draw(holder);
    else when(() => draw(holder));
  }
  for (const button of document.querySelectorAll("[data-svg]")) button.hidden = !window.Plotly;
}

export async function saveSvg(name) {
  const { data, layout } = themed(figures[name], WIDE);
  const title = document.getElementById(`title-${name}`).textContent;
  const whole = {
    ...layout, width: WIDE, height: HIGH, autosize: false, paper_bgcolor: colour("--sk-card"), plot_bgcolor: colour("--sk-card"),
    title: { text: title, font: { size: 17, color: colour("--sk-text") }, x: 0.02, xanchor: "left" }, margin: { ...layout.margin, t: 60 },
  };
  const address = await window.Plotly.toImage({ data, layout: whole }, { format: "svg", width: WIDE, height: HIGH });
  const link = document.createElement("a");
  link.href = address;
  link.download = `planner-${name}.svg`;
  link.click();
}

document.addEventListener("theme", drawFigures);
