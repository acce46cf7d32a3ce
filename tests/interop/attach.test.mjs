// Other people's WebSocket clients attach to processes: Node's `ws`, and a browser.  (Python's are in tests/integration.)
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import WebSocket from "ws";
import { startEmulator } from "./emulator.mjs";
import { startGateway } from "./gateway.mjs";

// 300,000 numbered lines: about 2 MB, and every byte is known.
const lines = 300_000;
const shell = `seq 0 ${lines - 1}; echo done >&2; exit 3`;
const wanted = Buffer.from(Array.from({ length: lines }, (_, i) => `${i}\n`).join(""));

let emulator, gateway;
before(async () => {
  emulator = await startEmulator();
  gateway = await startGateway(emulator);
  assert.equal((await gateway.call("POST", "/v1/sandboxes", { name: "attach" })).status, 201);
});
after(async () => {
  await gateway.call("DELETE", "/v1/sandboxes/attach");
  const how = await gateway.stop();
  assert.equal(how.code, 0, how.log);
  assert.equal((await emulator.stop()).code, 0);
});

async function start(body) {
  const made = await gateway.call("POST", "/v1/sandboxes/attach/processes", body);
  assert.equal(made.status, 201, made.text);
  return `/v1/sandboxes/attach/processes/${made.json.process_id}`;
}

// One connection of `ws`; leaves after `most` bytes.  { got: bytes by stream, messages, code }
function attach(path, at, { protocol = "sandgate.v1", most = Infinity, options = {} } = {}) {
  return new Promise((resolve, reject) => {
    const url = `${gateway.url.replace("http", "ws")}${path}/attach?stdout=${at.stdout}&stderr=${at.stderr}`;
    const socket = new WebSocket(url, protocol, { headers: { authorization: `Bearer ${gateway.token}` }, ...options });
    const got = { stdout: [], stderr: [] };
    const next = { ...at };
    const messages = [];
    const take = (stream, offset, data) => {
      assert.equal(offset, next[stream]);
      next[stream] += data.length;
      got[stream].push(data);
      if (next.stdout - at.stdout >= most) socket.terminate();
    };
    socket.on("message", (data, binary) => {
      try {
        if (binary) {
          take(data[0] === 1 ? "stdout" : "stderr", Number(data.readBigUInt64BE(1)), data.subarray(9));
          return;
        }
        const message = JSON.parse(data);
        if (message.type === "data") take(message.stream, message.offset, Buffer.from(message.data, "base64"));
        else messages.push(message);
      } catch (error) {
        socket.terminate();
        reject(error);
      }
    });
    socket.once("error", reject);
    socket.once("close", (code) =>
      resolve({ got: Object.fromEntries(Object.entries(got).map(([s, parts]) => [s, Buffer.concat(parts)])), messages, code, next }));
  });
}

for (const protocol of ["sandgate.v1", "sandgate.v1.json"])
  test(`ws: exact bytes over leaving and coming back, ${protocol}`, async () => {
    const path = await start({ shell });
    const out = [];
    let at = { stdout: 0, stderr: 0 };
    let seen;
    do {
      seen = await attach(path, at, { protocol, most: out.length < 4 ? 200_000 : Infinity });
      assert.equal(seen.messages[0].type, "hello");
      out.push(seen.got.stdout);
      at = seen.next;
    } while (!seen.messages.some((m) => m.type === "exit"));
    assert.ok(out.length >= 4);
    assert.ok(Buffer.concat(out).equals(wanted));
    assert.equal(seen.code, 1000);
    assert.equal(seen.messages.at(-1).exit_code, 3);
  });

