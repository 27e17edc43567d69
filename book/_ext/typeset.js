// Sets formulas with MathJax, without a browser: one line of JSON in, one out.
// {"tex": ..., "display": true} gives {"html": ...} or {"error": ...}; {} gives {"css": ...}, the
// style of all that was set before.
const [folder, fonts] = process.argv.slice(2);
const settings = {
  loader: {
    load: ["input/tex-full", "output/chtml", "adaptors/liteDOM", "a11y/assistive-mml"],
    paths: { mathjax: folder },
    require,
  },
  tex: {
    packages: { "[-]": ["noundefined"] }, // an unknown command is an error
    tags: "none",
    formatError: (_jax, error) => {
      throw error;
    },
  },
  chtml: { fontURL: fonts },
};

(async () => {
  const mathjax = await require(`${folder}/node-main.js`).init(settings);
  const { adaptor } = mathjax.startup;
  const answer = ({ tex, display }) => {
    if (tex === undefined) return { css: adaptor.textContent(mathjax.chtmlStylesheet()) };
    try {
      return { html: adaptor.outerHTML(mathjax.tex2chtml(tex, { display })) };
    } catch (error) {
      return { error: error.message };
    }
  };
  const lines = require("node:readline").createInterface({ input: process.stdin });
  for await (const line of lines) console.log(JSON.stringify(answer(JSON.parse(line))));
})();
