/** Captions as data for the viewer. */
import type { Caption, Captioner } from "./captioner.js";
import type { CaptionView } from "./viewer.js";

/** The caption and its alternatives, as `captions` of `createViewer`. `model` is `captioner.model`. */
export function captionViews(
  caption: Caption & { alternatives: Caption[] },
  model: Pick<Captioner["model"], "rows" | "cols" | "attention">,
): CaptionView[];
