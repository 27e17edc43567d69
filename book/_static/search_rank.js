// Which pages answer a query, the best first.  Pure functions; search.js shows what they find.
//
// A page scores 4 for its title, 2 for its best heading and 2 for its words, each between 0 and 1,
// times the weight of its kind.  A word of the query counts by how rare it is, log(1 + pages /
// pages that have it).  A word that stands nowhere may be one letter off.
window.courseSearch = (() => {
  // Of a chapter, a page of the front matter, the glossary, the package, exercises: book/_ext/search.py.
  const KIND_WEIGHTS = [1, 0.7, 0.65, 0.35, 0.45];
  const [TITLE, HEADING, TEXT] = [4, 2, 2];
  // A query with _ or . in it is a name of the package's.
  const [PACKAGE, PACKAGE_BY_NAME] = [3, 1.5];
  const SMALL = new Set("a an and are can do does for how i in is it of on or the to what why".split(" "));

  const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  const split = (text) => plain(text).replace(/(\d),(?=\d{3})/g, "$1").match(/[a-z0-9]+/g) ?? [];
  // A title has warm, up and warmup in its warm-up.
  const wordsOf = (title) => [...split(title),
    ...(plain(title).match(/[a-z]+(-[a-z]+)+/g) ?? []).map((joined) => joined.replaceAll("-", ""))];

  // The file's strings as lists, and how long each page is.
  function open({ pages, headings, words, places }) {
    const lists = places.split(" ").map((list) => list.match(/.../g).map((place) =>
      [parseInt(place.slice(0, 2), 36), parseInt(place[2], 36)]));
    const lengths = pages.map(() => 0);
    for (const list of lists) for (const [page, count] of list) lengths[page] += count;
    const titled = pages.map(([name, title, kind]) => ({ name, title, kind, words: wordsOf(title) }));
    const headed = headings.map(([page, anchor, text = anchor]) =>
      ({ page, anchor, text: text.replace(/^llmcourse\./, ""), words: wordsOf(text) }));
    return {
      pages: titled,
      headings: headed,
      lists: new Map(words.split(" ").map((word, place) => [word, lists[place]])),
      known: new Set([words.split(" "), ...[...titled, ...headed].map((one) => one.words)].flat()),
      lengths,
      meanLength: lengths.reduce((sum, one) => sum + one, 0) / pages.length,
    };
  }

  // Whether one letter more, fewer, other, or swapped with its neighbour makes one word the other.
  function oneOff(one, other) {
    if (Math.abs(one.length - other.length) > 1) return false;
    let start = 0;
    while (start < one.length && one[start] === other[start]) start++;
    const [a, b] = [one.slice(start), other.slice(start)];
    return a.slice(1) === b.slice(1) || a === b.slice(1) || a.slice(1) === b
      || (a[0] === b[1] && a[1] === b[0] && a.slice(2) === b.slice(2));
  }

  // The words of the book that a word of the query may mean, each with how well it fits.
  // A short word is the beginning of a longer one only while it is typed.
  function meanings(query, known, isLast) {
    const found = new Map();
    const begins = query.length > (isLast ? 1 : 3);
    for (const word of known) {
      if (word === query) found.set(word, 1);
      else if (word === `${query}s` || query === `${word}s`) found.set(word, 0.95);
      else if (begins && word.startsWith(query))
        found.set(word, 0.4 + 0.5 * query.length / word.length);
    }
    if (found.size || query.length < 4) return found;
    for (const word of known) {
      if (oneOff(query, word)) found.set(word, 0.7);
      else if (query.length > 4 && [-1, 0, 1].some((more) =>
        oneOff(query, word.slice(0, query.length + more)))) found.set(word, 0.4);
    }
    return found;
  }

  // How well a title fits: the share of the query that it has, and less for words beyond.
  function fit(title, asked) {
    let [weight, total, matched] = [0, 0, 0];
    for (const { means, rarity } of asked) {
      const best = Math.max(0, ...title.map((word) => means.get(word) ?? 0));
      weight += best * rarity;
      total += rarity;
      matched += best > 0;
    }
    return total && (weight / total) ** 3 * (0.6 + 0.4 * Math.min(1, matched / title.length));
  }

  function askedOf(book, query) {
    const all = split(query);
    const telling = all.filter((word) => !SMALL.has(word));
    return (telling.length ? telling : all).map((word) => {
      const means = meanings(word, book.known, word === all.at(-1));
      const counts = new Map();
      for (const [meant, weight] of means) {
        for (const [page, count] of book.lists.get(meant) ?? [])
          counts.set(page, Math.max(counts.get(page) ?? 0, weight * count));
      }
      return { word, means, counts, rarity: Math.log(1 + book.pages.length / Math.max(1, counts.size)) };
    });
  }

  // The pages found, the best first: { page, heading (or none), titled, share of the query, score }.
  function rank(book, query) {
    const asked = askedOf(book, query).filter(({ means }) => means.size);
    const total = asked.reduce((sum, { rarity }) => sum + rarity, 0);
    const best = new Map();
    for (const heading of book.headings) {
      const score = fit(heading.words, asked);
      if (score > (best.get(heading.page)?.score ?? 0)) best.set(heading.page, { heading, score });
    }
    const isName = /\w[_.]\w/.test(query);
    const found = book.pages.map((page, number) => {
      const kind = isName && page.kind === PACKAGE ? PACKAGE_BY_NAME : KIND_WEIGHTS[page.kind];
      const title = fit(page.words, asked);
      const { heading, score = 0 } = best.get(number) ?? {};
      const longer = 0.5 + 0.5 * book.lengths[number] / book.meanLength;
      let [text, covered] = [0, 0];
      for (const { counts, means, rarity } of asked) {
        const count = counts.get(number) ?? 0;
        text += rarity * count / (count + 5 * longer);
        covered += rarity * (count > 0 || page.words.some((word) => means.has(word))
          || heading?.words.some((word) => means.has(word)));
      }
      const sum = TITLE * title + HEADING * score + TEXT * text / total;
      return {
        page,
        heading: TITLE * title < HEADING * score ? heading : undefined,
        titled: title > 0,
        share: covered / total,
        score: kind * sum * (covered / total) ** 2,
      };
    }).filter(({ score }) => score > 0).sort((one, other) => other.score - one.score);
    // Pages that lack what matters most are shown if there are no others.
    const most = found.filter(({ share }) => share > 0.6);
    return most.length ? most : found;
  }

  return { open, rank, askedOf, wordsOf };
})();
