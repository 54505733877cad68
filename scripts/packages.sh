# Debian packages for the other scripts; source it.

# missing_packages NAME...: those of them that are not installed, one a line.
missing_packages() {
  local name
  for name in "$@"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || echo "$name"
  done
}

# install_packages NAME...: installs them as root or through sudo without a password. Where neither is possible it prints
# the one line to run, and fails.
install_packages() {
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "missing Debian packages; as root, run:  apt-get install -y --no-install-recommends $*" >&2
      return 1
    fi
    as_root=(sudo -n)
  fi
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@")
  echo "installing $*"
  # The lists of packages may be missing or old: fetched only if they turn out to be.
  "${install[@]}" >/dev/null 2>&1 || { "${as_root[@]}" apt-get update -qq && "${install[@]}" >/dev/null; }
}
