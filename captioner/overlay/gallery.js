"use strict";
// Hides the cards whose captions and names lack a word of what is searched for.
(() => {
  const cards = [...document.querySelectorAll(".card")].map((card) => [card, card.textContent.toLowerCase()]);
  const wanted = document.getElementById("wanted"), found = document.getElementById("found");
  document.getElementById("search").hidden = cards.length < 2;
  wanted.addEventListener("input", () => {
    const parts = wanted.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const [card, text] of cards) {
      card.hidden = !parts.every((part) => text.includes(part));
      if (!card.hidden) left++;
    }
    found.textContent = parts.length ? `${left} of ${cards.length}` : "";
  });
})();
