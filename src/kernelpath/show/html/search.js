"use strict";
const ENTRIES = {{ entries | safe }};

(() => {
  const input = document.querySelector("search input"), list = document.getElementById("found");
  const most = 12;

  /* The terms that begin a word of the title count most; 0 if one of them begins no word at all. */
  const score = ([, title, , words], terms) => {
    const named = " " + title.toLowerCase().replace(/[^\p{L}\p{N}_.:]+/gu, " "), told = " " + words;
    let sum = named.trim() === terms.join(" ") ? 100 : 0;
    for (const term of terms) {
      const found = named.includes(" " + term) ? 10 : told.includes(" " + term) ? 1 : 0;
      if (!found) return 0;
      sum += found;
    }
    return sum;
  };

  const show = () => {
    const terms = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = terms.length ? ENTRIES.map(entry => [score(entry, terms), entry]).filter(([sum]) => sum) : [];
    found.sort(([a], [b]) => b - a);  // of equals, the order of the course
    list.replaceChildren(...found.slice(0, most).map(([, [link, title, page]]) => {
      const item = document.createElement("li"), to = document.createElement("a"), at = document.createElement("span");
      to.href = link;
      to.textContent = title;
      at.textContent = page;
      at.className = "quiet";
      to.append(" ", at);
      item.append(to);
      return item;
    }));
    if (found.length > most || (terms.length && !found.length)) {
      const rest = document.createElement("li");
      rest.className = "quiet";
      rest.textContent = found.length ? `${found.length - most} more; add a word` : "nothing found";
      list.append(rest);
    }
  };

  const close = () => { input.value = ""; show(); };

  input.closest("search").hidden = false;
  input.addEventListener("input", show);
  document.addEventListener("keydown", event => {
    const inside = event.target.closest?.("search");
    if (event.key === "/" && !inside && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape" && inside) {
      close();
      input.focus();
    } else if (event.key === "Enter" && event.target === input) {
      list.querySelector("a")?.click();
    } else if (["ArrowDown", "ArrowUp"].includes(event.key) && inside) {
      const stops = [input, ...list.querySelectorAll("a")];
      const next = stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
      event.preventDefault();
      stops[Math.max(0, Math.min(next, stops.length - 1))].focus();
    }
  });
  list.addEventListener("click", event => { if (event.target.closest("a")) close(); });  // a link may lead to this page
})();
