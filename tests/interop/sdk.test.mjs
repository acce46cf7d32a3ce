// The unmodified official SDK against the emulator (A24): what it can do here is what the gateway may rely on.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Sandbox, Snapshot } from "@vercel/sandbox";
import { startEmulator } from "./emulator.mjs";

let emulator;
before(async () => {
  emulator = await startEmulator();
});
after(async () => {
  const how = await emulator.stop();
  assert.deepEqual(how, { code: 0, signal: null }, "the emulator stops cleanly, its leak checker content");
});

// The one id of that tier is called root.
const user = () => (emulator.tier === "single-id" ? "root" : "vercel-sandbox");
const create = (more = {}) => Sandbox.create({ ...emulator.options, ...more });

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  assert.fail("it should have failed");
}

test("create, run, write, read, stop, resume with files, delete", async () => {
  const sandbox = await create({ name: "walk", ports: [3000], tags: { kind: "walk" } });
  assert.equal(sandbox.name, "walk");
  assert.equal(sandbox.status, "running");
  assert.match(sandbox.domain(3000), /^https:\/\/sb-[0-9a-z]{12}\.vercel\.run$/);

  const done = await sandbox.runCommand("sh", ["-c", "echo out; echo err >&2; exit 3"]);
  assert.equal(done.exitCode, 3);
  assert.equal(await done.stdout(), "out\n");
  assert.equal(await done.stderr(), "err\n");

  await sandbox.writeFiles([
    { path: "deep/er/hello.txt", content: Buffer.from("hello, wörld\n") },
    { path: "/tmp/bytes", content: Buffer.from([0, 255, 10, 0]) },
  ]);
  assert.equal((await sandbox.readFileToBuffer({ path: "deep/er/hello.txt" })).toString(), "hello, wörld\n");
  assert.deepEqual([...(await sandbox.readFileToBuffer({ path: "/tmp/bytes" }))], [0, 255, 10, 0]);
  assert.equal(await sandbox.readFileToBuffer({ path: "missing" }), null);
  const owner = await sandbox.runCommand("stat", ["-c", "%U %a", "deep/er/hello.txt"]);
  assert.equal(await owner.stdout(), `${user()} 644\n`);

  await sandbox.stop();
  const again = await Sandbox.get({ ...emulator.options, name: "walk", resume: true });
  assert.equal(again.status, "running");
  assert.equal((await again.readFileToBuffer({ path: "deep/er/hello.txt" })).toString(), "hello, wörld\n");
  await again.delete();
  const gone = await failure(Sandbox.get({ ...emulator.options, name: "walk" }));
  assert.equal(gone.response.status, 404);
});

test("detached command with logs, wait and a late second reader", async () => {
  const sandbox = await create();
  const command = await sandbox.runCommand({
    cmd: "sh",
    args: ["-c", "for i in 1 2 3; do echo line $i; sleep 0.1; done; echo ü >&2"],
    detached: true,
  });
  let stdout = "";
  let stderr = "";
  for await (const line of command.logs()) {
    if (line.stream === "stdout") stdout += line.data;
    else stderr += line.data;
  }
  assert.equal(stdout, "line 1\nline 2\nline 3\n");
  assert.equal(stderr, "ü\n");
  assert.equal((await command.wait()).exitCode, 0);
  const fetched = await sandbox.getCommand(command.cmdId);
  assert.equal(await fetched.output("both"), "line 1\nline 2\nline 3\nü\n");
  await sandbox.delete();
});

test("kill, timeout, environment, sudo, working directory", async () => {
  const sandbox = await create({ env: { FROM_SANDBOX: "1", BOTH: "sandbox" } });
  const sleeper = await sandbox.runCommand({ cmd: "sleep", args: ["60"], detached: true });
  await sleeper.kill("SIGTERM");
  assert.equal((await sleeper.wait()).exitCode, 143);

  const late = await sandbox.runCommand({ cmd: "sleep", args: ["60"], timeoutMs: 300 });
  assert.equal(late.exitCode, 137);

  const env = await sandbox.runCommand({
    cmd: "sh",
    args: ["-c", "echo $FROM_SANDBOX $BOTH $(id -un) $HOME $PWD"],
    env: { BOTH: "command" },
    cwd: "/tmp",
  });
  assert.equal(await env.stdout(), `1 command ${user()} /home/vercel-sandbox /tmp\n`);
  const root = await sandbox.runCommand({ cmd: "sh", args: ["-c", "echo $(id -u) $HOME $USER"], sudo: true });
  assert.equal(await root.stdout(), "0 /root root\n");
  await sandbox.delete();
});

