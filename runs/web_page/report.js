// Opens the folded section that an address points at, and all of them for printing.
const openTarget = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) { target.open = true; target.scrollIntoView(); }
};
addEventListener("hashchange", openTarget);
addEventListener("DOMContentLoaded", openTarget);
for (const link of document.querySelectorAll("a[href^='#']")) link.addEventListener("click", () => setTimeout(openTarget));
addEventListener("beforeprint", () => {
  for (const section of document.querySelectorAll("details:not(.copied):not([open])")) { section.open = true; section.dataset.printed = "yes"; }
});
addEventListener("afterprint", () => {
  for (const section of document.querySelectorAll("details[data-printed]")) { section.open = false; delete section.dataset.printed; }
});

for (const shown of document.querySelectorAll("[data-copied]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(shown.textContent);
    } catch {
      getSelection().selectAllChildren(shown);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  shown.before(button);
}

// Entries of a figure's legend hide and show their parts.
for (const svg of document.querySelectorAll("svg.figure")) {
  for (const text of svg.querySelectorAll("[data-entry] text")) {
    const number = text.parentElement.dataset.entry;
    const parts = svg.querySelectorAll(`[data-series="${number}"]`);
    if (!parts.length) continue;
    const entry = text.parentElement;
    const toggle = () => {
      const hides = entry.getAttribute("aria-pressed") === "true";
      entry.setAttribute("aria-pressed", !hides);
      for (const part of parts) part.style.display = hides ? "none" : "";
      for (const part of svg.querySelectorAll(`[data-entry="${number}"]`)) part.style.opacity = hides ? 0.4 : "";
    };
    svg.setAttribute("role", "group");
    entry.setAttribute("role", "button");
    entry.setAttribute("aria-pressed", "true");
    entry.setAttribute("tabindex", "0");
    entry.addEventListener("click", toggle);
    entry.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle();
    });
  }
}
