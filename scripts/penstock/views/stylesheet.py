"""The report's style: one sheet, light and dark, and on paper."""

CSS = """
:root { color-scheme: light dark; --ink:#16202b; --soft:#5b6876; --line:#dde3e9; --page:#f4f6f8;
  --card:#ffffff; --good:#14804a; --bad:#b3261e; --warn:#8a5a00; --a:#1668b8; --b:#12908e; --c:#8a63c9;
  --d:#c9822b; --tint:rgba(22,104,184,.14); }
@media (prefers-color-scheme: dark) { :root { --ink:#e6ebf0; --soft:#93a1af; --line:#2c3742; --page:#10161c;
  --card:#18212a; --good:#46c285; --bad:#ff7a70; --warn:#e5b04c; --a:#5fabf0; --b:#43c6c3; --c:#b596ee;
  --d:#e8a95a; --tint:rgba(95,171,240,.18); } }
* { box-sizing: border-box; }
body { margin:0; background:var(--page); color:var(--ink); font:15px/1.5 system-ui,-apple-system,"Segoe UI",
  Roboto,"Helvetica Neue","DejaVu Sans",sans-serif; }
main { max-width:1080px; margin:0 auto; padding:28px 20px 60px; }
header { display:flex; flex-wrap:wrap; align-items:baseline; gap:4px 16px; margin-bottom:18px; }
h1 { font-size:28px; margin:0; letter-spacing:-.01em; overflow-wrap:anywhere; }
h2 { font-size:16px; margin:0 0 12px; }
.badge { font-weight:700; font-size:14px; padding:3px 12px; border-radius:99px; color:var(--card);
  align-self:center; }
.soft { color:var(--soft); } .bad { color:var(--bad); } .warn { color:var(--warn); }
.badge.good { background:var(--good); color:var(--card); }
.badge.bad { background:var(--bad); color:var(--card); }
.why { flex-basis:100%; color:var(--soft); overflow-wrap:anywhere; }
section { background:var(--card); border:1px solid var(--line); border-radius:12px; padding:18px 20px;
  margin:0 0 16px; }
.figures { display:grid; grid-template-columns:repeat(auto-fit,minmax(150px,1fr)); gap:14px 20px; }
.figures b { display:block; font-size:24px; font-weight:650; letter-spacing:-.01em; line-height:1.25;
  font-variant-numeric:tabular-nums; }
.figures span { color:var(--soft); font-size:13px; }
.pair { display:grid; grid-template-columns:1fr 1fr; gap:16px; } .pair section { margin:0; }
.pair { margin-bottom:16px; }
@media (max-width:760px) { .pair { grid-template-columns:1fr; } }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; }
th { text-align:left; font-weight:600; color:var(--soft); font-size:13px; border-bottom:1px solid var(--line);
  padding:4px 12px 6px 0; }
td { padding:6px 12px 6px 0; border-bottom:1px solid var(--line); vertical-align:top; }
tr:last-child td { border-bottom:0; }
td.n, th.n { text-align:right; white-space:nowrap; }
code, .path { font:13px/1.5 ui-monospace,"SFMono-Regular",Menlo,"DejaVu Sans Mono",monospace;
  overflow-wrap:anywhere; }
dl { display:grid; grid-template-columns:max-content 1fr; gap:5px 20px; margin:0; }
dt { color:var(--soft); } dd { margin:0; overflow-wrap:anywhere; }
svg { display:block; width:100%; height:auto; }
svg text { fill:var(--soft); font-size:12px; font-family:inherit; }
.grid { stroke:var(--line); stroke-width:1; }
.area { fill:var(--tint); } .curve { fill:none; stroke:var(--a); stroke-width:2; stroke-linejoin:round; }
.a { fill:var(--a); } .b { fill:var(--b); } .c { fill:var(--c); } .d { fill:var(--d); }
.f { fill:var(--bad); }
.meter { display:flex; height:10px; border-radius:5px; overflow:hidden; background:var(--line);
  margin:4px 0 10px; }
.legend { display:flex; flex-wrap:wrap; gap:4px 18px; color:var(--soft); font-size:13px; margin-top:8px; }
.legend i { display:inline-block; width:10px; height:10px; border-radius:3px; margin-right:6px; }
i.a { background:var(--a); } i.b { background:var(--b); } i.c { background:var(--c); }
i.d { background:var(--d); } i.f { background:var(--bad); }
footer { color:var(--soft); font-size:13px; }
@media print { body { background:none; } section { break-inside:avoid; } }
"""
