// Light or dark before the first paint: the stored choice, else what the system says.
(() => {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = () => {
    const choice = stored() || "auto";
    const dark = choice === "dark" || (choice === "auto" && system.matches);
    root.setAttribute("data-bs-theme", dark ? "dark" : "light");
    root.setAttribute("data-theme-choice", choice);
    document.dispatchEvent(new CustomEvent("theme", { detail: dark ? "dark" : "light" }));
  };
  root.classList.replace("no-js", "js");
  apply();
  system.addEventListener("change", apply);
  window.setTheme = (choice) => {
    try { localStorage.setItem("theme", choice); } catch { /* private window: the choice lasts for this page */ }
    apply();
  };
})();
