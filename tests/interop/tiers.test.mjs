// The same SDK tests where the emulator has fewer rights: as a user with a range of ids (rootless), and as one without
// (single-id).  Only the emulator runs as that user; this needs root to become it.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { chmod, chown, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { program } from "./emulator.mjs";

const USER = { name: "sginterop", id: 54322, range: 710000000 };
const here = fileURLToPath(new URL(".", import.meta.url));
const tar = join(process.env.SANDGATE_CACHE ?? "/var/cache/sandgate", "base.tar");
let dir;

before(async () => {
  assert.equal(process.getuid(), 0, "this test must run as root");
  dir = await mkdtemp(join(tmpdir(), "sandgate-tiers-"));
  await chmod(dir, 0o755);
  await copyFile(program, join(dir, "emulator"));
  await chmod(join(dir, "emulator"), 0o755);
  await writeFile(join(dir, "passwd"),
    `${await readFile("/etc/passwd", "utf8")}${USER.name}:x:${USER.id}:${USER.id}::/nonexistent:/bin/false\n`);
});
after(() => rm(dir, { recursive: true, force: true }));

// What starts the emulator as the user; his ranges are seen by it alone.
async function wrapper(tier) {
  const range = join(dir, `${tier}.range`);
  await writeFile(range, tier === "rootless" ? `${USER.name}:${USER.range}:65536\n` : "");
  const path = join(dir, tier);
  await writeFile(path, `#!/bin/sh
exec unshare -m sh -c 'mount --bind ${dir}/passwd /etc/passwd && mount --bind ${range} /etc/subuid &&
  mount --bind ${range} /etc/subgid && exec setpriv --reuid ${USER.id} --regid ${USER.id} --clear-groups \\
  --inh-caps=-all ${dir}/emulator "$@"' sh "$@"
`);
  await chmod(path, 0o755);
  return path;
}

function node(args, env) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, args, { cwd: here, env, stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
    child.once("close", (code) => resolve({ code, output }));
  });
}

for (const tier of ["rootless", "single-id"])
  test(`the SDK against the tier ${tier}`, async () => {
    const emulator = await wrapper(tier);
    const base = join(dir, `${tier}.base`);
    await mkdir(base);
    await chown(base, USER.id, USER.id);
    const imported = spawnSync(emulator, ["import-base", "--state", base, tar], { encoding: "utf8", timeout: 120_000 });
    assert.equal(imported.status, 0, imported.stderr);
    const env = { ...process.env, SANDGATE_EMULATOR: emulator, SANDGATE_TEST_BASE: base, SANDGATE_EMULATOR_UID: String(USER.id),
      SANDGATE_EXPECT_TIER: tier };
    delete env.NODE_TEST_CONTEXT; // it reports by itself
    const { code, output } = await node(["--test", "--test-reporter=tap", "sdk.test.mjs", "sdk-methods.test.mjs"], env);
    assert.equal(code, 0, output);
    assert.ok(Number(/^# pass (\d+)$/m.exec(output)?.[1]) >= 20, output);
  });
