// What the emulator promises beyond the SDK: its own death, stalled clients, faults on demand, exit codes.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { rm, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { base, newState, program, startEmulator } from "./emulator.mjs";

let emulator;
before(async () => {
  emulator = await startEmulator({ args: ["--admin"] });
});
after(async () => {
  assert.deepEqual(await emulator.stop(), { code: 0, signal: null });
});

const created = async (e, body = {}) => {
  const answer = await e.call("POST", "/v3/sandboxes", body);
  assert.equal(answer.status, 200, answer.text);
  return { name: answer.json.sandbox.name, session: `/v2/sandboxes/sessions/${answer.json.session.id}` };
};
const lines = (text) => text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
const run = (e, session, ...argv) =>
  e.call("POST", `${session}/cmd`, { command: argv[0], args: argv.slice(1), wait: true, logs: true });

test("files outlive an emulator that was killed: its sessions are aborted and kept as snapshots", async () => {
  const state = await newState();
  const first = await startEmulator({ state });
  const keeper = await created(first, { name: "keeper" });
  const fleeting = await created(first, { name: "fleeting", persistent: false });
  assert.equal(lines((await run(first, keeper.session, "sh", "-c", "echo kept > file")).text).at(-1).command.exitCode, 0);
  assert.equal((await first.kill("SIGKILL")).signal, "SIGKILL");

  const second = await startEmulator({ state });
  const seen = (await second.call("GET", "/v2/sandboxes/keeper")).json;
  assert.equal(seen.session.status, "aborted");
  assert.ok(seen.sandbox.currentSnapshotId);
  const dead = await second.call("POST", `${keeper.session}/cmd`, { command: "true" });
  assert.equal(dead.status, 410);
  assert.equal(dead.json.error.code, "sandbox_stopped");
  const resumed = (await second.call("GET", "/v2/sandboxes/keeper?resume=true")).json;
  assert.equal(resumed.resumed, true);
  const read = await second.call("POST", `/v2/sandboxes/sessions/${resumed.session.id}/fs/read`, { path: "file" });
  assert.equal(read.text, "kept\n");
  assert.equal((await second.call("GET", `/v2/sandboxes/${fleeting.name}?resume=true`)).status, 400);
  assert.deepEqual(await second.stop(), { code: 0, signal: null });
  await rm(state, { recursive: true, force: true });
});

test("SIGTERM stops sessions and snapshots them", async () => {
  const state = await newState();
  const first = await startEmulator({ state });
  const box = await created(first, { name: "box" });
  const waiting = run(first, box.session, "sh", "-c", "touch here; echo ready; exec sleep 60");
  // wait for the program, not for a time
  for (;;) {
    const read = await first.call("POST", `${box.session}/fs/read`, { path: "here" });
    if (read.status === 200) break;
  }
  assert.deepEqual(await first.kill("SIGTERM"), { code: 0, signal: null });
  const last = lines((await waiting).text).at(-1);
  assert.equal(last.stream, "error");
  assert.equal(last.data.code, "sandbox_stream_closed");
  const second = await startEmulator({ state });
  const seen = (await second.call("GET", "/v2/sandboxes/box")).json;
  assert.equal(seen.session.status, "stopped");
  assert.ok(seen.sandbox.currentSnapshotId);
  await second.stop();
  await rm(state, { recursive: true, force: true });
});

test("parallel resumes give one session", async () => {
  const box = await created(emulator);
  await emulator.call("POST", `${box.session}/stop`);
  const all = await Promise.all(
    Array.from({ length: 20 }, () => emulator.call("GET", `/v2/sandboxes/${box.name}?resume=true`)),
  );
  assert.equal(new Set(all.map((a) => a.json.session.id)).size, 1);
  assert.equal(all.filter((a) => a.json.resumed).length, 1);
});

test("a stop does not wait for a stalled upload", async () => {
  const box = await created(emulator);
  const { hostname, port } = new URL(emulator.url);
  const socket = connect(Number(port), hostname);
  socket.write(
    `POST ${box.session}/fs/write HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${emulator.token}\r\n` +
      "Content-Type: application/gzip\r\nx-cwd: /tmp\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n",
  );
  await new Promise((resolve) => socket.once("data", resolve)); // "100 Continue": the upload has begun
  const stopped = await emulator.call("POST", `${box.session}/stop`);
  assert.equal(stopped.json.session.status, "stopped");
  const answer = new Promise((resolve) => socket.once("data", (data) => resolve(String(data))));
  socket.write(Buffer.alloc(1000));
  assert.match(await answer, /^HTTP\/1.1 410 /);
  socket.destroy();
});

