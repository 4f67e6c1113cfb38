// Captions of captioner.js as data for the viewer, as captioner.overlay.view_of makes them in Python.

// The caption and its alternatives. Words of a hard-attention model show a cell, the likeliest one if none was selected.
function captionViews(caption, { rows, cols, attention }) {
  return [caption, ...caption.alternatives].map(({ score, confidence, words }) => ({
    rows, cols, score, ...(confidence === null ? {} : { confidence }),
    words: words.map(({ text, probability, alpha, gate, cell, content, alternatives }) => ({
      word: text, probability, map: [...alpha], gate, content,
      ...(alternatives ? { alternatives } : {}),
      ...(attention === "hard" ? { cell: cell ?? likeliest(alpha, cols) } : {}),
    })),
  }));
}

function likeliest(alpha, cols) {
  const at = alpha.indexOf(Math.max(...alpha));
  return [Math.floor(at / cols), at % cols];
}

export { captionViews };