test("ws: compression is offered and not needed, pings are answered", async () => {
  const path = await start({ shell: "sleep 1; echo x" });
  const seen = await attach(path, { stdout: 0, stderr: 0 }, { options: { perMessageDeflate: true } });
  assert.equal(seen.got.stdout.toString(), "x\n");
  const quiet = await start({ argv: ["sleep", "600"] });
  const socket = new WebSocket(`${gateway.url.replace("http", "ws")}${quiet}/attach`, "sandgate.v1",
    { headers: { authorization: `Bearer ${gateway.token}` } });
  await new Promise((resolve, reject) => socket.once("message", resolve).once("error", reject));
  const pong = new Promise((resolve) => socket.once("pong", resolve));
  socket.ping(Buffer.from("payload"));
  assert.equal((await pong).toString(), "payload");
  const closed = new Promise((resolve) => socket.once("close", (code) => resolve(code)));
  socket.send(JSON.stringify({ type: "detach" }));
  assert.equal(await closed, 1000);
  assert.equal((await gateway.call("GET", quiet)).json.state, "running");
});

// ---- a browser, spoken to by its debugging protocol ----

const browser = [process.env.CHROME, "chromium-headless-shell", "chromium", "google-chrome", "chrome-headless-shell"]
  .find((name) => name && spawnSync(name, ["--version"]).status === 0);

