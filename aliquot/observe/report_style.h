// The report's style sheet and script (internal to the report).
#pragma once

#include <string_view>

namespace aliquot {

inline constexpr std::string_view kReportStyle = R"css(
:root { color-scheme: light dark; --page:#f6f5f2; --card:#fff; --ink:#1f1f1d; --quiet:#6b6a66; --line:#e7e5df;
  --series-0:#2a78d6; --series-1:#eb6834; --series-2:#1baf7a; --series-3:#eda100; --series-4:#4a3aa7;
  --series-5:#e34948; --series-6:#e87ba4; --series-7:#008300; }
@media (prefers-color-scheme: dark) { :root { --page:#141413; --card:#1e1e1c; --ink:#eeede9; --quiet:#9a9994; --line:#343431;
  --series-0:#3987e5; --series-1:#d95926; --series-2:#199e70; --series-3:#c98500; --series-4:#9085e9;
  --series-5:#e66767; --series-6:#d55181; --series-7:#3a9a3a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 32px 24px 48px; max-width: 1180px; background: var(--page); color: var(--ink);
  font: 14px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 22px; font-weight: 600; }
header p { margin: 2px 0 20px; color: var(--quiet); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; margin: 0 0 20px; }
dl div, figure { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
dl div { padding: 10px 14px; }
dt { color: var(--quiet); font-size: 12px; }
dd { margin: 0; font-size: 20px; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 16px; }
figure { position: relative; margin: 0; padding: 14px 16px 8px; }
figcaption { font-weight: 600; }
figcaption small, figure p { color: var(--quiet); font-weight: 400; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; color: var(--quiet); font-size: 12px; }
.legend i, .readout i { display: inline-block; width: 10px; height: 3px; margin-right: 6px; border-radius: 2px;
  vertical-align: middle; }
svg { display: block; width: 100%; margin-top: 6px; }
svg text { fill: var(--quiet); font-size: 11px; }
.grid { stroke: var(--line); }
.curve { fill: none; stroke-width: 1.75; stroke-linejoin: round; stroke-linecap: round; }
.cursor { stroke: var(--quiet); stroke-dasharray: 2 3; }
.readout { position: absolute; z-index: 1; pointer-events: none; padding: 6px 10px; border-radius: 6px; font-size: 12px;
  background: var(--card); border: 1px solid var(--line); box-shadow: 0 4px 16px #0003; white-space: nowrap; }
)css";

/// Reads out the values of the recorded step nearest to the pointer.
inline constexpr std::string_view kReportScript = R"js(
for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg"), source = figure.querySelector("script");
  if (!svg) continue;
  const data = JSON.parse(source.textContent), cursor = svg.querySelector(".cursor");
  const readout = figure.appendChild(document.createElement("div"));
  readout.className = "readout";
  const hide = () => { readout.hidden = true; cursor.setAttribute("d", ""); };
  const nearest = (xs, x) => {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; xs[middle] <= x ? low = middle : high = middle; }
    return x - xs[low] <= xs[high] - x ? low : high;
  };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const left = 56, right = width - 12, at = (event.clientX - box.left) / box.width * width;
    const wanted = data.x0 + (at - left) / (right - left) * (data.x1 - data.x0);
    const longest = data.series.reduce((a, b) => b.x.length > a.x.length ? b : a);
    const step = longest.x[nearest(longest.x, wanted)];
    const lines = data.series.map(s => [s, s.y[nearest(s.x, step)]]).filter(([, y]) => y !== undefined);
    readout.innerHTML = `step ${step}` + lines.map(([s, y]) =>
      `<br><i style="background:${s.color}"></i>${s.name} ${y === null ? "not finite" : y} ${data.unit}`).join("");
    const x = left + (step - data.x0) / (data.x1 - data.x0) * (right - left);
    cursor.setAttribute("d", `M${x} 8V${height - 26}`);
    readout.hidden = false;
    const frame = figure.getBoundingClientRect(), place = box.left - frame.left + x / width * box.width;
    readout.style.left = `${place > frame.width / 2 ? place - readout.offsetWidth - 12 : place + 12}px`;
    readout.style.top = `${box.top - frame.top + 12}px`;
  });
  svg.addEventListener("pointerleave", hide);
  hide();
}
)js";

}  // namespace aliquot