test("the session ends by itself at its timeout, with a snapshot", async () => {
  const box = await created(emulator, { timeout: 1000 });
  for (;;) {
    const seen = (await emulator.call("GET", `/v2/sandboxes/${box.name}`)).json;
    if (seen.session.status !== "stopped") continue;
    assert.ok(seen.sandbox.currentSnapshotId);
    break;
  }
});

test("stdin by offset", async () => {
  const box = await created(emulator);
  const started = await emulator.call("POST", `${box.session}/cmd`, { command: "cat", attachStdin: true });
  const path = `${box.session}/cmd/${started.json.command.id}`;
  const send = (body) => emulator.call("POST", `${path}/stdin`, body);
  assert.equal((await send({ data: "aGVsbG8K", offset: 0 })).json.bytesWritten, 6);
  assert.equal((await send({})).json.bytesWritten, 6);
  assert.equal((await send({ data: "aGVsbG8K", offset: 3 })).json.bytesWritten, 9);
  assert.equal((await send({ data: "eA==", offset: 99 })).status, 409);
  assert.equal((await send({ close: true, offset: 9 })).status, 200);
  const ended = await emulator.call("GET", `${path}?wait=true`);
  assert.equal(ended.json.command.exitCode, 0);
  const output = lines((await emulator.call("GET", `${path}/logs`)).text).map((l) => l.data).join("");
  assert.equal(output, "hello\nlo\n");
  assert.equal((await send({ data: "eA==" })).json.error.code, "command_not_found_or_exited");
  const deaf = await emulator.call("POST", `${box.session}/cmd`, { command: "sleep", args: ["5"] });
  const refused = await emulator.call("POST", `${box.session}/cmd/${deaf.json.command.id}/stdin`, { data: "eA==" });
  assert.equal(refused.json.error.code, "command_stdin_unavailable");
});

test("faults and journal", async () => {
  const rule = async (r) => {
    await emulator.call("DELETE", "/_emulator/faults");
    assert.equal((await emulator.call("POST", "/_emulator/faults", r)).status, 200);
  };
  await emulator.call("POST", "/_emulator/journal/clear");
  await rule({ match: { method: "POST", path: "^/v3/sandboxes$" }, times: 1, action: { lose_answer: true } });
  await assert.rejects(emulator.call("POST", "/v3/sandboxes", { name: "lost" }));
  assert.equal((await emulator.call("GET", "/v2/sandboxes/lost")).status, 200, "it was done");

  await rule({ match: { method: "POST", path: "^/v3/sandboxes$" }, times: 1, action: { close_before: true } });
  await assert.rejects(emulator.call("POST", "/v3/sandboxes", { name: "never" }));
  assert.equal((await emulator.call("GET", "/v2/sandboxes/never")).status, 404, "it was not done");

  await rule({ match: { prefix: "/v2/sandboxes/lost" }, nth: 2, action: { html: 502 } });
  const three = [];
  for (let i = 0; i < 3; i++) three.push(await emulator.call("GET", "/v2/sandboxes/lost"));
  assert.deepEqual(three.map((a) => a.status), [200, 502, 200]);
  assert.match(three[1].type, /^text\/html/);

  await rule({ match: { prefix: "/v2/sandboxes/lost" }, action: { cut_after_bytes: 10 } });
  await assert.rejects(emulator.call("GET", "/v2/sandboxes/lost"));
  assert.equal((await emulator.call("POST", "/_emulator/faults", { action: { no_such: 1 } })).status, 400);
  await emulator.call("DELETE", "/_emulator/faults");

  const { entries } = (await emulator.call("GET", "/_emulator/journal")).json;
  assert.deepEqual(
    entries.map((e) => [e.method, e.path, e.status]).slice(0, 4),
    [["POST", "/v3/sandboxes", 0], ["GET", "/v2/sandboxes/lost", 200], ["POST", "/v3/sandboxes", 0], ["GET", "/v2/sandboxes/never", 404]],
  );
  assert.match(entries[0].body_sha256, /^[0-9a-f]{64}$/);
});

test("without a token nothing is answered, and errors are JSON", async () => {
  for (const [headers, status] of [[{}, 401], [{ authorization: "Bearer wrong" }, 403]]) {
    const response = await fetch(`${emulator.url}/v2/sandboxes`, { headers });
    assert.equal(response.status, status);
    assert.equal(typeof (await response.json()).error.message, "string");
  }
  const health = await (await fetch(`${emulator.url}/_emulator/health`)).json();
  assert.equal(health.tier, emulator.tier);
});

