"""Who may do what: users with hashed passwords, and roles on subjects by the start of their name.

A line of the users file is `NAME:HASH ROLE[=PREFIX] ...`, with the roles `read`, `write` (which
reads too) and `admin` (which does everything). Without a prefix a role holds for all subjects.
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from headrace.errors import StartRefused
from headrace.registry.refusals import Refusal, Refused

# Parameters of scrypt: some 50 ms a guess.
COST, BLOCK, PARALLEL, SALT_BYTES = 2**14, 8, 1, 16
MAX_REMEMBERED = 1_000


class Role(IntEnum):
    """Each role may do what the one before may."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Grant:
    """A role on the subjects whose name begins so."""

    role: Role
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class User:
    """Someone who may do something."""

    name: str
    password_hash: str
    grants: tuple[Grant, ...]

    def may(self, role: Role, subject: str | None) -> bool:
        """None: something that is no subject's, which any grant of the role allows to read."""
        if subject is None:
            anywhere = role <= Role.READ
            return any(
                grant.role >= role and (anywhere or not grant.prefix) for grant in self.grants
            )
        return any(grant.role >= role and subject.startswith(grant.prefix) for grant in self.grants)


EVERYONE = User("", "", (Grant(Role.ADMIN),))


class Users:
    """The users of a file; without a file everyone may do everything."""

    def __init__(self, users: Mapping[str, User] | None) -> None:
        self._users = users
        # A password once found right is remembered by a quick hash: scrypt is slow on purpose.
        self._right: dict[bytes, User] = {}

    @property
    def open(self) -> bool:
        return self._users is None

    def authenticate(self, authorization: str) -> User:
        """The user of an Authorization header; raises 40101."""
        if self._users is None:
            return EVERYONE
        digest = hashlib.sha256(authorization.encode()).digest()
        known = self._right.get(digest)
        if known is not None:
            return known
        name, password = _credentials(authorization)
        user = self._users.get(name)
        if user is None or not verify(password, user.password_hash):
            raise Refused(Refusal.UNAUTHORIZED)
        if len(self._right) < MAX_REMEMBERED:
            self._right[digest] = user
        return user


def read_users(path: Path) -> Users:
    users: dict[str, User] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise StartRefused(f"{path} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            user = _user(line, f"{path}:{number}")
            users[user.name] = user
    return Users(users)


def hash_password(password: str) -> str:
    salt = os.urandom(SALT_BYTES)
    return f"scrypt${_b64(salt)}${_b64(_scrypt(password, salt))}"


def verify(password: str, password_hash: str) -> bool:
    try:
        kind, salt, digest = password_hash.split("$")
        expected = base64.b64decode(digest)
        return kind == "scrypt" and hmac.compare_digest(
            _scrypt(password, base64.b64decode(salt)), expected
        )
    except (ValueError, binascii.Error):
        return False


def _user(line: str, where: str) -> User:
    identity, *words = line.split()
    name, colon, password_hash = identity.partition(":")
    if not colon or not password_hash.startswith("scrypt$") or not words:
        raise StartRefused(f"{where}: a user is given as NAME:HASH ROLE[=PREFIX] ...")
    return User(name, password_hash, tuple(_grant(word, where) for word in words))


def _grant(word: str, where: str) -> Grant:
    role, _, prefix = word.partition("=")
    if role not in ("read", "write", "admin"):
        raise StartRefused(f"{where}: {role} is none of the roles read, write and admin")
    return Grant(Role[role.upper()], prefix)


def _credentials(authorization: str) -> tuple[str, str]:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise Refused(Refusal.UNAUTHORIZED)
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (ValueError, binascii.Error):
        raise Refused(Refusal.UNAUTHORIZED) from None
    if not colon:
        raise Refused(Refusal.UNAUTHORIZED)
    return name, password


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=COST, r=BLOCK, p=PARALLEL)


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
