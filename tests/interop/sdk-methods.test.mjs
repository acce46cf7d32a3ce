// Every public method and property of the official SDK that the API supports, against the emulator.  What is public
// is read from the package's own type declarations, so a newer SDK that has more fails here until it is proven too.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import * as sdk from "@vercel/sandbox";
import { startEmulator } from "./emulator.mjs";

const files = {
  Sandbox: "sandbox", Session: "session", Command: "command", CommandFinished: "command", Snapshot: "snapshot",
  Drive: "drive", FileSystem: "filesystem", SandboxUser: "sandbox-user",
};
// "Class.member": why nothing here calls it.
const excluded = {};
const used = new Set();

async function declared(name) {
  const path = fileURLToPath(import.meta.resolve("@vercel/sandbox")).replace(/index\.(c?js)$/, `${files[name]}.d.ts`);
  const text = await readFile(path, "utf8");
  const body = text.slice(text.indexOf(`declare class ${name} `)).split("\n}\n")[0];
  const members = new Map(); // member → static
  for (const [, comment, modifiers, member] of body.matchAll(
    /^((?: {2}\/\*\*[^]*?\*\/\n)?) {2}((?:(?:static|get|readonly|private|protected|declare) )*)(\w+)[?]?[<(:;]/gm,
  )) {
    if (/private|protected/.test(modifiers) || /@internal/.test(comment) || member === "constructor") continue;
    members.set(member, modifiers.includes("static"));
  }
  return members;
}

// Notes each use; what is called on an instance's own field is not a member of the prototype and needs no note.
function watch(name, members) {
  for (const [member, isStatic] of members) {
    const owner = isStatic ? sdk[name] : sdk[name].prototype;
    const found = Object.getOwnPropertyDescriptor(owner, member);
    if (!found) continue;
    const note = () => used.add(`${name}.${member}`);
    if (found.get)
      Object.defineProperty(owner, member, { ...found, get() { note(); return found.get.call(this); } });
    else
      Object.defineProperty(owner, member, { ...found, value(...args) { note(); return found.value.apply(this, args); } });
  }
}

let emulator, options, scratch;
const all = new Map();
before(async () => {
  for (const name of Object.keys(files)) {
    all.set(name, await declared(name));
    watch(name, all.get(name));
  }
  emulator = await startEmulator({ args: ["--policy=record-only"] });
  options = emulator.options;
  scratch = await mkdtemp(join(tmpdir(), "sandgate-sdk-"));
});
after(async () => {
  await rm(scratch, { recursive: true, force: true });
  assert.deepEqual(await emulator.stop(), { code: 0, signal: null });
});

const { Sandbox, Snapshot, Drive } = sdk;
const text = async (stream) => {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts).toString();
};
const recent = (date) => assert.ok(date instanceof Date && Math.abs(Date.now() - date) < 60_000, String(date));