test("a missing executable is told apart", async () => {
  const sandbox = await create();
  const error = await failure(sandbox.runCommand({ cmd: "no-such-program", detached: true }));
  assert.equal(error.response.status, 400);
  assert.equal(error.json.error.code, "executable_not_found");
  await sandbox.delete();
});

test("a name is taken once", async () => {
  const sandbox = await create({ name: "twice" });
  const error = await failure(create({ name: "twice" }));
  assert.equal(error.response.status, 400);
  assert.match(error.json.error.message, /sandbox with the name 'twice' already exists/);
  const many = await Promise.allSettled(Array.from({ length: 20 }, () => create({ name: "race" })));
  const won = many.filter((r) => r.status === "fulfilled");
  assert.equal(won.length, 1);
  await won[0].value.delete();
  await sandbox.delete();
});

test("runtime goes through v2", async () => {
  const sandbox = await create({ runtime: "node24" });
  assert.equal(sandbox.currentSession().runtime ?? sandbox.runtime, "node24");
  assert.equal((await sandbox.runCommand("true")).exitCode, 0);
  await sandbox.delete();
});

test("a call on a stopped session resumes by itself", async () => {
  const sandbox = await create({ name: "auto" });
  await sandbox.writeFiles([{ path: "kept", content: Buffer.from("kept") }]);
  const first = sandbox.currentSession().sessionId;
  const other = await Sandbox.get({ ...emulator.options, name: "auto" });
  await other.stop();
  const done = await sandbox.runCommand("cat", ["kept"]);
  assert.equal(await done.stdout(), "kept");
  assert.notEqual(sandbox.currentSession().sessionId, first);
  await sandbox.delete();
});

test("what is not persistent cannot be resumed, unless a snapshot was taken", async () => {
  const sandbox = await create({ name: "fleeting", persistent: false });
  await sandbox.stop();
  const error = await failure(Sandbox.get({ ...emulator.options, name: "fleeting", resume: true }));
  assert.equal(error.response.status, 400);
  assert.match(error.json.error.message, /no snapshot available/);
  await sandbox.delete();

  const source = await create({ persistent: false });
  await source.writeFiles([{ path: "seed", content: Buffer.from("seed") }]);
  const snapshot = await source.snapshot();
  assert.match(snapshot.snapshotId, /^snap_[A-Za-z0-9]{28}$/);
  await source.delete();
  const copy = await create({ source: { type: "snapshot", snapshotId: snapshot.snapshotId } });
  assert.equal((await copy.readFileToBuffer({ path: "seed" })).toString(), "seed");
  await copy.delete();
  const again = await Snapshot.get({ ...emulator.options, snapshotId: snapshot.snapshotId });
  await again.delete();
  const gone = await failure(create({ source: { type: "snapshot", snapshotId: snapshot.snapshotId } }));
  assert.equal(gone.response.status, 410);
  assert.equal(gone.json.error.code, "snapshot_not_found");
});

test("retention keeps the last snapshots and lists no others", async () => {
  const sandbox = await create({ name: "kept", keepLastSnapshots: { count: 2 } });
  for (let i = 0; i < 3; i++) {
    await sandbox.runCommand("touch", [`file-${i}`]); // resumes after the first round
    await sandbox.stop();
  }
  const listed = [];
  for await (const s of await Snapshot.list({ ...emulator.options, name: "kept" })) listed.push(s);
  assert.deepEqual(listed.map((s) => s.status), ["created", "created"]);
  const files = await sandbox.runCommand("ls"); // older layers are still under the newest
  assert.equal(await files.stdout(), "file-0\nfile-1\nfile-2\n");
  await sandbox.delete();
});

test("lists, updates and the file system object", async () => {
  const sandbox = await create({ name: "listed", tags: { group: "one" } });
  const page = await Sandbox.list({ ...emulator.options, sortBy: "name", namePrefix: "listed" });
  const names = [];
  for await (const entry of page) names.push(entry.name);
  assert.deepEqual(names, ["listed"]);
  await sandbox.update({ ports: [4000], timeout: 600_000, keepLastSnapshots: { count: 2 } });
  assert.match(sandbox.domain(4000), /vercel\.run$/);
  await sandbox.mkDir("made");
  await sandbox.fs.writeFile("made/file", "text");
  assert.deepEqual(await sandbox.fs.readdir("made"), ["file"]);
  assert.equal(await sandbox.fs.exists("made/none"), false);
  await sandbox.delete();
});
