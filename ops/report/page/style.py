"""The style of the page: light and dark, from a phone's width to a printed sheet."""

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark;
  --paper: #f7f6f2; --card: #fff; --ink: #18212b; --muted: #5a6673; --line: #e2dfd6; --faint: #efede6;
  --gain: #0a7355; --loss: #b3261e; --open: #6a7380; --sea: #0b6a8f; --sand: #c79a4b; --stone: #b9b4a6;
  --holdout: #8b929b; --none: #4b5560; --rma: #1769b0; --sbm: #b9600f; --both: #7b3a9e; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #10151b; --card: #171e26; --ink: #e7ebef; --muted: #9ba7b4; --line: #2b3540; --faint: #202934;
  --gain: #4cc9a0; --loss: #ff8a80; --open: #a3adb8; --sea: #4fb3d9; --sand: #d9b06a; --stone: #566170;
  --holdout: #7d8894; --none: #c3ccd5; --rma: #6cb2f0; --sbm: #f0a35a; --both: #c993ea; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI",
  Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; -webkit-text-size-adjust: 100%; }
main, header, footer { max-width: 1080px; margin: 0 auto; padding: 0 24px; }
header { padding-top: 44px; }
.kicker { color: var(--muted); font-size: .85rem; margin: 0 0 10px; display: flex; flex-wrap: wrap; gap: 2px 18px; }
.kicker b { color: var(--sea); font-weight: 650; letter-spacing: .01em; }
h1 { font-size: clamp(1.45rem, 3.6vw, 2.15rem); line-height: 1.22; letter-spacing: -.015em; font-weight: 650;
  margin: 0 0 26px; max-width: 26em; text-wrap: balance; }
h2 { font-size: 1.22rem; letter-spacing: -.01em; margin: 0 0 4px; }
h3 { font-size: .95rem; margin: 24px 0 8px; }
p { margin: 0 0 14px; max-width: 46em; }
.note { color: var(--muted); font-size: .86rem; }
.figures { display: grid; grid-template-columns: repeat(3, 1fr); gap: 14px; margin-bottom: 30px; }
.figure { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 20px 15px; }
.figure .value { font-size: clamp(1.9rem, 4.4vw, 2.7rem); line-height: 1.1; font-weight: 680; letter-spacing: -.03em;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.figure .label { font-weight: 600; margin-top: 2px; line-height: 1.3; }
.figure .detail { color: var(--muted); font-size: .86rem; margin-top: 6px; line-height: 1.4; }
.figure.gain .value { color: var(--gain); } .figure.loss .value { color: var(--loss); }
.figure.unknown .value { color: var(--open); }
nav { border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); padding: 9px 0; margin-bottom: 22px;
  font-size: .88rem; display: flex; flex-wrap: wrap; gap: 3px 18px; }
nav a, .kicker a { color: var(--sea); text-decoration: none; }
nav a:hover { text-decoration: underline; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 22px 24px 20px;
  margin-bottom: 18px; }
section > :last-child { margin-bottom: 0; }
svg { display: block; overflow: visible; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: var(--muted);
  paint-order: stroke; stroke: var(--card); stroke-width: 3px; stroke-linejoin: round;
  font-variant-numeric: tabular-nums; }
.chart { margin: 12px 0 4px; }
.chart figcaption { color: var(--muted); font-size: .86rem; margin-top: 6px; }
.grid { stroke: var(--line); stroke-width: 1; } .zero { stroke: var(--muted); stroke-width: 1; }
.mark { stroke: var(--loss); stroke-width: 1; opacity: .55; }
.line { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-linecap: round; }
.area { stroke: none; opacity: .16; }
.tone-holdout { --tone: var(--holdout); } .tone-none { --tone: var(--none); } .tone-rma { --tone: var(--rma); }
.tone-sbm { --tone: var(--sbm); } .tone-both { --tone: var(--both); } .tone-gain { --tone: var(--gain); }
.tone-loss { --tone: var(--loss); } .tone-open { --tone: var(--open); } .tone-sea { --tone: var(--sea); }
.tone-sand { --tone: var(--sand); } .tone-stone { --tone: var(--stone); } .tone-muted { --tone: var(--muted); }
.stroke { stroke: var(--tone); } .fill { fill: var(--tone); }
.wide { stroke-width: 2; } .thick { stroke-width: 7; opacity: .35; }
.dash-none { stroke-dasharray: 7 4; } .dash-holdout { stroke-dasharray: 2 4; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; font-size: .86rem; color: var(--muted); margin: 8px 0 0;
  padding: 0; list-style: none; }