const exit = (args) =>
  new Promise((resolve) => {
    const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
    let stderr = "";
    child.stderr.on("data", (data) => (stderr += data));
    child.once("close", (code) => resolve({ code, stderr }));
  });

test("a certificate that is none", async () => {
  const state = await newState();
  const file = join(state, "cert.pem");
  await writeFile(file, "nonsense");
  const how = await exit(["--state", state, "--base-from", base, "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0",
    "--tls-cert", file, "--tls-key", file]);
  assert.equal(how.code, 64, how.stderr);
  assert.match(how.stderr, /the TLS certificate or key is no good\n$/);
  await rm(state, { recursive: true, force: true });
});

test("logins: bounded, hashed, and kept over a restart", async () => {
  const state = await newState();
  const first = await startEmulator({ state });
  const form = (e, path, fields) => fetch(e.url + path, { method: "POST", body: new URLSearchParams(fields) });
  const begun = await (await form(first, "/api/login/oauth/device-authorization", { client_id: "c", scope: "openid" })).json();
  assert.equal(new URL(begun.verification_uri).origin, first.url);
  const poll = async (e, fields) => (await form(e, "/api/login/oauth/token", fields)).json();
  const device = { grant_type: "urn:ietf:params:oauth:grant-type:device_code", device_code: begun.device_code };
  assert.deepEqual(await poll(first, device), { error: "authorization_pending" });
  assert.equal((await form(first, "/login/device", { user_code: begun.user_code, token: first.token, action: "approve" })).status, 200);
  const tokens = await poll(first, device);
  assert.deepEqual(await poll(first, device), { error: "invalid_grant" }, "a code is good for one login");
  assert.deepEqual(await poll(first, { grant_type: "password" }), { error: "unsupported_grant_type" });
  assert.deepEqual(await poll(first, {}), { error: "invalid_request" });
  assert.deepEqual(await (await form(first, "/api/login/oauth/device-authorization", {})).json(), { error: "invalid_client" });
  assert.deepEqual(await poll(first, { grant_type: "refresh_token", refresh_token: "%" }), { error: "invalid_grant" });
  await first.kill("SIGKILL");
  const second = await startEmulator({ state });
  const user = await fetch(`${second.url}/v2/user`, { headers: { authorization: `Bearer ${tokens.access_token}` } });
  assert.equal((await user.json()).user.username, "local");
  const page = await (await fetch(`${second.url}/login/device?user_code=${encodeURIComponent('"><script>')}`)).text();
  assert.doesNotMatch(page, /<script>/);
  await second.stop();
  await rm(state, { recursive: true, force: true });
});

test("exit codes and one clear sentence", async () => {
  const state = await newState();
  const file = join(state, "file");
  await writeFile(file, "");
  const taken = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => taken.once("listening", resolve));
  const cases = [
    [["--state"], 64, /--state/],
    [["--state", state, "--listen", "nonsense"], 64, /HOST:PORT/],
    [["--state", state, "--no-such"], 64, /--no-such/],
    [["--state", state, "--listen", "127.0.0.1:0"], 66, /no base 'default' has been imported/],
    [["--state", state, "--tls-listen", "127.0.0.1:0"], 64, /go together/],
    [["--state", state, "--base-from", base, "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--tls-cert",
      "/no/such/file", "--tls-key", file], 64, /cannot read the certificate \/no\/such\/file/],
    [["routes", "superfluous"], 64, /superfluous/],
    [["import-base", "--state", state, "/no/such/file"], 66, /\/no\/such\/file/],
    [["--state", file, "--listen", "127.0.0.1:0"], 73, /state directory/],
    [["--state", emulator.state, "--listen", "127.0.0.1:0"], 73, /./], // in use by the other emulator
    [["--state", state, "--base-from", base, "--listen", `127.0.0.1:${taken.address().port}`], 75, /cannot listen on/],
  ];
  for (const [args, code, message] of cases) {
    const how = await exit(args);
    assert.equal(how.code, code, `${args.join(" ")}: ${how.stderr}`);
    assert.match(how.stderr, message);
    assert.match(how.stderr, /^sandgate-emulator: [^\n]+\n$/, "one sentence");
  }
  taken.close();
  await rm(state, { recursive: true, force: true });
});
