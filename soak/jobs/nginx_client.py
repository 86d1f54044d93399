import gzip
import hashlib
import os
import socket
import threading
import time
import urllib.request

port = int(os.environ["PORT"])
for _ in range(600):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        break
    except OSError:
        time.sleep(0.1)
answers = {}


def ask(number):
    name = "ab"[number % 2]
    headers = {"Accept-Encoding": "gzip"} if number % 3 else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{name}.html", headers=headers)
    data = urllib.request.urlopen(request, timeout=300).read()
    if number % 3:
        data = gzip.decompress(data)
    answers[number] = name, len(data), hashlib.sha256(data).hexdigest()


threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for number in sorted(answers):
    print(number, *answers[number])
