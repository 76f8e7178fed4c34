// Headless Chromium for the tests. Plain Node, no packages: Chromium is spoken to over a pair of pipes, in messages
// that end in a zero byte.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const launch = (browser) => {
  const profile = mkdtempSync(join(tmpdir(), "ebclr-browser-"));
  const child = spawn(browser, [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-pipe", "--user-data-dir=" + profile, "about:blank",
  ], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const waiting = new Map();
  const listeners = new Set();
  let number = 0, received = "";
  child.stdio[4].setEncoding("utf8");
  child.stdio[4].on("data", (text) => {
    received += text;
    for (let end; (end = received.indexOf("\0")) >= 0;) {
      const message = JSON.parse(received.slice(0, end));
      received = received.slice(end + 1);
      if (message.id && waiting.has(message.id)) {
        const { done, failed } = waiting.get(message.id);
        waiting.delete(message.id);
        if (message.error) failed(new Error(message.error.message)); else done(message.result);
      } else {
        for (const l of listeners) l(message);
      }
    }
  });
  child.on("error", (e) => { console.error("cannot start " + browser + ": " + e.message); process.exit(1); });
  const send = (method, params = {}, sessionId = undefined) => new Promise((done, failed) => {
    waiting.set(++number, { done, failed });
    child.stdio[3].write(JSON.stringify({ id: number, method, params, sessionId }) + "\0");
  });

  // A new page of a view {width, height, phone, dark, print, still}. `problem` hears what goes wrong in it: exceptions,
  // words on the console, errors of the browser, and requests to addresses that `allowed` does not know.
  const open = async (view, problem, allowed) => {
    const { targetId } = await send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    const call = (method, params) => send(method, params, sessionId);
    let loaded = () => {};
    const listener = (m) => {
      if (m.sessionId !== sessionId) return;
      const p = m.params;
      if (m.method === "Page.loadEventFired") loaded();
      if (m.method === "Runtime.exceptionThrown") problem(p.exceptionDetails.exception?.description ?? p.exceptionDetails.text);
      if (m.method === "Runtime.consoleAPICalled") problem("the console says: " + p.args.map((a) => a.value).join(" "));
      if (m.method === "Log.entryAdded" && ["error", "warning"].includes(p.entry.level)) problem(p.entry.text + " " + (p.entry.url ?? ""));
      if (m.method === "Network.requestWillBeSent" && !allowed(p.request.url)) problem("fetches " + p.request.url);
    };
    listeners.add(listener);
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await call(domain + ".enable");
    await call("Emulation.setDeviceMetricsOverride", {
      width: view.width, height: view.height, deviceScaleFactor: view.phone ? 2 : 1, mobile: Boolean(view.phone),
    });
    await call("Emulation.setEmulatedMedia", {
      media: view.print ? "print" : "",
      features: [{ name: "prefers-color-scheme", value: view.dark ? "dark" : "light" }],
    });
    if (view.still) await call("Emulation.setScriptExecutionDisabled", { value: true });
    return {
      call,
      go: async (url) => {
        const load = new Promise((done) => { loaded = done; });
        await call("Page.navigate", { url });
        await load;
      },
      // Calls a function inside of the page.
      ask: async (f, ...args) => {
        const r = await call("Runtime.evaluate", {
          expression: "(" + f + ")(" + args.map((a) => JSON.stringify(a)).join(",") + ")", awaitPromise: true, returnByValue: true,
        });
        if (r.exceptionDetails) throw new Error(r.exceptionDetails.exception?.description ?? r.exceptionDetails.text);
        return r.result.value;
      },
      shot: async (whole) => {
        const height = whole ? await call("Runtime.evaluate", { expression: "document.documentElement.scrollHeight", returnByValue: true }) : null;
        const { data } = await call("Page.captureScreenshot", whole
          ? { captureBeyondViewport: true, clip: { x: 0, y: 0, width: view.width, height: height.result.value, scale: 1 } } : {});
        return Buffer.from(data, "base64");
      },
      close: async () => {
        listeners.delete(listener);
        await send("Target.closeTarget", { targetId });
      },
    };
  };

  const close = async () => {
    child.kill();
    await new Promise((done) => { if (child.exitCode !== null || child.signalCode !== null) done(); else child.on("exit", done); });
    try {
      rmSync(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
    } catch (e) {
      console.log("left behind: " + profile + " (" + e.code + ")");  // helpers of the browser still write; no fault of the page
    }
  };
  return { open, close };
};
