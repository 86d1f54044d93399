import hashlib
import os
import socket
import time

port = int(os.environ["PORT"])
for _ in range(600):
    try:
        server = socket.create_connection(("127.0.0.1", port))
        break
    except OSError:
        time.sleep(0.1)
answers = server.makefile("rb")
count = 60_000


def value(key):
    return (str(key * 7919) * 1500)[:1500].encode()


for first in range(0, count, 500):
    server.sendall(b"".join(b"set k%d 0 0 1500\r\n%s\r\n" % (key, value(key)) for key in range(first, first + 500)))
    stored = {answers.readline() for _ in range(500)}
    assert stored == {b"STORED\r\n"}, stored
wrong, digest = 0, hashlib.sha256()
keys = sorted(range(count), key=lambda key: key * 7919 % 60_013)
for first in range(0, count, 500):
    part = keys[first : first + 500]
    server.sendall(b"".join(b"get k%d\r\n" % key for key in part))
    for key in part:
        assert answers.readline() == b"VALUE k%d 0 1500\r\n" % key, key
        data = answers.read(1502)
        wrong += data[:1500] != value(key)
        digest.update(data)
        assert answers.readline() == b"END\r\n"
print(count, wrong, digest.hexdigest())
