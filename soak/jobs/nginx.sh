# Serves files over loopback, also compressed, to a client that reads them at once; stops it by its number.
set -eu
mkdir site logs
head -c 4000000 "$INPUT/text" >site/a.html
tac "$INPUT/text" | head -c 3000000 >site/b.html
cat >conf <<CONF
daemon off; pid $PWD/pid; error_log $PWD/logs/error; worker_processes 2;
events { worker_connections 512; }
http { access_log off; client_body_temp_path $PWD/t1; proxy_temp_path $PWD/t2; fastcgi_temp_path $PWD/t3;
  uwsgi_temp_path $PWD/t4; scgi_temp_path $PWD/t5; gzip on; gzip_comp_level 6; gzip_buffers 512 16k; output_buffers 64 64k;
  server { listen 127.0.0.1:$PORT; root $PWD/site; } }
CONF
"$(command -v nginx || echo /usr/sbin/nginx)" -p "$PWD" -c "$PWD/conf" &
server=$!
trap 'kill -QUIT $server; wait $server || true' EXIT
python3 "$JOBS/nginx_client.py"
