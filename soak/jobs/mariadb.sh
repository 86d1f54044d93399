# Starts a server on a socket here, asks it, and stops it.
set -eu
cp -a "$INPUT/data" data
user=$(id -un)
mariadbd --no-defaults --user="$user" --datadir="$PWD/data" --socket="$PWD/socket" --skip-networking \
    --innodb-buffer-pool-size=64M --tmp-table-size=64M --max-heap-table-size=64M >log 2>&1 &
server=$!
trap 'kill $server; wait $server || true' EXIT
for _ in $(seq 600); do [ ! -S socket ] || break; kill -0 $server || { cat log; exit 1; }; sleep 0.1; done
mariadb --no-defaults -u "$user" -S socket -N <<'SQL'
create database d; use d;
create table t (id int primary key, k int, note varchar(20), index (k)) engine=innodb;
insert into t select seq, seq * 7919 % 1000003, concat('note ', seq % 977) from seq_1_to_200000;
select note, sum(k), count(distinct k) from t group by note order by 2 desc, 1 limit 10;
select count(*), sum(a.k) from t a join t b on a.k = b.id where b.note < 'note 5';
create temporary table m engine=memory select * from t;
select sum(crc32(note)), max(k) from m;
SQL
