// The official CLI's terminals, unmodified and on a real terminal: connect, exec -i and sh.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { cliEnvironment, cliHome, preload } from "./cli.mjs";
import { startEmulator } from "./emulator.mjs";

const helper = fileURLToPath(new URL("person.py", import.meta.url));
const script = fileURLToPath(new URL("node_modules/sandbox/bin/sandbox.mjs", import.meta.url));
const scope = ["--scope", "team_local", "--project", "prj_local"];

let emulator, home, environment;

before(async () => {
  emulator = await startEmulator({ args: ["--admin"] });
  home = await cliHome();
  environment = cliEnvironment(home.home, {
    NODE_OPTIONS: `--require ${preload}`, SANDGATE_EMULATOR_URL: emulator.url, VERCEL_AUTH_TOKEN: emulator.token,
    VERCEL_TELEMETRY_DISABLED: "1", TERM: "xterm-256color",
  });
});

after(async () => {
  assert.equal((await emulator.stop()).code, 0);
  await home.remove();
});

// { code, shown, left }: what a person at the terminal saw.
function atTerminal(args, steps) {
  return new Promise((resolve, reject) => {
    const child = spawn("python3", [helper, JSON.stringify(steps), process.execPath, script, ...args],
      { env: environment, cwd: home.work, stdio: ["ignore", "pipe", "inherit"] });
    let out = "";
    child.stdout.on("data", (data) => (out += data));
    child.once("error", reject);
    child.once("close", () => {
      try {
        const seen = JSON.parse(out);
        assert.deepEqual(seen.left, [], seen.shown);
        resolve(seen);
      } catch (e) {
        reject(e);
      }
    });
  });
}

const sandbox = async (name, more = {}) => {
  const made = await emulator.call("POST", "/v2/sandboxes", { name, projectId: "prj_local", ...more });
  assert.equal(made.status, 200, made.text);
  return made.json.session;
};

const line = (text) => ({ type: `${text}\r` });

test("connect: a shell, its size, a resize, Ctrl-C and the exit code", async () => {
  await sandbox("connect", { env: { FROM_SANDBOX: "yes" } });
  const seen = await atTerminal(["connect", ...scope, "connect"], [
    { start: [100, 30] },
    { await: "/vercel/sandbox" },
    line("stty size; echo env=$FROM_SANDBOX term=$TERM"), { await: "30 100\n" },
    { await: "env=yes term=xterm-256color\n" },
    line("until [ \"$(stty size)\" = '50 132' ]; do sleep 0.1; done; echo resized$((1+1))"), { await: "done; echo" },
    { resize: [132, 50] }, { await: "resized2\n" },
    line("echo be''gun; while :; do sleep 1; done"), { await: "begun\n" },
    { type: "\u0003" }, { await: "^C" },
    line("echo int$((20+1))"), { await: "int21\n" },
    line("exit 5"),
  ]);
  assert.equal(seen.code, 5, seen.shown);
});

test("exec -i: program, arguments, directory, variables and sudo", async () => {
  await sandbox("exec");
  const seen = await atTerminal(
    ["exec", ...scope, "-i", "--sudo", "-w", "/tmp", "-e", "FOO=bar baz", "exec", "--", "sh", "-c",
      "echo $(id -u) $PWD $FOO $(stty size); read x; echo got=$x; exit 7"],
    [{ start: [90, 33] }, { await: "0 /tmp bar baz 33 90\n" }, line("typed"), { await: "got=typed\n" }]);
  assert.equal(seen.code, 7, seen.shown);
});

test("exec -i: Ctrl-C reaches the program and gives 130, Ctrl-D ends its input", async () => {
  await sandbox("keys");
  let seen = await atTerminal(["exec", ...scope, "-i", "keys", "--", "sh", "-c", "echo ready; exec sleep 1000"],
    [{ await: "ready\n" }, { type: "\u0003" }]);
  assert.equal(seen.code, 130, seen.shown);
  seen = await atTerminal(["exec", ...scope, "-i", "keys", "--", "sh", "-c", "echo ready; cat; echo end; exit 3"],
    [{ await: "ready\n" }, line("text"), { await: "text\ntext\n" }, { type: "\u0004" }, { await: "end\n" }]);
  assert.equal(seen.code, 3, seen.shown);
});

test("exec -i: a program that does not exist", async () => {
  await sandbox("missing");
  const seen = await atTerminal(["exec", ...scope, "-i", "missing", "--", "no-such-program"],
    [{ await: "no-such-program" }]);
  assert.equal(seen.code, 127, seen.shown);
});

test("sh: a fresh sandbox with a terminal, removed afterwards", async () => {
  const seen = await atTerminal(["sh", ...scope, "--rm"],
    [{ await: "/vercel/sandbox" }, line("echo in$((40+2))"), { await: "in42\n" }, line("exit 4")]);
  assert.equal(seen.code, 4, seen.shown);
});

test("connect extends the session's time while it is there", async () => {
  const session = await sandbox("short", { timeout: 11500 });
  const seen = await atTerminal(["connect", ...scope, "short"],
    [{ await: "/vercel/sandbox" }, line("echo up$((1+1))"), { await: "up2\n" }, line("exit 0")]);
  assert.equal(seen.code, 0, seen.shown);
  const now = await emulator.call("GET", `/v2/sandboxes/sessions/${session.id}`);
  assert.equal(now.json.session.timeout, 11500 + 300000);
});

test("a killed client leaves nothing behind", async () => {
  const session = await sandbox("killed");
  const seen = await atTerminal(["exec", ...scope, "-i", "killed", "--", "sh", "-c", "echo ready; exec sleep 1000"],
    [{ await: "ready\n" }, { signal: "SIGKILL" }]);
  assert.equal(seen.code, -9);
  for (;;) {
    const found = await emulator.call("POST", `/v2/sandboxes/sessions/${session.id}/cmd`,
      { command: "pgrep", args: ["-x", "sleep"], wait: true });
    if (found.text.includes('"exitCode":1')) break;
  }
});

test("a session that stops ends its terminal", async () => {
  const session = await sandbox("stopped");
  const running = atTerminal(["exec", ...scope, "-i", "stopped", "--", "sh", "-c", "echo ready; exec sleep 1000"],
    [{ await: "ready\n" }]);
  for (;;) {
    const found = await emulator.call("POST", `/v2/sandboxes/sessions/${session.id}/cmd`,
      { command: "pgrep", args: ["-x", "sleep"], wait: true });
    if (found.text.includes('"exitCode":0')) break;
  }
  await emulator.call("POST", `/v2/sandboxes/sessions/${session.id}/stop`);
  assert.equal((await running).code, 137);
});
