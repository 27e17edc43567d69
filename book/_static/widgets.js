// Widgets come to life as the reader comes near, or prints: a page is light until then.  A program
// is a script of its own that all pages share (book/_ext/widget_programs.py); live is that of page.js.
(() => {
  const loading = new Map();
  function program(address) {
    if (!loading.has(address)) {
      const script = Object.assign(document.createElement("script"), { src: address });
      const done = new Promise((resolve, reject) => {
        script.onload = () => resolve(globalThis.coursePrograms[/([\w-]+)\.js$/.exec(address)[1]]);
        script.onerror = () => reject(new Error(`a widget's program is missing: ${address}`));
      });
      loading.set(address, done);
      document.head.append(script);
    }
    return loading.get(address);
  }
  const waiting = new Map();
  async function begin(host) {
    const payload = waiting.get(host);
    waiting.delete(host);
    if (!payload) return;
    const esm = await program(payload.dataset.program);
    await live(host, { state: JSON.parse(payload.textContent), esm });
  }
  document.addEventListener("DOMContentLoaded", () => {
    for (const payload of document.querySelectorAll("script[data-program]")) {
      waiting.set(document.getElementById(payload.id.replace(/-state$/, "")), payload);
    }
    const near = new IntersectionObserver(
      (seen) => {
        for (const { isIntersecting, target } of seen) if (isIntersecting) begin(target);
      },
      { rootMargin: "100% 0px" },
    );
    for (const host of waiting.keys()) near.observe(host);
    addEventListener("beforeprint", () => [...waiting.keys()].forEach(begin));
  });
})();
