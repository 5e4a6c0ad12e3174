"use strict";
// The page reads without this: it makes the command copyable and the table of trials shorter.
(() => {
  document.documentElement.classList.add("scripted");

  for (const button of document.querySelectorAll("button[data-copy]")) {
    const text = document.getElementById(button.dataset.copy);
    button.addEventListener("click", async () => {
      const selection = getSelection();
      selection.selectAllChildren(text);
      try {
        await navigator.clipboard.writeText(text.textContent);
        selection.removeAllRanges();
        button.textContent = "Copied";
      } catch {
        button.textContent = "Selected"; // pages opened from a file may not write to the clipboard
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  const filters = document.querySelectorAll("button[data-show]");
  for (const button of filters) {
    button.addEventListener("click", () => {
      const kinds = button.dataset.show.split(" ");
      for (const other of filters) other.setAttribute("aria-pressed", String(other === button));
      for (const row of document.querySelectorAll(".trials tbody tr")) {
        row.hidden = button.dataset.show !== "" && !kinds.includes(row.className);
      }
    });
  }
})();
