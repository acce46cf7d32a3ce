// The unmodified official `sandbox` CLI against the emulator (issue of its users: every command that the API
// supports).  The way it is pointed here is the preload that the emulator comes with.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { cliEnvironment, cliHome, loginWithCli, preload, runCli } from "./cli.mjs";
import { startEmulator } from "./emulator.mjs";

let emulator, place, env;
before(async () => {
  emulator = await startEmulator({ args: ["--admin", "--policy=record-only"] });
  place = await cliHome();
  env = cliEnvironment(place.home, {
    NODE_OPTIONS: `--require ${preload}`, SANDGATE_EMULATOR_URL: emulator.url, VERCEL_AUTH_TOKEN: emulator.token,
  });
});
after(async () => {
  await place.remove();
  assert.deepEqual(await emulator.stop(), { code: 0, signal: null });
});

const scope = ["--scope", "team_local", "--project", "prj_local"];
// A command of one or two words, with the scope behind it.
const sandbox = (command, ...args) => runCli([...command.split(" "), ...scope, ...args], { env, cwd: place.work });
async function ok(command, ...args) {
  const how = await sandbox(command, ...args);
  assert.equal(how.code, 0, `${command} ${args.join(" ")}\n${how.stdout}${how.stderr}`);
  return how;
}
// By the CLI where creating is what is tested; otherwise the API is quicker.
const there = async (body = {}) => {
  const answer = await emulator.call("POST", "/v3/sandboxes", { projectId: "prj_local", ...body });
  assert.equal(answer.status, 200, answer.text);
  return answer.json.sandbox.name;
};
const away = (...names) =>
  Promise.all(names.map((name) => emulator.call("DELETE", `/v2/sandboxes/${name}?projectId=prj_local`)));
const made = async (...args) => {
  const name = (await ok("create", ...args)).stdout.trim();
  assert.match(name, /^[\w-]+$/, "create prints the name and nothing else on stdout");
  return name;
};

test("create and list", async () => {
  const name = await made("--name", "listed", "-p", "3000", "-t", "kind=cli", "--vcpus", "1");
  assert.equal(name, "listed");
  const { stdout } = await ok("list", "--name-prefix", "listed", "--sort-by", "name", "--tag", "kind=cli");
  assert.match(stdout, /listed\s+running\s.*2,048 MB\s+1 /);
  assert.doesNotMatch((await ok("list", "--tag", "kind=other")).stdout, /listed/);
  await ok("rm", "listed");
  assert.doesNotMatch((await ok("list", "--all")).stdout, /listed/);
});

test("a list goes on where its page ended", async () => {
  for (const n of [1, 2, 3]) await there({ name: `paged-${n}` });
  const first = await ok("list", "--name-prefix", "paged", "--sort-by", "name", "--sort-order", "asc", "--limit", "2");
  assert.match(first.stdout, /paged-1[^]*paged-2/);
  const cursor = /--cursor[ =]"?([^\s"]+)/.exec(first.stdout + first.stderr)?.[1];
  assert.ok(cursor, first.stdout + first.stderr);
  const second = await ok("list", "--name-prefix", "paged", "--sort-by", "name", "--sort-order", "asc", "--limit", "2",
    "--cursor", cursor);
  assert.match(second.stdout, /paged-3/);
  assert.doesNotMatch(second.stdout, /paged-[12]/);
  await ok("rm", "paged-1", "paged-2", "paged-3");
});

test("exec: exit code, both outputs, environment, directory, sudo, timeout", async () => {
  const name = await made("-e", "FROM_CREATE=1");
  const failing = await sandbox("exec", name, "--", "sh", "-c", "echo out; echo err >&2; exit 4");
  assert.equal(failing.code, 4);
  assert.equal(failing.stdout, "out\n");
  assert.match(failing.stderr, /^err$/m);

  const told = await ok("exec", "-w", "/tmp", "-e", "GIVEN=two words", name, "--", "sh", "-c", 'echo "$PWD $FROM_CREATE $GIVEN $(id -un)"');
  assert.equal(told.stdout, "/tmp 1 two words vercel-sandbox\n");
  assert.equal((await ok("exec", "--sudo", name, "--", "id", "-u")).stdout, "0\n");

  const late = await sandbox("exec", "--timeout", "1s", name, "--", "sleep", "60");
  assert.equal(late.code, 137);
  assert.match(late.stderr, /killed/);
  await away(name);
});

test("cp both ways", async () => {
  const name = await there();
  const bytes = Buffer.from(Array.from({ length: 70000 }, (_, i) => (i * 7) % 256));
  await writeFile(join(place.work, "up"), bytes);
  await ok("cp", "up", `${name}:/tmp/there`);
  await ok("cp", `${name}:/tmp/there`, "down");
  assert.deepEqual(await readFile(join(place.work, "down")), bytes);
  const missing = await sandbox("cp", `${name}:/tmp/nothing`, "never");
  assert.match(missing.stderr, /File not found: \/tmp\/nothing/);
  assert.equal(existsSync(join(place.work, "never")), false);
  await away(name);
});

