#!/bin/sh
# Starts versitygw, a real S3 server on a directory, for tests, and prints the environment that they read, to be evaluated by a shell:
#
#   eval "$(wal/objects/objectstest/server.sh start)"
#   go test ./wal/objects/...
#   wal/objects/objectstest/server.sh stop
#
# It is built with the Go toolchain into $VARVE_BUILD (.build of the checkout), once; the port is $VARVE_TEST_S3_PORT (17070).
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/../../.." && pwd)
build=${VARVE_BUILD:-$root/.build}
port=${VARVE_TEST_S3_PORT:-17070}
state=$build/versitygw
bucket=varve-test
version=v1.8.0

# Only this server knows them.
export ROOT_ACCESS_KEY=test
export ROOT_SECRET_KEY=test-secret

install() {
	[ -x "$build/bin/versitygw" ] && return
	mkdir -p "$build/bin"
	echo "building versitygw $version (some minutes, once)" >&2
	(cd "$build" && GOFLAGS=-mod=mod GOBIN="$build/bin" go install "github.com/versity/versitygw/cmd/versitygw@$version") >&2
}

running() {
	[ -f "$state/pid" ] && kill -0 "$(cat "$state/pid")" 2>/dev/null
}

start() {
	install
	if ! running; then
		rm -rf "$state"
		# A bucket of its posix backend is a directory.
		mkdir -p "$state/data/$bucket"
		"$build/bin/versitygw" --port "127.0.0.1:$port" --quiet --keep-alive posix "$state/data" >"$state/log" 2>&1 </dev/null &
		echo $! >"$state/pid"
		wait_for_answer
	fi
	echo "export AWS_ACCESS_KEY_ID=$ROOT_ACCESS_KEY"
	echo "export AWS_SECRET_ACCESS_KEY=$ROOT_SECRET_KEY"
	echo "export VARVE_TEST_S3_ATOMIC=true" # from 1.8.0 on, a lock of each key is held over check and write
	echo "export VARVE_TEST_S3_URL='s3://$bucket?region=us-east-1&pathStyle=true&endpoint=http://127.0.0.1:$port'"
}

wait_for_answer() {
	tries=0
	until curl -s -o /dev/null "http://127.0.0.1:$port/"; do
		tries=$((tries + 1))
		if [ $tries -gt 100 ] || ! running; then
			echo "versitygw did not start:" >&2
			cat "$state/log" >&2
			exit 1
		fi
		sleep 0.1
	done
}

stop() {
	if running; then
		kill "$(cat "$state/pid")"
	fi
	rm -rf "$state"
}

case "${1:-}" in
start) start ;;
stop) stop ;;
install) install ;;
*)
	echo "usage: $0 start|stop|install" >&2
	exit 2
	;;
esac