test("what a sandbox and its session tell", async () => {
  const drive = await Drive.getOrCreate({ ...options, name: "told", maxSize: 1 << 20 });
  const s = await Sandbox.create({
    ...options, name: "told", ports: [3000], tags: { a: "b" }, timeout: 600_000, resources: { vcpus: 1 }, region: "iad1",
    mounts: { "/mnt/told": drive }, snapshotExpiration: 86_400_000, keepLastSnapshots: { count: 2 },
  });
  assert.deepEqual([s.name, s.persistent, s.region, s.vcpus, s.memory, s.status], ["told", true, "iad1", 1, 2048, "running"]);
  assert.deepEqual(s.routes.map((r) => r.port), [3000]);
  assert.equal(s.domain(3000), `https://${s.routes[0].subdomain}.vercel.run`);
  assert.deepEqual(s.tags, { a: "b" });
  assert.equal(s.mounts["/mnt/told"].mode, "read-write");
  assert.equal(s.snapshotExpiration, 86_400_000);
  assert.equal(s.keepLastSnapshots.count, 2);
  assert.equal(s.networkPolicy, "allow-all");
  assert.match(s.image, /universal@sha256:/);
  assert.equal(s.timeout, 600_000);
  assert.equal(s.cwd, (await (await s.runCommand("pwd")).stdout()).trim());
  for (const date of [s.createdAt, s.updatedAt, s.statusUpdatedAt]) recent(date);
  assert.ok(s.expiresAt > s.createdAt);
  assert.ok(s.interactivePort > 0);
  for (const absent of [s.runtime, s.networkId, s.sourceSnapshotId, s.currentSnapshotId, s.activeCpuUsageMs, s.networkTransfer])
    assert.equal(absent, undefined);
  assert.deepEqual(s.failoverRegions ?? [], []);

  const session = s.currentSession();
  assert.match(session.sessionId, /^sbx_/);
  assert.deepEqual([session.status, session.vcpus, session.memory, session.region, session.timeout, session.cwd],
    ["running", 1, 2048, "iad1", 600_000, s.cwd]);
  assert.equal(session.networkPolicy, "allow-all");
  assert.equal(session.interactivePort, s.interactivePort);
  assert.deepEqual(session.routes, s.routes);
  assert.equal(session.domain(3000), s.domain(3000));
  for (const date of [session.createdAt, session.requestedAt, session.startedAt, session.updatedAt]) recent(date);
  for (const absent of [session.runtime, session.sourceSnapshotId, session.requestedStopAt, session.stoppedAt,
    session.abortedAt, session.snapshottedAt, session.duration, session.activeCpuUsageMs, session.networkTransfer])
    assert.equal(absent, undefined);
  assert.ok((await session.runCommand("true")).exitCode === 0);

  await s.stop();
  assert.equal(s.status, "stopped");
  recent(session.stoppedAt);
  recent(session.requestedStopAt);
  assert.ok(session.duration >= 0);
  assert.ok(session.activeCpuUsageMs >= 0 && session.networkTransfer.ingress >= 0);
  const again = await Sandbox.get({ ...options, name: "told" });
  assert.match(again.currentSnapshotId, /^snap_/);
  assert.ok(again.totalDurationMs >= 0 && again.totalActiveCpuDurationMs >= 0);
  assert.ok(again.totalIngressBytes >= 0 && again.totalEgressBytes >= 0);
  assert.ok(again.activeCpuUsageMs >= 0 && again.networkTransfer.egress >= 0);
  await again.delete({ deleteOrphanSnapshots: true });
  await drive.delete();
});

test("commands, by the sandbox and by the session", async () => {
  const s = await Sandbox.create(options);
  for (const target of [s, s.currentSession()]) {
    const done = await target.runCommand("sh", ["-c", "echo out; echo err >&2; exit 3"]);
    assert.deepEqual([done.exitCode, await done.stdout(), await done.stderr(), done.cwd], [3, "out\n", "err\n", s.cwd]);
    assert.ok(Math.abs(Date.now() - done.startedAt) < 60_000);
    assert.equal((await done.wait()).exitCode, 3);
    const running = await target.runCommand({ cmd: "cat", args: ["/dev/zero"], detached: true });
    const same = await target.getCommand(running.cmdId);
    const logs = same.logs();
    for await (const line of logs) {
      assert.equal(line.stream, "stdout");
      break; // closes it
    }
    logs.close();
    await same.kill("SIGKILL");
    assert.equal((await running.wait()).exitCode, 137);
  }
  const both = await s.runCommand({ cmd: "sh", args: ["-c", "echo one; sleep 0.05; echo two >&2"], detached: true });
  assert.equal((await both.wait()).exitCode, 0);
  assert.equal(await (await s.getCommand(both.cmdId)).output("both"), "one\ntwo\n");
  const late = new AbortController();
  setTimeout(() => late.abort(), 200);
  await assert.rejects(s.runCommand({ cmd: "sleep", args: ["60"], signal: late.signal }), /abort/i);
  await s.delete();
});

