#!/usr/bin/env bash
# Installs the host packages that labctl needs, where they are missing. Debian only: the packages' names are Debian's.
set -euo pipefail

if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
  echo "labctl runs on Linux x86-64; this is $(uname -s) $(uname -m)." >&2
  exit 3
fi
if ! command -v go >/dev/null; then
  echo "Go is not installed: install Go 1.21 or newer (it fetches ${GOTOOLCHAIN:-its toolchain} itself), then run the same command again." >&2
  exit 3
fi

# program:package
needs=(qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils mmdebstrap:mmdebstrap mke2fs:e2fsprogs ssh:openssh-client git:git tar:tar)
missing=()
for need in "${needs[@]}"; do
  command -v "${need%%:*}" >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
done
# Without the archive's keys mmdebstrap cannot tell that the packages are Debian's.
[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || missing+=(debian-archive-keyring)
# UEFI firmware, which a test boots a cloud disk with.
compgen -G '/usr/share/OVMF/OVMF_VARS*.fd' >/dev/null || missing+=(ovmf)
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Packages are missing, and neither root nor sudo is here. Run this as root, then the same command again:" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 3
  fi
  as_root=(sudo)
fi
if ! command -v apt-get >/dev/null; then
  echo "These are missing, and there is no apt-get to install them with: ${missing[*]}" >&2
  exit 3
fi
echo "== install ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
