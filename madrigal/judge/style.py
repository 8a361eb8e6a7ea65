"""How pages look, in light and in dark."""

STYLE = """
:root { --paper: #fbfbfa; --card: #ffffff; --ink: #1c1d21; --faint: #6a6c75; --line: #e3e3e6; --good: #1a7a45;
  --bad: #b3362c; --c0: #2a6fdb; --c1: #d9730d; --c2: #2b8a57; --c3: #8b54c6; --c4: #c93b4b; --c5: #0e8c95; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #131418; --card: #1a1b21; --ink: #e8e8ec; --faint: #9a9ca6; --line: #2d2f37; --good: #5cc98a;
    --bad: #f0857b; --c0: #6ea3f5; --c1: #f0a04b; --c2: #5fc491; --c3: #b98df0; --c4: #f07c88; --c5: #4fc3cc; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 44px 24px 80px; }
h1 { font-size: 30px; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 8px; }
h2 { font-size: 21px; letter-spacing: -0.01em; margin: 44px 0 12px; }
h3 { font-size: 16px; margin: 28px 0 8px; }
p, ul { max-width: 72ch; margin: 0 0 14px; }
ul { padding-left: 20px; }
.lead { font-size: 18px; color: var(--faint); }
.faint, small { color: var(--faint); }
small, figcaption, caption { font-size: 13px; }
.good { color: var(--good); font-weight: 600; }
.bad { color: var(--bad); }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; overflow-x: auto;
  font: 13.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.facts { display: flex; flex-wrap: wrap; gap: 12px; margin: 22px 0; }
.facts div { flex: 1 1 140px; background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; }
.facts dd { margin: 0; font-size: 24px; font-weight: 600; letter-spacing: -0.01em; font-variant-numeric: tabular-nums; }
.facts dt { font-size: 13px; color: var(--faint); }
.wide { overflow-x: auto; margin: 0 0 18px; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--faint); padding: 0 0 6px; }
th { text-align: left; font-weight: 600; font-size: 13px; color: var(--faint); border-bottom: 1px solid var(--line);
  padding: 6px 12px 6px 0; vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); padding: 7px 12px 7px 0; vertical-align: top; line-height: 1.35; }
td.number { white-space: nowrap; }
td.text:first-child { font-weight: 550; white-space: nowrap; }
tr:has(audio) td { vertical-align: middle; }
td.sound { width: 320px; }
audio { width: 300px; height: 36px; display: block; }
figure { margin: 0 0 22px; }
figure img { width: 100%; height: auto; border-radius: 10px; display: block; }
figcaption { color: var(--faint); margin: 6px 0; }
.chart { width: 100%; height: auto; display: block; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; padding: 10px; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.chart .axis { stroke: var(--faint); stroke-width: 1; }
.chart .tick, .chart .name { font-size: 12px; fill: var(--faint); }
.chart .name { fill: var(--ink); }
.chart .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); }
"""
