"""Kafka's operations as the bits of "authorized operations" answers."""

NOT_ASKED = -(1 << 31)

# Bits by AclOperation: read, write, create, delete, alter, describe, describe and alter configs.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
# Read, delete, describe, describe and alter configs.
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
# Create, alter, describe, cluster action, describe and alter configs, idempotent write.
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
