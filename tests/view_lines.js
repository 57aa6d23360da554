// What test_view_lines.py does with the page in a browser; the results go to an element that it reads.
const result = { dark: matchMedia("(prefers-color-scheme: dark)").matches };
const boxes = [...document.querySelectorAll("#sources details")];
const margins = box => [...box.querySelectorAll(".row.has")].map(row => {
  const parts = [...row.querySelectorAll(".margin > .tag, .margin > .soft, .margin button > span, .margin button > b")];
  return `${row.querySelector(".no").textContent}: ${parts.map(part => part.textContent).join(" ")}`;
});
const press = (node, key) => node.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const lines = () => [...document.querySelectorAll("#popup tr")].map(row => [...row.children].map(cell => cell.textContent).join("|"));
[result.train, result.helper] = boxes.map(margins);
const [first, second] = boxes[0].querySelectorAll(".margin button"), before = first.ariaExpanded;
first.focus();
result.label = first.ariaLabel; result.expanded = [first.ariaExpanded, before]; result.popup = lines();
second.focus(); result.tagged = document.querySelector("#popup").textContent;
press(document.body, "Escape"); result.closed = document.querySelector("#popup").hidden && second.ariaExpanded === "false";
const fold = boxes[1].querySelector(".fold"), folded = fold.textContent;
fold.click(); result.folded = [folded, String(fold.hidden), [...boxes[1].querySelectorAll(".row:not(.added)")].length];
result.went = [1, 1, 1, -1].map(way => { for (let k = 0; k < (way < 0 ? 2 : 1); k++) boxes[0].querySelectorAll(".tools button")[way < 0 ? 0 : 1].click(); return document.activeElement.closest(".row").querySelector(".no").textContent; });
press(document.body, "Escape");
result.unnamed = [...document.querySelectorAll("button, canvas, input, [tabindex='0'], [role=region]")].filter(node => !(node.ariaLabel || node.textContent.trim())).map(node => node.outerHTML);
const replays = [...document.querySelectorAll(".replay")];
result.replays = replays.map(box => box.querySelector(".verdict").textContent);
result.facts = Object.fromEntries([...replays[2].querySelectorAll("dt")].map(name => [name.textContent, name.nextSibling.textContent]));
result.strip = [...replays[1].querySelectorAll(".strip rect")].map(rect => [rect.getAttribute("x"), rect.getAttribute("width")]);
// Relative luminance and contrast as WCAG 2.1 defines them.
const light = name => { const hex = css(name).slice(1), full = hex.length === 3 ? [...hex].map(c => c + c).join("") : hex;
  const [r, g, b] = [0, 2, 4].map(k => parseInt(full.slice(k, k + 2), 16) / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
const contrast = (one, other) => { const [a, b] = [light(one), light(other)].sort((x, y) => y - x); return (a + .05) / (b + .05); };
const grounds = ["--back", "--card"], least = names => Math.min(...names.flatMap(name => grounds.map(ground => contrast(name, ground))));
result.contrast = { text: least(["--fore", "--soft", "--good", "--bad", "--unsure"]), lines: least(["--edge", "--mark", ...Array.from({ length: 8 }, (_, k) => `--c${k}`)]) };
result.contrast.text = Math.min(result.contrast.text, contrast("--good", "--added"), contrast("--fore", "--added"), contrast("--soft", "--added"));
const accuracy = charts.get("acc"); accuracy.canvas.focus();
result.cursor = [["ArrowRight"], ["ArrowRight"], ["End"]].map(keys => { keys.forEach(key => press(accuracy.canvas, key)); return accuracy.output.textContent; });
const bar = document.querySelector(".times .bar");
result.bar = [...bar.children].reduce((sum, piece) => sum + piece.getBoundingClientRect().width, 0) / bar.getBoundingClientRect().width;
result.wide = document.documentElement.scrollWidth <= window.innerWidth;
document.body.append(Object.assign(document.createElement("pre"), { id: "result", textContent: JSON.stringify(result) }));