.legend svg { display: inline-block; vertical-align: middle; margin-right: 7px; overflow: visible; }
.forest { margin: 10px 0 4px; }
.forest .row { display: grid; grid-template-columns: 14.5em 1fr 16.5em; gap: 18px; align-items: center;
  padding: 3px 0; border-bottom: 1px solid var(--faint); }
.forest .axis { border: 0; }
.forest .name { font-size: .93rem; line-height: 1.25; }
.forest .name small, .say small { display: block; color: var(--muted); font-size: .8rem; }
.forest .say { font-size: .93rem; font-variant-numeric: tabular-nums; line-height: 1.25; }
.forest .say b { font-weight: 650; }
.scroll { overflow-x: auto; margin: 12px 0; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: 6px 0 6px 18px; border-bottom: 1px solid var(--faint); vertical-align: top;
  white-space: nowrap; }
th { color: var(--muted); font-weight: 500; border-bottom-color: var(--line); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.text { text-align: left; white-space: normal; min-width: 12em; }
table.dense { font-size: .84rem; } .dense :is(th, td):not(:first-child) { padding-left: 12px; }
td small { color: var(--muted); display: block; }
.gain { color: var(--gain); } .loss { color: var(--loss); } .open { color: var(--open); }
.figure.gain, .figure.loss, .figure.open { color: inherit; }
.pill { display: inline-block; font-size: .8rem; font-weight: 600; padding: 1px 9px; border-radius: 99px;
  border: 1px solid currentColor; }
.unknown-list { margin: 0; padding: 0; list-style: none; }
.unknown-list li { display: grid; grid-template-columns: 12em 1fr; gap: 16px; padding: 6px 0;
  border-bottom: 1px solid var(--faint); font-size: .93rem; }
.unknown-list b { font-weight: 600; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 6px 34px; }
footer { color: var(--muted); font-size: .84rem; padding-top: 6px; padding-bottom: 44px; }
@media (max-width: 720px) {
  main, header, footer { padding-left: 14px; padding-right: 14px; } header { padding-top: 24px; }
  section { padding: 18px 15px 16px; border-radius: 10px; }
  .figures { grid-template-columns: 1fr; gap: 9px; }
  .figure { padding: 11px 15px; display: grid; grid-template-columns: auto 1fr; gap: 0 14px; align-items: baseline; }
  .figure .value { font-size: 1.9rem; } .figure .detail { grid-column: 1 / -1; margin-top: 2px; }
  .forest .row { grid-template-columns: 1fr auto; gap: 2px 12px; padding: 8px 0 4px; }
  .forest .row > svg { grid-column: 1 / -1; grid-row: 2; } .forest .say { text-align: right; }
  .unknown-list li { grid-template-columns: 1fr; gap: 0; } .pair { grid-template-columns: 1fr; } }
@media print {
  :root { --paper: #fff; --card: #fff; --ink: #000; --muted: #444; --line: #ccc; --faint: #e4e4e4; --gain: #0a7355;
    --loss: #b3261e; --open: #555; --sea: #0b6a8f; --sand: #c79a4b; --stone: #b9b4a6; --holdout: #8b929b;
    --none: #4b5560; --rma: #1769b0; --sbm: #b9600f; --both: #7b3a9e; }
  @page { size: A4; margin: 14mm 13mm; }
  body { font-size: 10.5pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  main, header, footer { padding: 0; max-width: none; } nav { display: none; } h1 { font-size: 18pt; }
  section { border: 0; border-top: 1px solid var(--line); border-radius: 0; padding: 12px 0 4px; margin: 0 0 8px; }
  .figures { grid-template-columns: repeat(3, 1fr); margin-bottom: 16px; } .figure .value { font-size: 22pt; }
  .figure { display: block; padding: 10px 13px; }
  .scroll { overflow: visible; } table { font-size: 8.5pt; } th, td { padding-left: 9px; }
  table.dense { font-size: 7.5pt; } .dense :is(th, td):not(:first-child) { padding-left: 6px; }
  .dense td:first-child { white-space: normal; }
  p, .chart, .forest .row, tr, .figure, .unknown-list li { break-inside: avoid; }
  h2, h3, .lead { break-after: avoid; } }
"""