// Pages of one origin that also leads to the gateway, as a reverse proxy in front of an application does.
function site() {
  const target = new URL(gateway.url);
  const server = http.createServer((request, response) => {
    if (!request.url.startsWith("/v1/")) {
      response.setHeader("content-type", "text/html");
      response.end("<!doctype html><title>page</title>");
      return;
    }
    const onward = http.request({ host: target.hostname, port: target.port, method: request.method, path: request.url,
      headers: request.headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => response.destroy());
    response.on("close", () => onward.destroy());
    request.pipe(onward);
  });
  server.on("upgrade", (request, socket, head) => {
    const onward = http.request({ host: target.hostname, port: target.port, path: request.url, headers: request.headers });
    onward.on("upgrade", (answer, up, rest) => {
      const fields = answer.rawHeaders.reduce((text, v, i) => text + v + (i % 2 ? "\r\n" : ": "), "");
      socket.write(`HTTP/1.1 101 Switching Protocols\r\n${fields}\r\n`);
      if (rest.length) socket.write(rest);
      if (head.length) up.write(head);
      socket.on("error", () => up.destroy());
      up.on("error", () => socket.destroy());
      up.pipe(socket).pipe(up);
    });
    onward.on("response", () => socket.destroy());
    onward.on("error", () => socket.destroy());
    onward.end();
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

class Browser {
  static async open() {
    const self = new Browser();
    self.dir = await mkdtemp(join(tmpdir(), "sandgate-browser-"));
    self.child = spawn(browser, ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
      "--remote-debugging-port=0", `--user-data-dir=${self.dir}`, "about:blank"], { stdio: ["ignore", "ignore", "pipe"] });
    self.gone = new Promise((resolve) => self.child.once("exit", resolve));
    const url = await new Promise((resolve, reject) => {
      createInterface({ input: self.child.stderr }).on("line", (line) => {
        const found = /^DevTools listening on (\S+)/.exec(line);
        if (found) resolve(found[1]);
      });
      self.gone.then(() => reject(new Error("the browser ended")));
    });
    self.socket = new WebSocket(url);
    await new Promise((resolve, reject) => self.socket.once("open", resolve).once("error", reject));
    self.waiting = new Map();
    self.socket.on("message", (text) => {
      const message = JSON.parse(text);
      if (self.waiting.has(message.id)) self.waiting.get(message.id)(message);
      else if (message.method === "Page.loadEventFired") self.loaded?.();
    });
    return self;
  }

  async send(method, params = {}, sessionId = this.session) {
    const id = (this.n = (this.n ?? 0) + 1);
    const answer = await new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.socket.send(JSON.stringify({ id, method, params, sessionId }));
    });
    this.waiting.delete(id);
    if (answer.error) throw new Error(`${method}: ${answer.error.message}`);
    return answer.result;
  }

  async page(url) {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" }, undefined);
    this.session = (await this.send("Target.attachToTarget", { targetId, flatten: true }, undefined)).sessionId;
    await this.send("Page.enable");
    const loaded = new Promise((resolve) => (this.loaded = resolve));
    await this.send("Page.navigate", { url });
    await loaded;
  }

  // The value of an async function that runs in the page.
  async run(fn, ...args) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate",
      { expression: `(${fn})(...${JSON.stringify(args)})`, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  async close() {
    await this.send("Browser.close", {}, undefined).catch(() => {});
    await this.gone;
    await rm(this.dir, { recursive: true, force: true, maxRetries: 10 });
  }
}

// Runs in the page: attaches again and again, leaving after 200,000 bytes four times; digest of what it put together.
async function inPage(path, token) {
  const bearer = "sandgate.bearer." + btoa(token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const parts = [];
  let at = 0, exit, connections = 0, protocol, code;
  while (!exit) {
    connections++;
    await new Promise((resolve, reject) => {
      const socket = new WebSocket(`ws://${location.host}${path}/attach?stdout=${at}`, ["sandgate.v1", bearer]);
      socket.binaryType = "arraybuffer";
      let got = 0;
      socket.onmessage = ({ data }) => {
        if (typeof data === "string") {
          const message = JSON.parse(data);
          if (message.type === "exit") exit = message;
          return;
        }
        const view = new DataView(data);
        if (view.getUint8(0) !== 1 || (connections <= 4 && got >= 200_000)) return;
        if (Number(view.getBigUint64(1)) !== at) reject(new Error(`offset ${view.getBigUint64(1)} instead of ${at}`));
        parts.push(data.slice(9));
        at += data.byteLength - 9;
        got += data.byteLength - 9;
        if (connections <= 4 && got >= 200_000) {
          exit = undefined;
          socket.close();
        }
      };
      socket.onclose = (event) => {
        code = event.code;
        protocol = socket.protocol || protocol;
        if (connections <= 4) exit = undefined;
        resolve();
      };
    });
    if (connections > 20) throw new Error("no exit");
  }
  const digest = await crypto.subtle.digest("SHA-256", await new Blob(parts).arrayBuffer());
  return { sha256: [...new Uint8Array(digest)].map((b) => b.toString(16).padStart(2, "0")).join(""), at, exit, connections, protocol, code };
}

// Runs in the page: a stream of events by fetch, as a page reads one that needs a header.
async function fetched(path, token, accept) {
  const response = await fetch(`${path}/events`, { headers: { authorization: `Bearer ${token}`, accept } });
  return { status: response.status, type: response.headers.get("content-type"), text: await response.text() };
}

test("a browser: exact bytes over leaving and coming back, token in the subprotocol", { skip: browser ? false : "no Chromium" },
  async () => {
    const server = await site();
    const page = await Browser.open();
    try {
      await page.page(`http://127.0.0.1:${server.address().port}/`);
      const path = await start({ shell });
      const seen = await page.run(inPage, path, gateway.token);
      assert.equal(seen.sha256, createHash("sha256").update(wanted).digest("hex"), JSON.stringify(seen));
      assert.equal(seen.exit.exit_code, 3);
      assert.ok(seen.connections >= 5);
      assert.deepEqual([seen.protocol, seen.code], ["sandgate.v1", 1000]);
      for (const [accept, ending] of [["text/event-stream", "\n\n"], ["application/x-ndjson", "\n"]]) {
        const stream = await page.run(fetched, await start({ shell: "echo hi; exit 4" }), gateway.token, accept);
        assert.equal(stream.status, 200, stream.text);
        assert.ok(stream.type.startsWith(accept));
        assert.ok(stream.text.includes(Buffer.from("hi\n").toString("base64")) && stream.text.includes('"exit_code":4'), stream.text);
        assert.ok(stream.text.endsWith(ending));
      }
    } finally {
      await page.close();
      server.closeAllConnections();
      server.close();
    }
  });
