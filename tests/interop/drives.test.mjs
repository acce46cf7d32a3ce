// Drives, mounts, forks and the snapshot tree through the vendor's own SDK. (E5, E9, A6/B3)
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { APIError, Drive, Sandbox, Snapshot } from "@vercel/sandbox";
import { startEmulator } from "./emulator.mjs";

let emulator, options;
before(async () => {
  emulator = await startEmulator();
  options = emulator.options;
});
after(async () => {
  assert.deepEqual(await emulator.stop(), { code: 0, signal: null });
});

const sh = async (sandbox, line) => {
  const done = await sandbox.runCommand("sh", ["-c", line]);
  assert.equal(done.exitCode, 0, await done.stderr());
  return done.stdout();
};
const refused = (status, code) => (error) => {
  assert.ok(error instanceof APIError, String(error));
  assert.equal(error.response.status, status);
  assert.equal(error.json.error.code, code);
  return true;
};

test("a drive is made once, listed and deleted", async () => {
  const drive = await Drive.getOrCreate({ ...options, name: "sdk", maxSize: 1 << 20 });
  assert.match(drive.driveId, /^drive_/);
  assert.deepEqual([drive.name, drive.projectId, drive.region, drive.maxSize], ["sdk", "prj_local", "iad1", 1 << 20]);
  assert.equal((await Drive.getOrCreate({ ...options, name: "sdk" })).driveId, drive.driveId);
  await assert.rejects(Drive.getOrCreate({ ...options, name: "sdk", region: "sfo1" }), refused(409, "conflict"));
  for (let i = 0; i < 4; i++) await Drive.getOrCreate({ ...options, name: `page${i}` });
  const all = await (await Drive.list({ ...options, limit: 2 })).toArray();
  assert.deepEqual(all.map((d) => d.name).sort(), ["page0", "page1", "page2", "page3", "sdk"]);
  const named = await Drive.list({ ...options, sortBy: "name", sortOrder: "asc", namePrefix: "page" });
  assert.equal(named.drives[0].name, "page0");
  for (const found of await (await Drive.list(options)).toArray())
    await (await Drive.getOrCreate({ ...options, name: found.name })).delete();
  assert.deepEqual(await (await Drive.list(options)).toArray(), []);
});

test("mounts: one writer, any number of frozen readers, the next session after update", async () => {
  const drive = await Drive.getOrCreate({ ...options, name: "shared" });
  await assert.rejects(Sandbox.create({ ...options, mounts: { "/in": drive.snapshot() } }), refused(400, "drive_not_initialized"));
  const writer = await Sandbox.create({ ...options, name: "writer", mounts: { "/data": drive } });
  await sh(writer, "echo one > /data/f");
  const held = await Drive.getOrCreate({ ...options, name: "shared" });
  assert.equal(held.currentSandboxName, "writer");
  assert.equal(held.currentSessionId, writer.currentSession().sessionId);
  await assert.rejects(Sandbox.create({ ...options, mounts: { "/data": drive } }), refused(409, "conflict"));
  await assert.rejects(drive.delete(), refused(409, "conflict"));
  const reader = await Sandbox.create({ ...options, mounts: { "/in": drive.snapshot() } });
  await sh(writer, "echo two >> /data/f");
  assert.equal(await sh(reader, "cat /in/f"), "one\n");
  assert.notEqual((await reader.runCommand("touch", ["/in/x"])).exitCode, 0);
  assert.deepEqual(Object.keys(reader.mounts), ["/in"]);
  assert.equal(reader.mounts["/in"].mode, "snapshot");
  await writer.stop();
  assert.equal((await Drive.getOrCreate({ ...options, name: "shared" })).currentSandboxName, undefined);
  await reader.update({ mounts: { "/data": drive } });
  assert.equal(await sh(reader, "ls /in"), "f\n", "not before the next session");
  await reader.stop();
  assert.equal(await sh(reader, "cat /data/f; ls /in"), "one\ntwo\n");
  for (const sandbox of [writer, reader]) await sandbox.delete();
  await drive.delete();
});

test("fork: what is configured and the last snapshot, not the live files", async () => {
  const source = await Sandbox.create({ ...options, ports: [3000], env: { A: "1" }, tags: { t: "v" }, resources: { vcpus: 1 } });
  await sh(source, "echo kept > f");
  const snapshot = await source.snapshot();
  await sh(source, "echo live > f");
  const fork = await Sandbox.fork({ ...options, sourceSandbox: source.name, name: "forked" });
  assert.equal(fork.name, "forked");
  assert.equal(fork.currentSnapshotId, snapshot.snapshotId);
  assert.equal(await sh(fork, "cat f; echo $A"), "kept\n1\n");
  assert.notEqual(fork.domain(3000), source.domain(3000));
  const other = await Sandbox.fork({ ...options, sourceSandbox: source.name, env: { A: "2" }, ports: [] });
  assert.equal(await sh(other, "echo $A"), "2\n");
  assert.throws(() => other.domain(3000));
  await assert.rejects(Sandbox.fork({ ...options, sourceSandbox: "no-such" }), refused(404, "not_found"));
  for (const sandbox of [source, fork, other]) await sandbox.delete();
});

test("the tree of snapshots, page by page, up and down", async () => {
  const sandbox = await Sandbox.create(options);
  const chain = [];
  for (let i = 0; i < 4; i++) {
    await sh(sandbox, `echo ${i} >> log`);
    chain.push((await sandbox.snapshot()).snapshotId);
  }
  const ids = (page) => page.snapshots.map((node) => node.snapshot.id);
  const up = await Snapshot.tree({ ...options, snapshotId: chain[3], limit: 2 });
  assert.deepEqual(ids(up), [chain[2], chain[1]]);
  assert.deepEqual((await up.toArray()).map((node) => node.snapshot.id), [chain[2], chain[1], chain[0]]);
  const down = await Snapshot.tree({ ...options, snapshotId: chain[0], sortOrder: "asc" });
  assert.deepEqual(ids(down), chain.slice(1));
  const first = await Snapshot.get({ ...options, snapshotId: chain[0] });
  await first.delete();
  assert.equal((await Snapshot.get({ ...options, snapshotId: chain[0] })).status, "deleted");
  assert.equal(await sh(await Sandbox.create({ ...options, source: { type: "snapshot", snapshotId: chain[3] } }), "cat log"), "0\n1\n2\n3\n");
  await sandbox.delete();
});

test("region, failover and network come back as they were given", async () => {
  const sandbox = await Sandbox.create({ ...options, region: "fra1", failoverRegions: ["cdg1"], networkId: "net_1" });
  assert.equal(sandbox.region, "fra1");
  assert.deepEqual(sandbox.failoverRegions, ["cdg1"]);
  assert.equal(sandbox.currentSession().region, "fra1");
  await sandbox.update({ failoverRegions: [], networkId: null });
  assert.deepEqual(sandbox.failoverRegions, []);
  await assert.rejects(sandbox.update({ failoverRegions: ["fra1"] }), refused(400, "bad_request"));
  await sandbox.delete();
});
