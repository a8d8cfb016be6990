// Copyright: gpucluster.slurm contributors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later
//
// The order of the results of a search (docs/design/site.md), for Sphinx's searchtools.js, whose functions it uses:
// recipes, then pages of administrators and users, then all others. Among each of them, titles with more words of the
// query come first, and then what Sphinx says: a word in a title, a word in the text.

/** The words of a text as the search compares them. */
const wordsOf = (text) =>
  splitQuery(text.toLowerCase())
    .filter((word) => !stopwords.has(word))
    .map((word) => new Stemmer().stemWord(word));

/** The rooms of the documents that come first, the first of them at the end. */
const ROOMS = [/^README$|^docs\/(admin|user)\//, /^docs\/recipes\//];

var Scorer = {
  score: ([page, title, _anchor, _description, score]) => {
    const query = new Set(wordsOf(new URLSearchParams(window.location.search).get("q") ?? ""));
    const named = new Set(wordsOf(title).filter((word) => query.has(word)));
    return 100000 * (ROOMS.findIndex((room) => room.test(page)) + 1) + 1000 * named.size + score;
  },
  // As in searchtools.js, which asks for all of them.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
