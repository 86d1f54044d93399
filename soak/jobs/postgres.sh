# Starts a server on a socket here, asks it, and stops it. PostgreSQL refuses to run as root.
set -eu
export PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
cp -a "$INPUT/data" data
as=()
[ "$(id -u)" -ne 0 ] || { as=(setpriv --reuid=postgres --regid=postgres --clear-groups); chown -R postgres: .; }
"${as[@]}" postgres -D data -k "$PWD" -c listen_addresses= -c shared_buffers=16MB -c work_mem=64MB -c fsync=off >log 2>&1 &
server=$!
trap 'kill -INT $server; wait $server || true' EXIT
for _ in $(seq 600); do pg_isready -q -h "$PWD" -d postgres && break; kill -0 $server || { cat log; exit 1; }; sleep 0.1; done
"${as[@]}" psql -X -q -v ON_ERROR_STOP=1 -h "$PWD" -d postgres -At <<'SQL'
create table t as select n id, (n::bigint * 7919 % 1000003)::int k, 'note ' || n % 977 note from generate_series(1, 300000) n;
create index on t (k);
select note, sum(k), count(distinct k) from t group by note order by 2 desc, 1 limit 10;
select count(*), sum(a.k) from t a join t b on a.k = b.id where b.note < 'note 5';
select k, rank() over (partition by note order by k) from t order by 2 desc, 1 limit 10;
select md5(string_agg(note, ',' order by k)) from t;
SQL
