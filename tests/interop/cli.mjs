// Runs the official CLI, unmodified, with the preload that the emulator comes with and a home of its own.
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const script = fileURLToPath(new URL("node_modules/sandbox/bin/sandbox.mjs", import.meta.url));
export const preload = fileURLToPath(new URL("../../emulator/preload.cjs", import.meta.url));

// What a shell of a person who never used the CLI would have, and nothing of this machine's.
export async function cliHome() {
  const home = await mkdtemp(join(tmpdir(), "sandgate-cli-"));
  await mkdir(join(home, "work"));
  return { home, work: join(home, "work"), remove: () => rm(home, { recursive: true, force: true }) };
}

export function cliEnvironment(home, more = {}) {
  return {
    PATH: process.env.PATH, HOME: home, XDG_DATA_HOME: join(home, "data"), XDG_CACHE_HOME: join(home, "cache"),
    XDG_CONFIG_HOME: join(home, "config"), SANDBOX_SKIP_VERSION_CHECK: "1", NO_COLOR: "1", ...more,
  };
}

// { code, stdout, stderr }; onOutput sees stderr and stdout as they come.
export function runCli(args, { env, cwd, onOutput = () => {} }) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [script, ...args], { env, cwd, stdio: ["ignore", "pipe", "pipe"] });
    const seen = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"])
      child[name].on("data", (data) => {
        seen[name] += data;
        onOutput(seen[name], child);
      });
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, ...seen }));
  });
}

// Logs in as a person does: the CLI, on a terminal, shows a code; the page of the emulator takes it with the token.
export async function loginWithCli({ env, cwd, emulator, action }) {
  const child = spawn("script", ["-qefc", `stty cols 200 rows 50; exec ${process.execPath} ${script} login`, "/dev/null"],
    { env: { ...env, TERM: "xterm" }, cwd, stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  const code = new Promise((resolve) => child.once("close", resolve));
  const shown = new Promise((resolve) =>
    child.stdout.on("data", (data) => {
      output += data;
      const found = /enter[^A-Z]*?(?:\x1b\[[0-9;]*m)*([A-Z]{4}-[A-Z]{4})/.exec(output);
      if (found) resolve(found[1]);
    }),
  );
  const timer = setTimeout(() => child.kill(), 30_000);
  const userCode = await Promise.race([shown, code.then(() => undefined)]);
  if (userCode) {
    const page = await fetch(`${emulator.url}/login/device?user_code=${userCode}`);
    if (!(await page.text()).includes(userCode)) throw new Error("the page does not know the code");
    const form = (token) => fetch(`${emulator.url}/login/device`,
      { method: "POST", body: new URLSearchParams({ user_code: userCode, token, action }) });
    if ((await form("not the token")).status !== 403) throw new Error("anybody may approve");
    if ((await form(emulator.token)).status !== 200) throw new Error("the page refused the token");
  }
  const how = { code: await code, output };
  clearTimeout(timer);
  return how;
}
