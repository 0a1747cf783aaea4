// What every page needs besides live data: the menu of small screens, the theme switch, sending a form once.
const ORDER = ["auto", "light", "dark"];
const NAMES = { auto: "as the system", light: "light", dark: "dark" };

function showTheme(button) {
  const choice = document.documentElement.getAttribute("data-theme-choice") || "auto";
  button.setAttribute("aria-label", `Colours: ${NAMES[choice]}. Change`);
  button.title = `Colours: ${NAMES[choice]}`;
}

function setUpTheme() {
  const button = document.getElementById("theme-switch");
  if (!button) return;
  button.hidden = false;
  showTheme(button);
  button.addEventListener("click", () => {
    const choice = document.documentElement.getAttribute("data-theme-choice") || "auto";
    window.setTheme(ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length]);
    showTheme(button);
  });
}

function setUpMenu() {
  const button = document.getElementById("menu-switch");
  const menu = document.getElementById("menu");
  if (!button || !menu) return;
  button.addEventListener("click", () => {
    const open = menu.classList.toggle("open");
    button.setAttribute("aria-expanded", String(open));
  });
}

function sendFormsOnce() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "yes";
    window.setTimeout(() => delete form.dataset.sent, 5000);
  });
}

function copyButtons() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    navigator.clipboard?.writeText(document.getElementById(button.dataset.copy).textContent.trim())
      .then(() => { button.textContent = "Copied"; });
  });
}

setUpTheme();
setUpMenu();
sendFormsOnce();
copyButtons();
