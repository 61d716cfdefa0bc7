/* Talks to worker.js: a request is a promise of its answer. */

/** One worker with one model. */
export class Remote {
  /** @param {string} base   the address of this folder, ending in a slash */
  constructor(base) {
    this.calls = 0;
    this.waiting = new Map();
    this.worker = new Worker(new URL("worker.js", base), { type: "module" });
    this.worker.onmessage = ({ data }) => this.answer(data);
    this.worker.onerror = (event) => {
      const error = new Error(event.message || "the worker did not start");
      for (const { reject } of this.waiting.values()) reject(error);
      this.waiting.clear();
    };
  }

  answer({ call, error, ids, ...answer }) {
    const { resolve, reject, onTokens } = this.waiting.get(call) ?? {};
    if (!resolve) return;
    if (ids && !answer.done) {
      onTokens?.(ids, answer.seconds);
      return;
    }
    this.waiting.delete(call);
    if (error) reject(new Error(error));
    else resolve(answer);
  }

  /** End the worker; nothing that was asked of it is answered any more. */
  close() {
    this.worker.terminate();
    this.waiting.clear();
  }

  /**
   * @param {string} task   see worker.js
   * @param {Object} [about]
   * @param {(ids: number[], seconds: number) => void} [onTokens]   for what comes in parts
   * @returns {Promise<Object>}
   */
  ask(task, about = {}, onTokens = null) {
    const call = ++this.calls;
    return new Promise((resolve, reject) => {
      this.waiting.set(call, { resolve, reject, onTokens });
      this.worker.postMessage({ ...about, call, task });
    });
  }
}
