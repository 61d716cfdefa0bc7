/* The model in a thread of its own, so that the page never waits for it.

   A request is { call, task, ...}, an answer carries the same `call`:

       load  { base, name }       -> { config, described }
       look  { ids, useCache }    -> { logits }
       write { ids, ...manner }   -> { ids, seconds } many times, then { done, logits }
       stop  {}                      ends the writing of an earlier call

   An answer { call, error } says in words what went wrong. */

import { loadModel } from "./models.js";
import { Reader, write } from "./writing.js";

/** How long to compute, in milliseconds, before the page hears of it: one frame. */
const SLICE = 16;

let reader = null;
let loads = 0; // how many were asked for: an early one may arrive late
let writing = null; // the call that may go on

/** Let waiting messages in. A timer would do, but waits up to four milliseconds. */
function breathe() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

const TASKS = {
  async load({ base, name }) {
    const mine = ++loads;
    const { config, model, described } = await loadModel(base, name);
    if (mine === loads) reader = new Reader(model);
    return { config, described };
  },

  look({ ids, useCache }) {
    return { logits: reader.logits(ids, useCache) };
  },

  async write({ call, ids, ...manner }) {
    writing = call;
    const text = [...ids];
    const tokens = write(reader, ids, manner);
    for (let finished = false; !finished && writing === call; await breathe()) {
      const fresh = [];
      const start = performance.now();
      while (!finished && performance.now() - start < SLICE) {
        const { value, done } = tokens.next();
        if (done) finished = true;
        else fresh.push(value);
      }
      text.push(...fresh);
      postMessage({ call, ids: fresh, seconds: (performance.now() - start) / 1000 });
    }
    return { done: true, logits: reader.logits(text, manner.useCache) };
  },

  stop() {
    writing = null;
    return {};
  },
};

onmessage = async ({ data }) => {
  try {
    postMessage({ call: data.call, ...(await TASKS[data.task](data)) });
  } catch (error) {
    postMessage({ call: data.call, error: error.message });
  }
};
