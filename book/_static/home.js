// The reader's marks on the map of the home page, as the map of chapter 00 keeps them.
document.addEventListener("DOMContentLoaded", () => {
  const KEY = "llmcourse-progress.v1";
  function progress() {
    try {
      return JSON.parse(localStorage.getItem(KEY))?.progress ?? {};
    } catch {
      return {}; // nothing is kept, or it cannot be read: chapter 00 says so
    }
  }
  function mark() {
    const states = progress();
    for (const stop of document.querySelectorAll(".home-stop")) {
      const state = states[stop.querySelector(".home-sign").textContent];
      stop.dataset.state = state ?? "not begun";
      stop.querySelector(".home-state")?.remove();
      if (state !== "reading" && state !== "done") continue;
      const said = document.createElement("span");
      said.className = "home-state";
      said.textContent = state === "done" ? "● done" : "◐ reading";
      stop.querySelector("p").append(" ", said);
    }
  }
  addEventListener("storage", mark); // another tab has changed something
  addEventListener("pageshow", mark); // the reader comes back
  mark();
});