test("config", async () => {
  const name = await there();
  await ok("config vcpus", name, "1");
  await ok("config timeout", name, "10m");
  await ok("config persistent", name, "false");
  await ok("config snapshot-expiration", name, "2d");
  await ok("config keep-last-snapshots", name, "3");
  await ok("config keep-last-snapshots-for", name, "5d");
  await ok("config delete-evicted-snapshots", name, "false");
  await ok("config ports", name, "-p", "4000", "-p", "4001");
  await ok("config tags", name, "-t", "stage=test");
  await ok("config network-policy", name, "--network-policy", "deny-all");
  const { stdout } = await ok("config list", name);
  const row = (field) => new RegExp(`^${field}\\s+(.*?)\\s*$`, "m").exec(stdout)?.[1];
  assert.equal(row("vCPUs"), "1");
  assert.equal(row("Timeout"), "10 minutes");
  assert.equal(row("Persistent"), "false");
  assert.equal(row("Snapshot expiration"), "2 days");
  assert.equal(row("Keep last snapshots"), "count=3, for=5 days, delete-evicted-snapshots=false");
  assert.match(row("Ports"), /4000.*4001/);
  assert.match(row("Tags"), /stage/);
  assert.equal(row("Network policy"), "deny-all");

  await ok("config network-policy", name, "--allowed-domain", "*.example.com", "--denied-cidr", "10.0.0.0/8");
  const { json } = await emulator.call("GET", `/v2/sandboxes/${name}?projectId=prj_local`);
  assert.deepEqual(json.session.networkPolicy.allowedDomains, ["*.example.com"], "the running session has it too");
  await away(name);
});

test("stop, sessions, snapshots and what comes from them", async () => {
  const name = await there();
  await ok("exec", name, "--", "sh", "-c", "echo kept > file");
  const stopped = await ok("stop", name);
  const snapshot = /snap_[A-Za-z0-9]{28}/.exec(stopped.stdout + stopped.stderr)?.[0];
  assert.ok(snapshot, "stop tells the automatic snapshot");
  assert.match((await ok("sessions list", "--all", name)).stdout, /sbx_\w+\s+stopped/);
  assert.match((await ok("snapshots list", "--name", name)).stdout, new RegExp(`${snapshot}\\s+created`));
  assert.match((await ok("snapshots get", snapshot)).stdout, new RegExp(snapshot));

  const copy = await made("--snapshot", snapshot);
  assert.equal((await ok("exec", copy, "--", "cat", "file")).stdout, "kept\n");
  const manual = /snap_[A-Za-z0-9]{28}/.exec((await ok("snapshot", "--stop", copy)).stderr)?.[0];
  assert.ok(manual);
  await ok("config current-snapshot", copy, snapshot);
  assert.equal((await ok("exec", copy, "--", "cat", "file")).stdout, "kept\n", "exec resumes");
  await ok("snapshots delete", manual);
  assert.match((await sandbox("snapshots get", manual)).stdout, /deleted/);
  await ok("rm", "--delete-orphan-snapshots", name, copy);
});

test("the snapshot tree", async () => {
  const name = await there();
  await ok("stop", name);
  await ok("exec", name, "--", "touch", "two"); // resumes
  await ok("stop", name);
  const { stdout, stderr } = await ok("snapshots tree", name);
  assert.equal(new Set((stdout + stderr).match(/snap_[A-Za-z0-9]{28}/g)).size, 2, stdout + stderr);
  await away(name);
});

test("fork", async () => {
  const name = await there({ env: { WHO: "source" } });
  await ok("exec", name, "--", "sh", "-c", "echo forked > file");
  await ok("snapshot", "--stop", name);
  const fork = (await ok("fork", name, "--name", "forked")).stdout.trim();
  assert.equal(fork, "forked");
  assert.equal((await ok("exec", fork, "--", "sh", "-c", "cat file; echo $WHO")).stdout, "forked\nsource\n");
  await away(name, fork);
});

test("drives", async () => {
  await ok("drives get-or-create", "shelf", "--max-size", String(64 << 20));
  await ok("drives get-or-create", "shelf", "--max-size", String(64 << 20));
  assert.match((await ok("drives ls", "--name-prefix", "sh")).stdout, /shelf/);
  const one = await made("--mount", "shelf:/mnt/shelf");
  await ok("exec", one, "--", "sh", "-c", "echo on the shelf > /mnt/shelf/file");
  await away(one);
  const two = await made("--mount", "shelf:/mnt/shelf:snapshot");
  assert.equal((await ok("exec", two, "--", "cat", "/mnt/shelf/file")).stdout, "on the shelf\n");
  await away(two);
  await ok("drives rm", "shelf");
  assert.doesNotMatch((await ok("drives ls")).stdout, /shelf/);
});

test("run, with --rm and by name", async () => {
  const gone = await ok("run", "--name", "fleeting", "--rm", "--", "sh", "-c", "echo ran");
  assert.match(gone.stdout, /ran\n$/);
  const missing = await sandbox("exec", "fleeting", "--", "true");
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /404/);
  assert.match(missing.stderr, /hint: run sandbox ls --all/);
  const named = await sandbox("run", "--name", "again", "--stop", "--", "sh", "-c", "exit 9");
  assert.equal(named.code, 9);
  assert.match((await ok("run", "--name", "again", "--", "echo", "resumed")).stdout, /resumed\n$/);
  await away("again");
});

