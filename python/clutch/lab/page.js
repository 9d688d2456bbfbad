"use strict";

// Figures of what is pointed at: of a heat map the cell, of lines the nearest point.
const REACH_PIXELS = 40;
const tip = document.getElementById("tip");
let near = null;

function distance(mark, x, y) {
  const box = mark.getBoundingClientRect();
  const outside = Math.hypot(Math.max(box.left - x, x - box.right, 0), Math.max(box.top - y, y - box.bottom, 0));
  // Of two that hold the pointer, the one whose middle is nearer.
  return outside + Math.hypot((box.left + box.right) / 2 - x, (box.top + box.bottom) / 2 - y) / 1000;
}

function leave() {
  near?.classList.remove("near");
  near = null;
  tip.hidden = true;
}

function point(event) {
  const drawing = event.target.closest?.(".drawing svg");
  let found = null, least = REACH_PIXELS;
  for (const mark of drawing?.querySelectorAll("[data-tip]") ?? []) {
    const far = distance(mark, event.clientX, event.clientY);
    if (far < least) [found, least] = [mark, far];
  }
  if (!found) return leave();
  if (found !== near) {
    near?.classList.remove("near");
    near = found;
    near.classList.add("near");
    tip.textContent = near.dataset.tip;
    tip.hidden = false;
  }
  const mark = near.getBoundingClientRect();
  const left = Math.min(mark.right + 10, document.documentElement.clientWidth - tip.offsetWidth - 8);
  const above = mark.top - tip.offsetHeight - 8;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above > 8 ? above : mark.bottom + 8}px`;
}

for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, point);
document.addEventListener("pointercancel", leave);
document.addEventListener("scroll", leave, { capture: true, passive: true });
document.documentElement.addEventListener("pointerleave", leave);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") leave(); });

// The data, as a file.
const button = document.getElementById("save");
if (button) {
  button.hidden = false;
  button.addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([document.getElementById("data").textContent], { type: "application/json" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = "report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  });
}