test("files, by the sandbox and by the session", async () => {
  const s = await Sandbox.create(options);
  for (const [n, target] of [s, s.currentSession()].entries()) {
    await target.mkDir(`dir${n}`);
    await target.writeFiles([
      { path: `dir${n}/run`, content: "#!/bin/sh\necho ran\n", mode: 0o755 },
      { path: "/tmp/bytes", content: new Uint8Array([0, 255, 13, 10]) },
    ]);
    assert.equal(await (await target.runCommand(`./dir${n}/run`)).stdout(), "ran\n");
    assert.equal(await text(await target.readFile({ path: "run", cwd: `dir${n}` })), "#!/bin/sh\necho ran\n");
    assert.deepEqual([...(await target.readFileToBuffer({ path: "/tmp/bytes" }))], [0, 255, 13, 10]);
    assert.equal(await target.readFile({ path: "none" }), null);
    const local = await target.downloadFile({ path: "/tmp/bytes" }, { path: `sub${n}/bytes`, cwd: scratch }, { mkdirRecursive: true });
    assert.deepEqual([...(await readFile(local))], [0, 255, 13, 10]);
  }
  await assert.rejects(s.mkDir("dir0"), (error) => error.response.status >= 400);
  await s.delete();
});

test("the file system object", async () => {
  const s = await Sandbox.create(options);
  const { fs } = s;
  await fs.mkdir("a/b", { recursive: true });
  await fs.mkdir("a/c");
  await fs.writeFile("a/file", "one");
  await fs.appendFile("a/file", " two");
  assert.equal(await fs.readFile("a/file", "utf8"), "one two");
  assert.deepEqual((await fs.readdir("a")).sort(), ["b", "c", "file"]);
  const types = Object.fromEntries((await fs.readdir("a", { withFileTypes: true })).map((e) => [e.name, e.isDirectory()]));
  assert.deepEqual(types, { b: true, c: true, file: false });
  await fs.symlink("file", "a/link");
  assert.equal(await fs.readlink("a/link"), "file");
  assert.equal(await fs.realpath("a/link"), `${s.cwd}/a/file`);
  assert.ok((await fs.lstat("a/link")).isSymbolicLink());
  await fs.chmod("a/file", 0o600);
  const stat = await fs.stat("a/link");
  assert.deepEqual([stat.size, stat.mode & 0o777, stat.isFile()], [7, 0o600, true]);
  await fs.chown("a/file", stat.uid, stat.gid);
  await fs.truncate("a/file", 3);
  await fs.copyFile("a/file", "a/copy");
  await fs.rename("a/copy", "a/moved");
  assert.equal(await fs.readFile("a/moved", { encoding: "utf8" }), "one");
  await fs.access("a/moved");
  await fs.unlink("a/moved");
  await assert.rejects(fs.access("a/moved"), (error) => error.code === "ENOENT");
  assert.equal(await fs.exists("a/moved"), false);
  await fs.rmdir("a/b");
  await fs.rm("a", { recursive: true });
  await assert.rejects(fs.stat("a"), (error) => error.code === "ENOENT");
  assert.match(await fs.mkdtemp("/tmp/made-"), /^\/tmp\/made-\w{6}/);
  await s.delete();
});

test("users and groups", async () => {
  const s = await Sandbox.create(options);
  const self = await s.getDefaultUser();
  assert.equal(self.username, emulator.tier === "single-id" ? self.username : "vercel-sandbox");
  if (emulator.tier === "single-id") {
    // one id has no others: the calls are made, and refused by the programs inside
    await assert.rejects(s.createUser("ada"));
    await assert.rejects(s.createGroup("team"));
    return s.delete();
  }
  const ada = await s.createUser("ada");
  assert.equal(ada.homeDir, "/home/ada");
  assert.equal(ada.username, "ada");
  await assert.rejects(s.createUser("ada"), (error) => error instanceof sdk.SandboxUserAlreadyExistsError);
  assert.equal(await (await ada.runCommand("sh", ["-c", "id -un; pwd"])).stdout(), "ada\n/home/ada\n");
  await ada.mkDir("notes");
  await ada.writeFiles([{ path: "notes/one", content: "ada's" }]);
  assert.equal(await text(await ada.readFile({ path: "notes/one" })), "ada's");
  assert.equal((await ada.readFileToBuffer({ path: "notes/one" })).toString(), "ada's");
  assert.equal((await readFile(await ada.downloadFile({ path: "notes/one" }, { path: "ada", cwd: scratch }))).toString(), "ada's");
  assert.equal(await (await s.asUser("root").runCommand("id", ["-u"])).stdout(), "0\n");

  const group = await s.createGroup("team");
  assert.deepEqual(group, { groupname: "team", sharedDir: "/shared/team" });
  const groups = async () => (await (await ada.runCommand("id", ["-nG"])).stdout()).trim().split(" ");
  await s.addUserToGroup("ada", "team");
  assert.ok((await groups()).includes("team"));
  await s.removeUserFromGroup("ada", "team");
  assert.ok(!(await groups()).includes("team"));
  await ada.addToGroup("team");
  assert.ok((await groups()).includes("team"));
  await ada.removeFromGroup("team");
  assert.ok(!(await groups()).includes("team"));
  await s.delete();
});

