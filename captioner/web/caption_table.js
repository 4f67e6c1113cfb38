// Captions as a CSV file with the columns of `captioner caption --format csv --escape-formulas`.

const COLUMNS = ["image", "rank", "caption", "sentence", "confidence", "score", "log_probability", "backend"];
const FORMULA = /^'*[=+\-@\t\r]/; // what a spreadsheet would compute

function cell(value) {
  let text = String(value ?? "");
  if (typeof value === "string" && FORMULA.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// `rows` have the values of the columns; a caption without a rank is the best one.
function captionTable(rows) {
  return [COLUMNS, ...rows.map((row) => COLUMNS.map((name) => row[name] ?? (name === "rank" ? 1 : "")))]
    .map((row) => `${row.map(cell).join(",")}\n`).join("");
}

export { captionTable };
