"""Every refusal of the registry's API: Confluent's codes and sentences, a row each."""

from enum import Enum

from headrace.errors import HeadraceError


class Refusal(Enum):
    """A code and its sentence; the HTTP status is the code's first three digits."""

    BAD_REQUEST = 400, "%s"
    UNAUTHORIZED = 40101, "Unauthorized"
    FORBIDDEN = 40301, "User is denied operation on this server."
    NOT_FOUND = 404, "HTTP 404 Not Found"
    METHOD_NOT_ALLOWED = 405, "HTTP 405 Method Not Allowed"
    NOT_ACCEPTABLE = 406, "HTTP 406 Not Acceptable"
    TOO_LARGE = 413, "The request is larger than %d bytes."
    UNSUPPORTED_MEDIA_TYPE = 415, "HTTP 415 Unsupported Media Type"
    UNPROCESSABLE = 422, "%s"

    SUBJECT_NOT_FOUND = 40401, "Subject '%s' not found."
    VERSION_NOT_FOUND = 40402, "Version %s not found."
    SCHEMA_NOT_FOUND = 40403, "Schema not found"
    ID_NOT_FOUND = 40403, "Schema %s not found"
    SUBJECT_SOFT_DELETED = (
        40404,
        "Subject '%s' was soft deleted.Set permanent=true to delete permanently",
    )
    SUBJECT_NOT_SOFT_DELETED = (
        40405,
        "Subject '%s' was not deleted first before being permanently deleted",
    )
    VERSION_SOFT_DELETED = (
        40406,
        "Subject '%s' Version %s was soft deleted.Set permanent=true to delete permanently",
    )
    VERSION_NOT_SOFT_DELETED = (
        40407,
        "Subject '%s' Version %s was not deleted first before being permanently deleted",
    )
    NO_SUBJECT_CONFIG = (
        40408,
        "Subject '%s' does not have subject-level compatibility configured",
    )
    NO_SUBJECT_MODE = 40409, "Subject '%s' does not have subject-level mode configured"
    INCOMPATIBLE = (
        40901,
        'Schema being registered is incompatible with an earlier schema for subject "%s", '
        "details: %s",
    )
    INVALID_SCHEMA = 42201, "%s"
    INVALID_VERSION = (
        42202,
        "The specified version '%s' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )
    INVALID_LEVEL = (
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )
    INVALID_MODE = 42204, "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD."
    FORWARD_NOT_GLOBAL = 42204, "Forward mode only supported on global level"
    NOT_PERMITTED = 42205, "%s"
    REFERENCE_EXISTS = (
        42206,
        "One or more references exist to the schema "
        "{magic=1,keytype=SCHEMA,subject=%s,version=%s}.",
    )
    INVALID_SUBJECT = 42208, "The specified subject '%s' is not a valid."
    SCHEMA_TOO_LARGE = 42209, "Register operation failed because schema is too large"
    INVALID_RULE_SET = 42210, "%s"
    CONTEXT_NOT_EMPTY = 42211, "The specified context '%s' is not empty."
    STORE_FAILED = 50001, "Error from the backend Kafka store: %s"
    TIMED_OUT = 50002, "Operation timed out: %s"
    FORWARDING_FAILED = 50003, "Error while forwarding the request to the leader: %s"
    UNKNOWN_LEADER = 50004, "Leader not known."

    def __init__(self, code: int, sentence: str) -> None:
        self.code = code
        self.sentence = sentence

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


class Refused(HeadraceError):
    """The registry does not do what was asked, for a reason of the table."""

    def __init__(self, refusal: Refusal, *details: object) -> None:
        super().__init__(refusal.sentence % details)
        self.refusal = refusal
        self.message = refusal.sentence % details
