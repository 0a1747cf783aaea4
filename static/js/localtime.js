// Times are UTC everywhere; where the viewer's own zone differs, its time stands beside them.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function besideTimes() {
  for (const node of document.querySelectorAll("time[data-local]")) {
    const at = new Date(Number(node.dataset.local) * 1000);
    const own = node.nextElementSibling;
    const text = at.getTimezoneOffset() === 0 ? "" : ` ${format.format(at)} ${zone}`;
    if (own && own.classList.contains("local-time")) {
      if (own.textContent !== text) own.textContent = text;
    } else if (text) {
      const told = document.createElement("span");
      told.className = "local-time dim small";
      told.textContent = text;
      node.after(told);
    }
  }
}

function besideFields() {
  for (const input of document.querySelectorAll("[data-utc-form] input[type=datetime-local]")) {
    const told = document.createElement("output");
    told.className = "local-time dim small";
    told.htmlFor = input.id;
    input.after(told);
    const show = () => {
      const at = new Date(`${input.value}Z`);
      const known = input.value && !Number.isNaN(at.getTime()) && at.getTimezoneOffset() !== 0;
      told.textContent = known ? `${format.format(at)} ${zone}` : "";
    };
    input.addEventListener("input", show);
    show();
  }
}

besideTimes();
besideFields();
new MutationObserver(besideTimes).observe(document.getElementById("main"), { childList: true, subtree: true });
