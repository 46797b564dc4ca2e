(function () {
  "use strict";
  var root = document.documentElement, button = document.getElementById("theme");
  function remembered(value) {
    // Some browsers refuse storage to files opened from disk; the page works without it.
    try {
      if (value) localStorage.setItem("vesalius-theme", value);
      return localStorage.getItem("vesalius-theme");
    } catch (refused) { return null; }
  }
  function current() {
    return root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  }
  function label() {
    var other = current() === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", "Switch to " + other + " colours");
  }
  var kept = remembered();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  label();
  button.hidden = false;
  button.addEventListener("click", function () {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    remembered(root.dataset.theme);
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
})();
