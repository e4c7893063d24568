# Sourced by tests/demo and tests/all: installs what building needs and is missing, and builds. Debian packages only.

# To build and to run; what the tests need beside it.
build_packages="gcc libc6-dev meson ninja-build pkg-config libevent-dev libnanomsg-dev libsqlite3-dev libjansson-dev libssl-dev
	libxxhash-dev libinih-dev zlib1g-dev libjpeg62-turbo-dev libpng-dev libopenblas0-pthread"
[ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ] || build_packages="$build_packages libipsec-mb-dev"
test_packages="libcmocka-dev python3 binutils mandoc"

# prepare_install PACKAGE...: asks dpkg, and apt only for what is missing. As root, or with sudo.
prepare_install() {
	missing=
	for package in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
	done
	[ -n "$missing" ] || return 0
	sudo=
	if [ "$(id -u)" != 0 ]; then
		sudo=sudo
		command -v sudo >/dev/null || { echo "these packages are missing, and neither root nor sudo is here:$missing" >&2; return 1; }
	fi
	echo "installing:$missing"
	log=$(mktemp)
	for try in 1 2 3; do
		if $sudo env DEBIAN_FRONTEND=noninteractive sh -c \
			"apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing" </dev/null >"$log" 2>&1; then
			rm -f "$log"
			return 0
		fi
	done
	tail -n 20 "$log" >&2
	rm -f "$log"
	echo "apt-get could not install:$missing" >&2
	return 1
}

# prepare_build FOLDER [meson option...]: configures once, then only builds what changed.
prepare_build() {
	folder=$1
	shift
	if [ ! -f "$folder/build.ninja" ]; then
		meson setup "$folder" "$@" >"$folder.log" 2>&1 || { tail -n 30 "$folder.log" >&2; return 1; }
	fi
	ninja -C "$folder" >"$folder.log" 2>&1 || { tail -n 60 "$folder.log" >&2; return 1; }
	rm -f "$folder.log"
}
