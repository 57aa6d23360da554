// What test_view_lines.py does with a page that is served while its run goes on.
(async () => {
  const until = async test => { while (!test()) await new Promise(resolve => setTimeout(resolve, 50)); };
  const length = () => { const chart = charts.get("loss"); return chart ? chart.series[0].values.length : 0; };
  await until(() => length() >= 2);
  const chart = charts.get("loss"), times = timelines.get(data.runs[0].id), toggle = document.querySelector("#runs button"), result = { before: length(), status: document.querySelector("#runs tr:nth-child(2)").children[5].textContent };
  chart.range = [0.5, 1.5]; times.range = [0, 0.25];
  document.getElementById("log").click(); document.getElementById("filter").value = "los"; document.getElementById("filter").dispatchEvent(new Event("input"));
  const button = document.querySelector(".margin button"); button.focus(); popup.pin(popup.value);
  toggle.click(); result.off = shown.get(data.runs[0].id);
  await fetch("go");
  await until(() => length() >= 5 && data.runs[0].cells[4] === "0");
  Object.assign(result, {
    after: length(), range: chart.visible(), times: times.visible(), log: document.getElementById("log").ariaPressed, still: shown.get(data.runs[0].id) === false && toggle.isConnected && toggle.ariaPressed === "false",
    focused: document.activeElement === button && button.isConnected, label: button.ariaLabel, popup: document.querySelectorAll("#popup tr").length, open: !document.getElementById("popup").hidden,
    filtered: [...charts.values()].filter(each => !each.figure.hidden).map(each => each.name), last: document.querySelector(".row.has:last-of-type .margin").textContent,
  });
  const seen = version; await ask(); result.same = version === seen;
  await fetch("result", { method: "POST", body: JSON.stringify(result) });
})();
