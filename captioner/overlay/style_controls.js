// The controls of a viewer that choose how maps are drawn, and the legend.
import { STYLES, scaleColors } from "./painting.js";
import { element } from "./stage.js";

// `onchange` is called with the changed parts of the style.
function createStyleControls(onchange) {
  const legend = element("canvas", { width: 256, height: 1, role: "img", "aria-label": "Scale, from none to most" });
  const ticks = element("div", { class: "cv-ticks" });
  const name = element("select", {}, ...STYLES.map((style) => element("option", { value: style }, style)));
  const strength = element("input", { type: "range", min: 0, max: 100 });
  const grid = element("input", { type: "checkbox" }), ownScale = element("input", { type: "checkbox" });
  name.addEventListener("change", () => onchange({ style: name.value }));
  strength.addEventListener("input", () => onchange({ opacity: strength.value / 100 }));
  grid.addEventListener("input", () => onchange({ grid: grid.checked }));
  ownScale.addEventListener("input", () => onchange({ perWord: ownScale.checked }));
  const settings = element("details", { class: "cv-settings" }, element("summary", {}, "Settings"),
    element("div", {}, element("label", {}, "Strength ", strength), element("label", {}, grid, " True grid"),
      element("label", {}, ownScale, " Own scale for each word")));
  const tick = (text, share) => {
    const mark = element("span", {}, text);
    mark.style.left = `${100 * share}%`;
    return mark;
  };

  return {
    elements: [element("label", { class: "cv-style" }, "Style ", name), settings, element("div", { class: "cv-legend" }, legend, ticks)],
    show(style) {
      name.value = style.style;
      strength.value = Math.round(100 * style.opacity);
      grid.checked = style.grid || style.style === "blocks";
      grid.disabled = style.style === "blocks";
      ownScale.checked = style.perWord;
    },
    // `kind` is "looked" or "relied": the two maps have different units.
    drawLegend(style, top, kind) {
      legend.getContext("2d").putImageData(new ImageData(scaleColors(style), 256), 0, 0);
      legend.hidden = style.style === "contour";
      if (style.style === "contour") ticks.replaceChildren(tick("Inside the thick line: half of it; thin lines: a quarter, three quarters", 0));
      else if (style.perWord) ticks.replaceChildren(tick("0", 0), tick("the word's highest", 1));
      else if (kind === "relied") ticks.replaceChildren(tick("no change", 0), tick(`${Math.exp(top).toFixed(1)} × less likely`, 1));
      else ticks.replaceChildren(tick("0", 0), ...(top < 12 ? [tick("1", 1 / top)] : []), tick(`${top.toFixed(1)}\u00a0× an even look`, 1));
    },
  };
}

export { createStyleControls };
