"""Data that ordinary programs read everywhere, if the host has it. None of it tells of this host's people."""

from __future__ import annotations

EVERY = (
    "/etc/localtime",
    "/usr/share/zoneinfo",
    # Certificates: OpenSSL's own directory as it is, since programs look there by hash and by the one large file;
    # what the links there lead to; and where other distributions keep the same.
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates/extracted",
    # OpenSSL reads its configuration when it starts; where it was told to look is a directory of links.
    "/etc/ssl/openssl.cnf",
    "/usr/lib/ssl/openssl.cnf",
    "/usr/lib/ssl/certs",
    "/usr/lib/ssl/cert.pem",
    "/etc/crypto-policies/back-ends/opensslcnf.config",
    "/etc/mime.types",
    "/etc/services",  # getservbyname
    "/etc/protocols",
    # Which distribution this is, as its libraries say anyway: pip, Python's platform and installers look.
    "/etc/os-release",
)

DYNAMIC = (
    "/etc/ld.so.cache",  # where the loader looks first; of what it names, only what is present is found
    "/usr/lib/locale/C.utf8",  # LANG
    "/usr/lib/locale/locale-archive",
    "/usr/share/locale/locale.alias",
    "/usr/share/terminfo",  # curses
    "/lib/terminfo",
)
"""For programs with a C library of the host; a static one brings its own or does without."""

PLUGINS = {
    # iconv's character sets: without them every encoding but Unicode's, Latin-1 and ASCII fails, in git and in grep as
    # well as in iconv(1). Loaded by name, so in nobody's list; they belong to the C library and convert, no more.
    "libc.so.6": "gconv",
    # OpenSSL's older digests and ciphers: MD4 and Blowfish are asked for by ordinary mail and archive tools.
    "libcrypto.so.3": "ossl-modules",
    # Where some distributions keep the libraries that NSS loads by name.
    "libnss3.so": "nss",
}
"""Library -> directory beside it whose libraries it loads by name."""

LIBRARY_DATA = {
    # What file(1) and everything else that tells types by content knows of them.
    "libmagic.so.1": ("/usr/share/misc/magic.mgc", "/usr/share/misc/magic", "/etc/magic"),
}
"""Library -> data of its own that it reads by name."""
