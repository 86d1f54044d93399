# Fills a server with values, and reads them in another order; stops it by its number.
set -eu
user=$(id -un)
memcached -l 127.0.0.1 -p "$PORT" -m 200 -t 2 -u "$user" &
server=$!
trap 'kill $server; wait $server || true' EXIT
python3 "$JOBS/memcached_client.py"
