// What test_view.py does with the page of `florhook view` in a browser; the results go to an element that it reads.
const result = {};
const chart = charts.get("loss"), box = () => chart.canvas.getBoundingClientRect();
const move = (share, kind = "pointermove") => chart.canvas.dispatchEvent(new PointerEvent(kind, {
  clientX: box().left + PAD.left + share * (box().width - PAD.left - PAD.right), clientY: box().top + 50, pointerId: 1 }));
const ink = () => chart.canvas.getContext("2d").getImageData(0, 0, chart.canvas.width, chart.canvas.height).data
  .reduce((sum, value, index) => sum + (index % 4 === 3 && value > 0), 0);
chart.canvas.setPointerCapture = () => {};
result.title = document.title;
result.names = [...charts.keys()];
result.rows = document.querySelectorAll("#runs tr").length;
result.last = chart.output.textContent;
result.ink = ink();
move(0.5); result.hover = chart.output.textContent;
const toggles = document.querySelectorAll("#runs button");
toggles[1].click(); move(0.25); result.one = chart.output.textContent; result.extent = chart.extent();
toggles[0].click(); chart.draw(); result.none = chart.output.textContent;
toggles[0].click(); toggles[1].click();
move(0.25, "pointerdown"); move(0.75); move(0.75, "pointerup"); result.zoomed = chart.visible().map(v => Math.round(v * 10) / 10);
chart.canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" })); result.reset = chart.visible();
chart.canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "+" })); result.closer = chart.visible().map(v => Math.round(v * 10) / 10);
document.getElementById("reset").click(); result.all = chart.visible();
document.getElementById("time").click(); result.timed = chart.visible()[1] < 4 && chart.visible()[1] > 0;
const filter = document.getElementById("filter"); filter.value = "tw"; filter.dispatchEvent(new Event("input"));
result.filtered = [...charts.values()].filter(each => !each.figure.hidden).map(each => each.name);
result.wide = document.documentElement.scrollWidth <= window.innerWidth;
const many = { run: data.runs[0].id, name: "many", hindsight: false, steps: [], times: [], values: [], places: [] };
for (let i = 0; i < 200000; i++) { many.steps.push(i); many.values.push(Math.sin(i / 5000) + (i === 123456 ? 5 : 0)); }
const large = new Chart("many"); document.getElementById("charts").append(large.figure); large.series = [many]; byTime = false;
const start = performance.now(); for (let i = 0; i < 10; i++) large.draw(); result.milliseconds = (performance.now() - start) / 10;
document.body.append(Object.assign(document.createElement("pre"), { id: "result", textContent: JSON.stringify(result) }));
