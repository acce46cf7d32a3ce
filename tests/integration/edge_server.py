"""What listens inside the sandbox in the tests of the edge: runs there, with what a minimal Python has.

    python3 -c SOURCE HOST PORT NAME

    /ws            a WebSocket that echoes                  /down?N      N bytes of a known pattern
    /chunked       a chunked answer with a trailer          /rest        an answer that ends with the connection
    /abort         closes instead of answering              /early       answers before the body was read, and closes
    /silent        answers nothing, until the client goes   /raw         upgrades to a byte echo that answers the end
    anything else  what arrived: {"head": base64, "sha256", "size", "connection", "name"}
"""
import base64
import hashlib
import socket
import struct
import sys
import threading

PATTERN = bytes(range(256)) * 256


class Peer:
    def __init__(self, sock, serial, name):
        self.sock, self.serial, self.name, self.buffer = sock, serial, name, b""

    def until(self, mark):
        while mark not in self.buffer:
            more = self.sock.recv(65536)
            if not more:
                raise EOFError
            self.buffer += more
        found, self.buffer = self.buffer.split(mark, 1)
        return found + mark

    def exactly(self, n, take):
        while n:
            part = self.buffer[:n] or self.sock.recv(min(n, 1 << 20))
            if not part:
                raise EOFError
            self.buffer = self.buffer[len(part):]
            take(part)
            n -= len(part)

    def bytes(self, n):
        parts = []
        self.exactly(n, parts.append)
        return b"".join(parts)

    def answer(self, body, more=b""):
        self.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + more +
                          b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def body(self, headers):
        digest, size = hashlib.sha256(), 0

        def take(part):
            nonlocal size
            size += len(part)
            digest.update(part)

        if headers.get(b"expect"):
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get(b"transfer-encoding"):
            while True:
                n = int(self.until(b"\r\n").split(b";")[0], 16)
                self.exactly(n, take)
                if not n:
                    while self.until(b"\r\n") != b"\r\n":
                        pass
                    break
                self.until(b"\r\n")
        else:
            self.exactly(int(headers.get(b"content-length", 0)), take)
        return digest.hexdigest(), size

    def one(self):
        head = self.until(b"\r\n\r\n")
        lines = head.strip().split(b"\r\n")
        method, target, _ = lines[0].split(b" ")
        headers = {k.strip().lower(): v.strip() for k, v in (line.split(b":", 1) for line in lines[1:])}
        path, _, query = target.partition(b"?")
        if path == b"/ws":
            return self.websocket(headers)
        if path == b"/raw":
            return self.raw()
        if path == b"/abort":
            return False
        if path == b"/silent":
            while self.sock.recv(65536):
                pass
            return False
        if path == b"/early":
            self.sock.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
            return False
        digest, size = self.body(headers)
        if path == b"/down":
            left = int(query)
            self.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
            while left:
                part = PATTERN[:left]
                self.sock.sendall(part)
                left -= len(part)
        elif path == b"/chunked":
            self.sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-end\r\n\r\n"
                              b"5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX-End: yes\r\n\r\n")
        elif path == b"/rest":
            self.sock.sendall(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
            return False
        elif method == b"HEAD":
            self.sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        else:
            text = '{"head":"%s","sha256":"%s","size":%d,"connection":%d,"name":"%s"}' % (
                base64.b64encode(head).decode(), digest, size, self.serial, self.name)  # there is no json here
            self.answer(text.encode(), b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Odd:   kept as it is  \r\n")
        return True

    def websocket(self, headers):
        key = hashlib.sha1(headers[b"sec-websocket-key"] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        self.sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          b"Sec-WebSocket-Accept: " + base64.b64encode(key) + b"\r\n\r\n")
        while True:
            first, second = self.bytes(2)
            n = second & 127
            if n == 126:
                n, = struct.unpack(">H", self.bytes(2))
            elif n == 127:
                n, = struct.unpack(">Q", self.bytes(8))
            mask = self.bytes(4)
            data = self.bytes(n)
            plain = bytes(a ^ b for a, b in zip(data, mask * (n // 4 + 1)))
            size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n)
            self.sock.sendall(bytes([first]) + size + plain)
            if first & 15 == 8:
                return False

    def raw(self):
        self.sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: raw\r\nConnection: Upgrade\r\n\r\n")
        if self.buffer:
            self.sock.sendall(self.buffer)
        while True:
            data = self.sock.recv(65536)
            if not data:
                break
            self.sock.sendall(data)
        self.sock.sendall(b"you have ended")
        return False


def serve(sock, serial, name):
    with sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            peer = Peer(sock, serial, name)
            while peer.one():
                pass
            sock.shutdown(socket.SHUT_WR)
        except (EOFError, OSError):
            pass


def main():
    threading.stack_size(256 << 10)
    listener = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((sys.argv[1], int(sys.argv[2])))
    listener.listen(1024)
    serial = 0
    while True:
        sock, _ = listener.accept()
        serial += 1
        threading.Thread(target=serve, args=(sock, serial, sys.argv[3]), daemon=True).start()


main()