test("updates, time and policy", async () => {
  const s = await Sandbox.create({ ...options, name: "changed" });
  await s.update({ persistent: false, resources: { vcpus: 1 }, timeout: 900_000, tags: { x: "y" }, ports: [5000],
    snapshotExpiration: 172_800_000, keepLastSnapshots: { count: 3 } });
  const seen = await Sandbox.get({ ...options, name: "changed" });
  assert.deepEqual([seen.persistent, seen.vcpus, seen.tags.x, seen.snapshotExpiration, seen.keepLastSnapshots.count],
    [false, 1, "y", 172_800_000, 3]);
  await s.update({ keepLastSnapshots: null });
  assert.equal((await Sandbox.get({ ...options, name: "changed" })).keepLastSnapshots, undefined);
  const before = s.currentSession().timeout;
  await s.extendTimeout(60_000);
  assert.equal(s.currentSession().timeout, before + 60_000);
  await s.currentSession().extendTimeout(60_000);
  assert.equal(s.currentSession().timeout, before + 120_000);
  const policy = { allow: { "api.example.com": [{ transform: [{ headers: { authorization: "Bearer x" } }] }] } };
  assert.ok(await s.updateNetworkPolicy(policy));
  await s.currentSession().update({ networkPolicy: "deny-all" });
  assert.equal(s.currentSession().networkPolicy, "deny-all");
  const sessions = await (await s.listSessions({ limit: 1 })).toArray();
  assert.equal(sessions[0].id, s.currentSession().sessionId);
  for (const target of [s, s.currentSession()]) {
    const { url, token } = await target.openInteractive();
    assert.match(url, /^wss?:\/\//);
    assert.ok(token);
  }
  await s.delete();
});

test("snapshots, forks and what exists or not", async () => {
  const s = await Sandbox.create({ ...options, name: "origin", runtime: "node24" });
  assert.equal(s.runtime, "node24");
  assert.equal(s.currentSession().runtime, "node24");
  await s.writeFiles([{ path: "seed", content: "seed" }]);
  const snapshot = await s.snapshot({ expiration: 86_400_000 });
  assert.equal(snapshot.status, "created");
  assert.ok(snapshot.sizeBytes > 0);
  assert.deepEqual(snapshot.regions, ["iad1"]);
  assert.equal(snapshot.sourceSessionId, s.currentSession().sessionId);
  for (const date of [snapshot.createdAt, snapshot.updatedAt]) recent(date);
  assert.ok(Math.abs(snapshot.expiresAt - Date.now() - 86_400_000) < 60_000);
  recent(s.currentSession().snapshottedAt);
  assert.equal((await Snapshot.get({ ...options, snapshotId: snapshot.snapshotId })).snapshotId, snapshot.snapshotId);
  assert.deepEqual((await (await s.listSnapshots()).toArray()).map((x) => x.id), [snapshot.snapshotId]);
  assert.deepEqual((await (await Snapshot.list({ ...options, name: "origin" })).toArray()).map((x) => x.id), [snapshot.snapshotId]);
  const fork = await Sandbox.fork({ ...options, sourceSandbox: "origin" });
  assert.equal(fork.sourceSnapshotId, snapshot.snapshotId);
  assert.equal(fork.currentSession().sourceSnapshotId, snapshot.snapshotId);
  assert.equal((await fork.readFileToBuffer({ path: "seed" })).toString(), "seed");
  await fork.currentSession().snapshot();
  const tree = await (await Snapshot.tree({ ...options, snapshotId: snapshot.snapshotId, sortOrder: "asc" })).toArray();
  assert.equal(tree.length, 1, "the fork's, below ours");
  assert.equal((await Sandbox.getOrCreate({ ...options, name: "origin" })).name, "origin");
  const fresh = await Sandbox.getOrCreate({ ...options, name: "fresh" });
  await fresh.currentSession().stop();
  const names = (await (await Sandbox.list({ ...options, sortBy: "name", sortOrder: "asc" })).toArray()).map((x) => x.name);
  assert.deepEqual(names, ["fresh", fork.name, "origin"].sort());
  await Promise.all([s, fork, fresh].map((x) => x.delete()));
  await snapshot.delete();
  assert.equal((await Snapshot.get({ ...options, snapshotId: snapshot.snapshotId })).status, "deleted");
});

test("drives", async () => {
  const drive = await Drive.getOrCreate({ ...options, name: "shelf", maxSize: 1 << 20 });
  assert.deepEqual([drive.name, drive.projectId, drive.region, drive.maxSize], ["shelf", "prj_local", "iad1", 1 << 20]);
  assert.match(drive.driveId, /^drive_/);
  for (const date of [drive.createdAt, drive.updatedAt]) recent(date);
  const s = await Sandbox.create({ ...options, mounts: { "/mnt/shelf": drive } });
  const [held] = await (await Drive.list({ ...options, sortBy: "name", namePrefix: "shelf" })).toArray();
  assert.equal(held.currentSandboxName, s.name);
  assert.equal(held.currentSessionId, s.currentSession().sessionId);
  await s.runCommand("sh", ["-c", "echo kept > /mnt/shelf/file"]);
  await s.delete();
  const reader = await Sandbox.create({ ...options, mounts: { "/in": drive.snapshot() } });
  assert.equal((await reader.readFileToBuffer({ path: "/in/file" })).toString(), "kept\n");
  await reader.delete();
  await drive.delete();
});

test("credentials from an OIDC token", async () => {
  const { json } = await emulator.call("POST", "/v1/projects/prj_oidc/token?source=vercel-oidc-refresh&teamId=team_oidc");
  const before = process.env.VERCEL_OIDC_TOKEN;
  process.env.VERCEL_OIDC_TOKEN = json.token;
  try {
    const s = await Sandbox.create({ fetch: options.fetch, name: "by-oidc" });
    assert.equal((await Sandbox.get({ fetch: options.fetch, name: "by-oidc" })).name, "by-oidc");
    assert.equal((await emulator.call("GET", "/v2/sandboxes/by-oidc?projectId=prj_oidc")).status, 200);
    await s.delete();
    process.env.VERCEL_OIDC_TOKEN = json.token.replace(/.$/, (c) => (c === "A" ? "Q" : "A"));
    await assert.rejects(Sandbox.create({ fetch: options.fetch }), (error) => error.response.status === 403);
  } finally {
    if (before === undefined) delete process.env.VERCEL_OIDC_TOKEN;
    else process.env.VERCEL_OIDC_TOKEN = before;
  }
});

test("nothing public is left out", () => {
  const missing = [];
  for (const [name, members] of all) {
    assert.ok(members.size > 0, `the declarations of ${name} were read`);
    for (const [member, isStatic] of members) {
      const owner = isStatic ? sdk[name] : sdk[name].prototype;
      const id = `${name}.${member}`;
      if (!Object.getOwnPropertyDescriptor(owner, member)) continue; // a plain field of instances
      if (!used.has(id) && !excluded[id]) missing.push(id);
      assert.ok(!(used.has(id) && excluded[id]), `${id} is excluded and used`);
    }
  }
  // what one id cannot have is not called there
  const users = (id) => emulator.tier === "single-id" && /^SandboxUser\.|asUser|UserToGroup|UserFromGroup/.test(id);
  assert.deepEqual(missing.filter((id) => !users(id)), []);
});
