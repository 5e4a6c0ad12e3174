"use strict";
// The page reads without this: it makes the command copyable and the table of trials shorter. What is listened to is
// the document, as a live page's contents are replaced.
(() => {
  document.documentElement.classList.add("scripted");

  const copy = async (button) => {
    const text = document.getElementById(button.dataset.copy);
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
  };

  const show = (button) => {
    const kinds = button.dataset.show.split(" ");
    for (const other of document.querySelectorAll("button[data-show]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
    for (const row of document.querySelectorAll(".trials tbody tr")) {
      row.hidden = button.dataset.show !== "" && !kinds.includes(row.className);
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.copy) copy(button);
    if (button?.dataset.show !== undefined) show(button);
  });
})();
