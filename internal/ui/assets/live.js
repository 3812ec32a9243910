// Puts the parts of the page that have changed into their places. The page works without it.
"use strict";
(function () {
  const state = document.getElementById("liveness");
  const source = new EventSource(document.body.dataset.live);

  let pressed = false;
  addEventListener("pointerdown", () => (pressed = true));
  addEventListener("pointerup", () => (pressed = false));
  addEventListener("pointercancel", () => (pressed = false));

  function place(part, html) {
    const at = document.querySelector('[data-part="' + part + '"]');
    if (!at || (at.contains(document.activeElement) && document.activeElement.matches("input, select, button, a"))) {
      return; // nobody's focus is taken away
    }
    const next = document.createElement("template");
    next.innerHTML = html;
    if (pressed || next.innerHTML === at.innerHTML) {
      return; // a click that has begun ends where it began
    }
    const kept = Array.from(at.querySelectorAll(".scroll"), (e) => e.scrollLeft);
    const focused = Array.from(at.querySelectorAll(".scroll")).indexOf(document.activeElement);
    at.innerHTML = html;
    at.querySelectorAll(".scroll").forEach((e, i) => {
      e.scrollLeft = kept[i] || 0;
      if (i === focused) e.focus({ preventScroll: true });
    });
  }

  source.onmessage = function (event) {
    const { part, html } = JSON.parse(event.data);
    place(part, html);
    state.textContent = "Live, " + new Date().toISOString().slice(11, 19) + " UTC.";
  };
  source.onerror = function () {
    state.textContent = source.readyState === EventSource.CLOSED ? "Not live: reload the page for newer figures." : "Connecting again…";
  };
  addEventListener("pagehide", () => source.close());
})();
