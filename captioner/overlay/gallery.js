"use strict";
// Shows only the cards whose caption and name contain every word of the query.
(() => {
  const cards = [...document.querySelectorAll(".card")].map((card) => [card, card.textContent.toLowerCase()]);
  const query = document.getElementById("query"), count = document.getElementById("count");
  document.getElementById("search").hidden = cards.length < 2;
  query.addEventListener("input", () => {
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    let matches = 0;
    for (const [card, text] of cards) {
      card.hidden = !words.every((word) => text.includes(word));
      if (!card.hidden) matches++;
    }
    count.textContent = words.length ? `${matches} of ${cards.length}` : "";
  });
})();