test("refusals are told in the server's words", async () => {
  await there({ name: "twice" });
  const taken = await sandbox("create", "--name", "twice");
  assert.notEqual(taken.code, 0);
  assert.match(taken.stderr, /sandbox with the name 'twice' already exists/);
  const wrong = await runCli(["list", ...scope], { env: { ...env, VERCEL_AUTH_TOKEN: "wrong" }, cwd: place.work });
  assert.notEqual(wrong.code, 0);
  assert.match(wrong.stderr, /403|Not authorized/);
  await away("twice");
});

test("without flags the scope is found, and the default project made once", async () => {
  await emulator.call("POST", "/_emulator/journal/clear");
  const bare = (...args) => runCli(args, { env, cwd: place.work });
  assert.equal((await bare("list")).code, 0);
  assert.equal((await bare("create", "--name", "scoped")).stdout.trim(), "scoped");
  const { entries } = (await emulator.call("GET", "/_emulator/journal")).json;
  const made = entries.filter((e) => e.method === "POST" && e.path === "/v11/projects");
  assert.deepEqual(made.map((e) => e.status), [200]);
  assert.equal((await emulator.call("GET", "/v2/sandboxes/scoped?projectId=vercel-sandbox-default-project")).status, 200);
  assert.ok(entries.some((e) => e.path === "/sandbox-cli/v1/events" && e.status === 200), "telemetry has a sink");

  await mkdir(join(place.work, ".vercel"));
  await writeFile(join(place.work, ".vercel", "project.json"), '{"orgId":"team_local","projectId":"prj_linked"}');
  assert.equal((await bare("create", "--name", "linked")).stdout.trim(), "linked");
  assert.equal((await emulator.call("GET", "/v2/sandboxes/linked?projectId=prj_linked")).status, 200);
});

test("an expired OIDC token is refreshed with the stored login", async () => {
  const other = await cliHome();
  const own = { ...env, ...cliEnvironment(other.home) };
  delete own.VERCEL_AUTH_TOKEN;
  const data = join(other.home, "data", "com.vercel.cli");
  await mkdir(data, { recursive: true });
  await writeFile(join(data, "auth.json"), JSON.stringify({ token: emulator.token, expiresAt: Math.floor(Date.now() / 1000) + 3600 }));
  await mkdir(join(other.work, ".vercel"));
  await writeFile(join(other.work, ".vercel", "project.json"), '{"orgId":"team_oidc","projectId":"prj_oidc"}');
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  own.VERCEL_OIDC_TOKEN = [{ alg: "none" }, { owner_id: "team_oidc", project_id: "prj_oidc", exp: 1 }, {}].map(part).join(".");
  await emulator.call("POST", "/_emulator/journal/clear");
  const how = await runCli(["create", "--name", "refreshed"], { env: own, cwd: other.work });
  assert.equal(how.code, 0, how.stderr);
  const { entries } = (await emulator.call("GET", "/_emulator/journal")).json;
  assert.ok(entries.some((e) => e.method === "POST" && e.path === "/v1/projects/prj_oidc/token" && e.status === 200));
  assert.equal((await emulator.call("GET", "/v2/sandboxes/refreshed?projectId=prj_oidc")).status, 200);
  await other.remove();
});

test("login by the device flow, refresh and logout", async () => {
  const other = await cliHome();
  const own = { ...env, ...cliEnvironment(other.home) };
  delete own.VERCEL_AUTH_TOKEN;
  const denied = await loginWithCli({ env: own, cwd: other.work, emulator, action: "deny" });
  assert.notEqual(denied.code, 0, denied.output);
  const how = await loginWithCli({ env: own, cwd: other.work, emulator, action: "approve" });
  assert.equal(how.code, 0, how.output);
  const file = join(other.home, "data", "com.vercel.cli", "auth.json");
  const auth = JSON.parse(await readFile(file, "utf8"));
  assert.notEqual(auth.token, emulator.token, "a token of its own");
  const bare = (...args) => runCli(args, { env: own, cwd: other.work });
  assert.equal((await bare("list")).code, 0);

  // an expired one is exchanged for another, and the old pair is worth nothing any more
  await writeFile(file, JSON.stringify({ ...auth, expiresAt: 1 }));
  assert.equal((await bare("list")).code, 0);
  const fresh = JSON.parse(await readFile(file, "utf8"));
  assert.notEqual(fresh.token, auth.token);
  const withToken = (token) => fetch(`${emulator.url}/v2/user`, { headers: { authorization: `Bearer ${token}` } });
  assert.equal((await withToken(auth.token)).status, 403);
  assert.equal((await withToken(fresh.token)).status, 200);

  assert.equal((await bare("logout")).code, 0);
  assert.equal((await withToken(fresh.token)).status, 403, "logging out ends the login");
  await other.remove();
});
