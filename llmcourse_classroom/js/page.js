// Brings a widget to life in a page that has no kernel: the state lives here, in the page.
export async function live(host, { state, esm }) {
  const values = { ...state };
  const listeners = new Map();
  const call = (event, ...given) => [...(listeners.get(event) || [])].forEach((f) => f(...given));
  const model = {
    get: (name) => values[name],
    set(name, value) {
      const given = typeof name === "object" ? name : { [name]: value };
      for (const [key, to] of Object.entries(given)) {
        if (values[key] === to) continue;
        values[key] = to;
        call(`change:${key}`, model, to);
        call("change", model);
      }
    },
    on(event, f) { listeners.set(event, [...(listeners.get(event) || []), f]); },
    off(event, f) { listeners.set(event, (listeners.get(event) || []).filter((g) => g !== f)); },
    save_changes() {},
    send() {},
  };
  const address = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
  const { default: widget } = await import(address);
  URL.revokeObjectURL(address);
  const el = document.createElement("div");
  await widget.render({ model, el });
  host.replaceChildren(el);
}
