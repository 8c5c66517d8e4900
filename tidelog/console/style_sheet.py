"""The style sheet and the icon of the console: dark and light as the browser asks, each contrast at least 4.5 to 1."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --text: #1a1f24; --faint: #55606b; --line: #c9d1d9; --link: #0b57a4; --field: #f4f6f8;
  --bad: #a4161a; --bad-ground: #fdecec; --good-ground: #e9f3fb; --on-link: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14181d; --text: #e4e8ec; --faint: #a3adb8; --line: #3a434d; --link: #7cb8f2; --field: #1e242b;
    --bad: #ff9b97; --bad-ground: #3a1d1f; --good-ground: #1b2b3a; --on-link: #10151a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); font: 1rem/1.5 system-ui, sans-serif; }
a { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
main:focus { outline: none; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--ground); padding: .5rem; z-index: 1; }
header { display: flex; flex-wrap: wrap; gap: .5rem 2rem; align-items: center; padding: .5rem 1.5rem;
  border-bottom: 1px solid var(--line); }
header p, header form { margin: 0; }
.name a { font-weight: 700; text-decoration: none; color: var(--text); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; margin: 0; padding: 0; }
nav a[aria-current] { font-weight: 700; color: var(--text); }
.account { display: flex; gap: 1rem; align-items: center; margin-left: auto; }
main { padding: 0 1.5rem 3rem; max-width: 110rem; }
h1 { font-size: 1.6rem; overflow-wrap: anywhere; }
h2, caption { font-size: 1.15rem; font-weight: 700; text-align: left; margin: 1.5rem 0 .5rem; }
h3 { font-size: 1rem; margin: .5rem 0; }
.wide { overflow-x: auto; margin-bottom: 1.5rem; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .35rem .75rem; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; min-width: 3rem; }
thead th { color: var(--faint); white-space: nowrap; }
tbody th { font-weight: 600; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td ul { margin: 0; padding: 0; list-style: none; }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font: .85rem/1.4 ui-monospace, monospace;
  max-height: 24rem; overflow: auto; }
pre.hex { white-space: pre; }
.absent, small { color: var(--faint); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.5rem; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
.notice, .alarm, .problem { border-left: 4px solid var(--link); background: var(--good-ground); padding: .25rem 1rem;
  margin: 1rem 0; max-width: 60rem; }
.alarm, .problem { border-color: var(--bad); background: var(--bad-ground); }
.bad { color: var(--bad); }
form p { display: flex; flex-direction: column; gap: .2rem; max-width: 36rem; }
form.search { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: start; }
form.search p { margin: .25rem 0; }
form.search > p:last-child { padding-top: 1.6rem; }
input, select, textarea, button, .button { font: inherit; padding: .4rem .7rem; border: 1px solid var(--faint);
  border-radius: .3rem; background: var(--field); color: var(--text); }
button, .button { cursor: pointer; text-decoration: none; display: inline-block; background: var(--link);
  border-color: var(--link); color: var(--on-link); width: max-content; }
.danger { background: var(--bad); border-color: var(--bad); color: var(--ground); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); gap: 1rem; }
figure { margin: 0; border: 1px solid var(--line); border-radius: .3rem; padding: .75rem; }
figcaption span { display: block; color: var(--faint); }
figcaption strong { font-size: 1.3rem; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: 5rem; border-bottom: 1px solid var(--line); }
polyline { fill: none; stroke: var(--link); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
"""

ICON: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3"
fill="#0b57a4"/><path d="M2 6q3-3 6 0t6 0M2 11q3-3 6 0t6 0" fill="none" stroke="#fff" stroke-width="1.6"/></svg>"""
