"""Which registry writes: a Kafka group of Confluent's kind elects it, and says where it listens."""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client.wire import Api, Connection, Wire, refuse
from headrace.errors import ErrorCode, HeadraceError, KafkaError
from headrace.protocol.messages import Message

logger = logging.getLogger(__name__)

PROTOCOL_TYPE = "sr"
PROTOCOL = "v0"
GROUP_KEY = 0
# The least that Kafka allows by default: so long a registry that dies may be waited for.
SESSION_TIMEOUT_MS = 6_000
REBALANCE_TIMEOUT_MS = 10_000
HEARTBEAT_S = 1.0
RETRY_PAUSE_S = 0.5
DUPLICATE_URLS = 1
# The group does not know this member any more: it joins as a new one.
FORGOTTEN = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Where a registry answers."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Identity":
        return cls(fields["host"], fields["port"], fields.get("scheme") or "http")

    def to_json(self, *, leader: bool) -> dict[str, Any]:
        return {
            "version": 1,
            "host": self.host,
            "port": self.port,
            "master_eligibility": True,
            "scheme": self.scheme,
            "leader": leader,
        }


@dataclass(frozen=True, slots=True)
class Candidate:
    """A member of the group, as it presents itself."""

    member_id: str
    identity: Identity
    eligible: bool
    leads: bool


def elect(candidates: list[Candidate]) -> Candidate | None:
    """Who led goes on to lead; else the eligible one whose address sorts first."""
    eligible = [each for each in candidates if each.eligible]
    leading = [each for each in eligible if each.leads]
    if len(leading) == 1:
        return leading[0]
    return min(eligible, key=lambda each: each.identity.url, default=None)


OnChange = Callable[[Identity | None], None]


class Election:
    """Takes part in the group in a thread; tells every change of the leader, None if unknown."""

    def __init__(
        self, bootstrap: str, group_id: str, identity: Identity, on_change: OnChange
    ) -> None:
        self._bootstrap = bootstrap
        self._group_id = group_id
        self._identity = identity
        self._on_change = on_change
        self._leader: Identity | None = None
        self._member_id = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry-election", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave, so that the others need not wait for a session to end."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with Wire(self._bootstrap) as wire, self._coordinator(wire) as coordinator:
                    self._take_part(coordinator)
            except HeadraceError as error:
                logger.warning("election goes on without the group reason=%s", error)
                self._tell(None)
                self._stopping.wait(RETRY_PAUSE_S)
            except (ValueError, KeyError, TypeError) as error:
                logger.warning("another member of the group is not understood reason=%r", error)
                self._tell(None)
                self._stopping.wait(RETRY_PAUSE_S)

    def _coordinator(self, wire: Wire) -> Connection:
        request = Message(key=self._group_id, key_type=GROUP_KEY, coordinator_keys=[self._group_id])
        answer = wire.any().call(Api.FIND_COORDINATOR, request)
        row = answer.coordinators[0] if answer.coordinators else answer
        refuse(row.error_code, f"finding the coordinator of group {self._group_id}")
        return Connection(row.host, row.port)

    def _take_part(self, coordinator: Connection) -> None:
        while not self._stopping.is_set():
            generation = self._join(coordinator)
            if generation is not None:
                self._stay(coordinator, generation)
        self._leave(coordinator)

    def _join(self, coordinator: Connection) -> int | None:
        """The generation joined; None: the group changed meanwhile, ask again."""
        answer = coordinator.call(Api.JOIN_GROUP, self._joining())
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
            answer = coordinator.call(Api.JOIN_GROUP, self._joining())
        if answer.error_code in FORGOTTEN:
            self._member_id = ""
            return None
        refuse(answer.error_code, f"joining group {self._group_id}")
        self._member_id = answer.member_id
        assigns = answer.leader == answer.member_id and not answer.skip_assignment
        assignments = self._assignments(answer) if assigns else []
        synced = coordinator.call(
            Api.SYNC_GROUP,
            Message(
                group_id=self._group_id,
                generation_id=answer.generation_id,
                member_id=self._member_id,
                group_instance_id=self._identity.url,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=PROTOCOL,
                assignments=assignments,
            ),
        )
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        refuse(synced.error_code, f"syncing group {self._group_id}")
        self._heed(json.loads(bytes(synced.assignment)))
        return int(answer.generation_id)

    def _joining(self) -> Message:
        identity = self._identity.to_json(leader=self._leader == self._identity)
        protocol = Message(name=PROTOCOL, metadata=json.dumps(identity).encode())
        return Message(
            group_id=self._group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            # One that is killed and started again takes its old place at once (KIP-345).
            group_instance_id=self._identity.url,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )

    def _assignments(self, answer: Message) -> list[Message]:
        """Everyone is told the same: who leads."""
        candidates = [_candidate(row) for row in answer.members]
        leader = elect(candidates)
        urls = {each.identity.url for each in candidates}
        told = {
            "error": 0 if len(urls) == len(candidates) else DUPLICATE_URLS,
            "master": leader.member_id if leader else None,
            "master_identity": leader.identity.to_json(leader=True) if leader else None,
            "version": 1,
        }
        text = json.dumps(told).encode()
        return [Message(member_id=each.member_id, assignment=text) for each in candidates]

    def _heed(self, assignment: Mapping[str, Any]) -> None:
        if assignment.get("error"):
            logger.error("two registries of group %s listen at one address", self._group_id)
            self._tell(None)
            return
        identity = assignment.get("master_identity")
        self._tell(Identity.from_json(identity) if identity else None)

    def _stay(self, coordinator: Connection, generation: int) -> None:
        """Heartbeat until the group changes; a failure ends this membership."""
        beat = Message(group_id=self._group_id, generation_id=generation, member_id=self._member_id)
        while not self._stopping.wait(HEARTBEAT_S):
            code = coordinator.call(Api.HEARTBEAT, beat).error_code
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                return
            if code in FORGOTTEN:
                self._member_id = ""
                self._tell(None)
                return
            refuse(code, f"heartbeat to group {self._group_id}")

    def _leave(self, coordinator: Connection) -> None:
        member = Message(member_id=self._member_id, group_instance_id=self._identity.url)
        request = Message(group_id=self._group_id, member_id=self._member_id, members=[member])
        try:
            coordinator.call(Api.LEAVE_GROUP, request)
        except (KafkaError, OSError) as error:
            logger.debug("left without a word reason=%s", error)

    def _tell(self, leader: Identity | None) -> None:
        if leader != self._leader:
            self._leader = leader
            logger.info("leader is %s", leader.url if leader else "unknown")
            self._on_change(leader)


def _candidate(row: Message) -> Candidate:
    fields = json.loads(bytes(row.metadata))
    return Candidate(
        row.member_id,
        Identity.from_json(fields),
        bool(fields.get("master_eligibility", True)),
        bool(fields.get("leader")),
    )
