# A server that forks to save what it holds, over a socket, and one that reads it again.
port=socket
serve() {
    redis-server --port 0 --unixsocket "$PWD/$port" --save '' --dir "$PWD" --maxmemory 0 --daemonize no --enable-debug-command local >log 2>&1 &
    server=$!
    tries=0
    until redis-cli -s "$port" ping 2>/dev/null | grep -q PONG; do
        sleep 0.2
        tries=$((tries + 1))
        { kill -0 $server && [ $tries -lt 300 ]; } || { tail -n 5 log; exit 1; }
    done
}
ask() { redis-cli -s "$port" "$@"; }
stop() {
    ask shutdown nosave
    wait $server
}
serve
ask debug populate 8000 key 2500
ask debug digest
ask bgsave >/dev/null
ask mset key:1 changed key:5000 changed key:7000 changed
until ask info persistence | grep -q 'rdb_bgsave_in_progress:0'; do
    kill -0 $server || { tail -n 5 log; exit 1; }
    sleep 0.2
done
ask info persistence | tr -d '\r' | grep rdb_last_bgsave_status
stop
serve
ask dbsize
ask debug digest
ask get key:5000
stop
