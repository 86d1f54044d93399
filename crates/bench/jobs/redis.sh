# Fills a redis-server, saves it in a child while it is written to, loads it again, and digests it each time.
set -eu
socket=$WORK/redis.sock
redis-server --port 0 --unixsocket "$socket" --dir "$WORK" --save "" --enable-debug-command yes > /dev/null &
server=$!
say() { redis-cli -s "$socket" "$@"; }
until say ping > /dev/null 2>&1; do sleep 0.02; done
say eval 'for i = 1, 200000 do redis.call("set", "key:" .. i, string.rep("value " .. i, 10)) end return 1' 0
say debug digest
say bgsave > /dev/null
say eval 'for i = 1, 200000, 2 do redis.call("append", "key:" .. i, "more") end return 2' 0
until say info persistence | grep -q rdb_bgsave_in_progress:0; do sleep 0.05; done
say debug digest
say debug reload
say debug digest
say shutdown nosave || true
wait "$server"
