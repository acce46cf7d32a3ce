// Run by ../eve.test.mjs on the Node.js that eve wants: its Vercel environment, as its runtime drives it, against an
// emulator.  The environment is reached by its file, because the package hands it to its own runtime alone.
import assert from "node:assert/strict";
import { createVercelSandboxProvider } from "./node_modules/eve/dist/src/execution/sandbox/bindings/vercel.js";

const { EMULATOR_URL: url, EMULATOR_TOKEN: token } = process.env;
const call = async (method, path) => (await fetch(url + path, { method, headers: { authorization: `Bearer ${token}` } })).json();
const options = {
  token, teamId: "team_local", projectId: "prj_eve", tags: { kind: "eve" }, env: { GIVEN: "1" },
  fetch: (to, init) => fetch(String(to).replace("https://vercel.com", url), init),
};
let prepared = 0;
const provider = createVercelSandboxProvider({
  ...options,
  prepare: async (sandbox) => {
    prepared++;
    await sandbox.writeTextFile({ path: "prepared", content: "prepared" });
  },
});
const host = { loadOptionalPackage: ({ importModule }) => importModule(), resolveProjectPath: (path) => path };
const session = (id) => ({ host, session: { id }, storagePath: "/nonexistent" });
const context = {
  files: { list: async () => [] }, host, sourceRevision: "1", storagePath: "/nonexistent",
  resources: {
    source: { kind: "inline", key: "1" },
    workspace: { key: "1", mountPath: "/workspace", targetPath: "/workspace", files: [{ relativePath: "seed/file", content: "seed" }] },
  },
};
const said = async (sandbox, command) => {
  const { exitCode, stdout, stderr } = await sandbox.run({ command });
  assert.equal(exitCode, 0, stderr);
  return stdout;
};

// a template once, and from then on its snapshot
const artifact = await provider.prepare(context);
assert.match(artifact.snapshotId, /^snap_/);
assert.deepEqual(await provider.prepare(context), artifact);
assert.equal(prepared, 1);

const first = await provider.start(session("one"), {}, artifact);
const sandbox = first.handle.sandbox;
assert.match(sandbox.name, /^eve-sbx-vercel-[0-9a-f]{32}$/);
assert.equal(await said(sandbox, "pwd; cat prepared seed/file; echo; echo $AI_AGENT $GIVEN"), "/workspace\npreparedseed\neve 1\n");
const listed = await call("GET", `/v2/sandboxes/${sandbox.name}?projectId=prj_eve`);
assert.deepEqual(listed.sandbox.tags, { kind: "eve", sessionId: "one" });

const failing = await sandbox.run({ command: "echo out; echo err >&2; exit 3" });
assert.deepEqual([failing.exitCode, failing.stdout, failing.stderr], [3, "out\n", "err\n"]);
const bytes = new Uint8Array(300_000).map((_, i) => i % 251);
await sandbox.writeBinaryFile({ path: "deep/er/bytes", content: bytes });
assert.deepEqual(new Uint8Array(await sandbox.readBinaryFile({ path: "deep/er/bytes" })), bytes);
await sandbox.writeTextFile({ path: "/workspace/text", content: "tëxt" });
assert.equal(await sandbox.readTextFile({ path: "text" }), "tëxt");
await sandbox.removePath({ path: "deep", recursive: true });
assert.equal(await sandbox.readTextFile({ path: "deep/er/bytes" }), null);
const spawned = await sandbox.spawn({ command: "for i in 1 2 3; do echo $i; done" });
let streamed = "";
for await (const part of spawned.stdout) streamed += typeof part === "string" ? part : Buffer.from(part);
assert.equal(streamed, "1\n2\n3\n");
assert.equal((await spawned.wait()).exitCode, 0);
const endless = await sandbox.spawn({ command: "exec sleep 60" });
await endless.kill();
assert.notEqual((await endless.wait()).exitCode, 0);
await sandbox.setNetworkPolicy("deny-all");
assert.equal((await call("GET", `/v2/sandboxes/${sandbox.name}?projectId=prj_eve`)).session.networkPolicy.mode, "deny-all");

// starting the same session finds it; stopping and resuming keeps its files
const same = await provider.start(session("one"), {}, artifact);
assert.equal(same.handle.sandbox.name, sandbox.name);
await first.handle.onSandboxStop();
const resumed = await provider.resume(session("one"), artifact, first.state);
assert.equal(await resumed.sandbox.readTextFile({ path: "text" }), "tëxt");

const other = await provider.start(session("two"), {}, artifact);
assert.equal(await other.handle.sandbox.readTextFile({ path: "text" }), null);
await other.handle.onSandboxDelete();
await assert.rejects(provider.resume(session("two"), artifact, other.state), /no longer exists/);
await resumed.onSandboxDelete();

// a template whose snapshot went away is told apart; another revision has one of its own
await call("DELETE", `/v2/sandboxes/snapshots/${artifact.snapshotId}`);
await assert.rejects(provider.start(session("three"), {}, artifact), (error) => error.constructor.name === "SandboxTemplateNotProvisionedError");
const again = await provider.prepare({ ...context, sourceRevision: "2" });
assert.notEqual(again.snapshotId, artifact.snapshotId);
assert.equal(prepared, 2);
await provider.start(session("three"), {}, again);
console.log("passed");
