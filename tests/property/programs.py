"""Random programs of writes: what is written when to which stream, and how the program ends."""
import random

MIB = 1 << 20
SIGNALS = {"SIGKILL": 9, "SIGTERM": 15, "SIGUSR1": 10, "SIGABRT": 6}

# Plays a plan: `stream offset length pause_ms` a line, bytes from a data file.  It first says that it runs, in a file.
WRITER = r'''
use strict;
my ($plan, $data, $ran, $id, $how, $value) = @ARGV;
open(my $r, '>>', $ran) or die; syswrite($r, "$id\n") or die; close $r;
open(my $p, '<', $plan) or die; open(my $d, '<:raw', $data) or die;
my @out = (undef, \*STDOUT, \*STDERR);
while (<$p>) {
    my ($stream, $offset, $length, $pause) = split;
    sysseek($d, $offset, 0); my $bytes = ''; my $n = 0;
    while ($n < $length) { my $got = sysread($d, $bytes, $length - $n, $n); $got or die; $n += $got }
    for (my $at = 0; $at < $length; ) { my $w = syswrite($out[$stream], $bytes, $length - $at, $at); $w or die; $at += $w }
    select(undef, undef, undef, $pause / 1000) if $pause;
}
exit $value if $how eq 'exit';
if ($how eq 'orphan') { kill 'KILL', getppid(); select(undef, undef, undef, 0.05); exit 0; }
kill $value, $$; sleep 60;
'''

TEXTS = ("plain text ", "é", "€", "𝄞", "\u2028", "\u2029", "\r\n", "\n", "\0", "\x1b[1mbold\x1b[0m", "data: x\n\nevent: end\n",
         '{"type":"exit"}\n', "X exit 0 - 1 0 0\n", "\ufeff", "ünïcödé ", "日本語")


class Program:
    """writes: [(stream 1|2, bytes, pause in ms after it)]; want: what each stream must be in the end.
    terminal: both streams are one, on a terminal."""

    def __init__(self, rng, most=2 * MIB, seconds=4.0, terminals=True):
        self.writes = []
        total, pauses = 0, 0
        aim = int(2 ** rng.uniform(0, most.bit_length() - 1))
        pieces = rng.choice((1, 3, 10, 40, 120))
        quiet = rng.random() < 0.3  # a few long pauses instead of many short ones
        for _ in range(pieces):
            if total >= aim:
                break
            size = min(int(2 ** rng.uniform(0, 20)) if rng.random() < 0.3 else 1 + int(rng.expovariate(pieces / aim)), MIB,
                       most - total)
            if size <= 0:
                break
            for piece in self.cut(rng, self.content(rng, size)):
                pause = 0
                if pauses < seconds * 1000 and rng.random() < (0.1 if quiet else 0.5):
                    pause = int(rng.uniform(200, 900)) if quiet else int(rng.expovariate(1 / 30))
                pauses += pause
                total += len(piece)
                self.writes.append((1 if rng.random() < 0.75 else 2, piece, pause))
        if rng.random() < 0.7:
            self.end = ("exit", rng.choice((0, 0, 1, 3, 127, 255)))
        else:
            self.end = ("signal", rng.choice(list(SIGNALS)))
        if rng.random() < 0.05:  # nobody sees it exit with 0, and what it wrote last may be lost with the one who listened
            self.end = ("orphan", 0)
        self.ring = 65536 if rng.random() < 0.1 else None  # kept bytes, when few: some may be missed, but never silently
        self.lossless = not self.ring and rng.random() < 0.1  # few are kept, and it waits for receipts
        self.terminal = terminals and rng.random() < 0.2  # raw: what is written is what comes
        if self.terminal:
            self.want = {"pty": b"".join(b for _, b, _ in self.writes)}
            return
        self.want = {"stdout": b"".join(b for s, b, _ in self.writes if s == 1),
                     "stderr": b"".join(b for s, b, _ in self.writes if s == 2)}

    @staticmethod
    def content(rng, size):
        kind = rng.random()
        if kind < 0.35:
            return rng.randbytes(size)
        if kind < 0.45:
            return bytes(size)
        if kind < 0.6:
            return (b"%d line of output\n" % rng.randrange(10 ** 6)) * (size // 20) or b"x"
        out = bytearray()
        while len(out) < size:
            out += rng.choice(TEXTS).encode() * rng.choice((1, 1, 1, 50))
        return bytes(out[:size])  # its end may be inside a character

    @staticmethod
    def cut(rng, data):
        """Into one write or some, small ones often: inside characters, between CR and LF."""
        if len(data) > 400 or rng.random() < 0.5:
            return [data]
        pieces, at = [], 0
        while at < len(data) and len(pieces) < 30:
            n = rng.choice((1, 1, 2, 3, 7, 50))
            pieces.append(data[at:at + n])
            at += n
        return pieces + ([data[at:]] if at < len(data) else [])

    def data(self):
        return b"".join(b for _, b, _ in self.writes)

    def plan(self):
        at, lines = 0, []
        for stream, piece, pause in self.writes:
            lines.append(f"{stream} {at} {len(piece)} {pause}\n")
            at += len(piece)
        return "".join(lines).encode()

    def argv(self, name, pid):
        how, value = self.end
        argv = ["perl", "writer.pl", f"{name}.plan", f"{name}.data", "ran", pid, how, str(SIGNALS.get(value, value))]
        return ["sh", "-c", 'stty raw -echo; exec "$@"', "sh", *argv] if self.terminal else argv

    def outcome(self):
        how, value = self.end
        return {"exit": (value, None), "signal": (None, value), "orphan": (None, None)}[how]

    def __str__(self):
        sizes = ", ".join(f"{len(b)} to {s}" for s, b in self.want.items())
        return f"{len(self.writes)} writes, {sizes}, ends by {self.end}" + \
            ", terminal" * self.terminal + ", ring" * bool(self.ring) + ", lossless" * self.lossless


def random_for(seed):
    return random.Random(seed)
