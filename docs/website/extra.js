// Wide tables and code scroll inside their own box: keys can move in them, too.
const reachable = () =>
  document.querySelectorAll(".md-typeset__scrollwrap, pre > code").forEach((box) => { box.tabIndex = 0; });
new MutationObserver(reachable).observe(document.documentElement, { childList: true, subtree: true });
