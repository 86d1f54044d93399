"""A redis-server on $PORT, with four clients that write and read back, and a snapshot by a fork: redis.py KEYS."""
import os
import socket
import subprocess
import sys
import threading
import time

keys, port = int(sys.argv[1]), int(os.environ["PORT"])
options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", os.getcwd()]
server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
wrong = []


class Client:
    def __init__(self):
        for _ in range(600):
            try:
                self.file = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
                return
            except ConnectionRefusedError:
                time.sleep(0.05)
        sys.exit("no server")

    def ask(self, *words):
        self.file.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
        self.file.flush()
        line = self.file.readline()
        if not line.startswith(b"$"):
            return line.strip()
        return self.file.read(int(line[1:]) + 2)[:-2]


def value(key, turn):
    return b"%d of %d, " % (key, turn) * (50 + key % 600)


def client(me):
    own = Client()
    for turn in range(2):
        for key in range(me, keys, 4):
            if own.ask(b"SET", b"key:%d" % key, value(key, turn)) != b"+OK":
                wrong.append(f"SET {key}")
            other = key // 3 // 4 * 4 + me
            if own.ask(b"GET", b"key:%d" % other) != value(other, turn):
                wrong.append(f"GET {other} in turn {turn}")


clients = [threading.Thread(target=client, args=(me,)) for me in range(4)]
for one in clients:
    one.start()
for one in clients:
    one.join()
last = Client()
print(last.ask(b"DBSIZE").decode(), last.ask(b"SAVE").decode())
last.file.write(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")
last.file.flush()
print(f"status {server.wait()}, {len(wrong)} wrong answers")
print("\n".join(wrong[:20]))
