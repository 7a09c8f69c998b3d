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
